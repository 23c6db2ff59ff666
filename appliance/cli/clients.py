"""`appliance cluster clients`: which clients tell the brokers of themselves, and what they pushed last."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from appliance.base.errors import UserError
from appliance.base.ids import ZERO_UUID, uuid_from_text, uuid_to_text
from appliance.cli.output import Format, print_json, print_table
from appliance.cli.status import ask
from appliance.cli.topics import client_of

if TYPE_CHECKING:
    from appliance.wire.messages.internal_clients import BrokerClientsClient


def show_clients(bootstrap_server: str, instance: str | None, output: Format) -> None:
    """Ask every broker: a client tells only those that it is connected to, most often one."""
    from appliance.wire.messages.internal_clients import BrokerClientsRequest

    wanted = _id_of(instance)
    with client_of(bootstrap_server) as client:
        brokers = list(client.metadata().brokers.values())
    rows: list[dict[str, Any]] = []
    for broker in brokers:
        answer = ask(broker, BrokerClientsRequest(client_instance_id=wanted))
        for row in answer.clients if answer is not None else ():
            if wanted in (ZERO_UUID, row.client_instance_id):
                rows.append({"broker_id": broker.broker_id, **_document(row)})
    if output is Format.JSON:
        print_json(rows)
    elif instance is None:
        _print_clients(rows)
    else:
        for each in rows:
            print_table(
                ("METRIC", "ATTRIBUTES", "VALUE"),
                [(one["name"], one["attributes"], f"{one['value']:g}") for one in each["metrics"]],
            )


def _id_of(text: str | None) -> uuid.UUID:
    try:
        return uuid_from_text(text) if text is not None else ZERO_UUID
    except ValueError as error:
        raise UserError(str(error), exit_code=2) from None


def _document(row: BrokerClientsClient) -> dict[str, Any]:
    return {
        "client_instance_id": uuid_to_text(row.client_instance_id),
        "client_id": row.client_id,
        "principal": row.principal,
        "software": f"{row.software_name} {row.software_version}".strip(),
        "address": row.address,
        "about": row.about,
        "subscription_id": row.subscription_id,
        "interval_ms": row.interval_ms,
        "requested_metrics": list(row.requested_metrics),
        "pushes": row.pushes,
        "push_age_ms": row.push_age_ms,
        "values": row.values,
        "dropped": row.dropped,
        "metrics": [{"name": one.name, "attributes": one.attributes, "value": one.value} for one in row.metrics],
    }


def _print_clients(rows: list[dict[str, Any]]) -> None:
    print_table(
        ("CLIENT INSTANCE", "CLIENT ID", "SOFTWARE", "ADDRESS", "BROKER", "EVERY MS", "PUSHES", "METRICS"),
        [
            (
                row["client_instance_id"],
                row["client_id"] or "-",
                row["software"] or "-",
                row["address"],
                row["broker_id"],
                row["interval_ms"],
                row["pushes"],
                row["values"],
            )
            for row in rows
        ],
    )
