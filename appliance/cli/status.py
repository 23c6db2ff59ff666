"""`appliance status`: brokers, controller and partitions of a cluster, and what is wrong with it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID, uuid_to_text
from appliance.cli import secured
from appliance.cli.lake import lake_of_store
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, print_json, print_table
from appliance.cli.topics import CLIENT_ID, client_of

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.cluster import BrokerEndpoint, ClusterMetadata
    from appliance.wire.messages.internal_status import BrokerStatusResponse
    from appliance.wire.schema import Request, Struct

    Answer = TypeVar("Answer", bound=Struct)

EXIT_UNHEALTHY = 1
OWN_TIMEOUT_MS = 5_000
OWN_VERSION = 0
"""Of our own APIs, which are not advertised."""
OFFLINE_SHOWN_MAX = 20
"""Partitions out of service that are named one by one among the problems."""


def status(
    tiering: Annotated[bool, typer.Option("--tiering", help="All tiered partitions, not only those behind.")] = False,
    lake: Annotated[bool, typer.Option("--lake", help="Lake output, too; looks into the object store.")] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show how the cluster is. Ends with 1 if something is wrong with it."""
    with client_of(bootstrap_server) as client:
        cluster = client.metadata()
        brokers = sorted(cluster.brokers.values(), key=lambda broker: broker.broker_id)
        controller = _controller(brokers)
        answers = _broker_answers(brokers, tiering)
        document: dict[str, Any] = {
            "cluster_id": cluster.cluster_id,
            "brokers": [
                {
                    "broker_id": b.broker_id,
                    "address": f"{b.host}:{b.port}",
                    "rack": b.rack,
                    **_led_by(cluster, b.broker_id),
                }
                for b in brokers
            ],
            "controller": controller,
            "directories": _directories(answers),
            "offline": _offline(answers),
            "damage": _damage(answers),
            "uncleanable": _uncleanable(answers),
            "runtime": _runtime(answers),
            "tiering": _tiering(answers),
            "topics": len(cluster.topics),
            "partitions": sum(len(topic.partitions) for topic in cluster.topics.values()),
            "object_store": _object_store(client, cluster),
        }
        document["problems"] = _problems(cluster, controller, document["tiering"]) + _disk_problems(document)
        document["problems"] += document["runtime"]
        if lake:
            document["lake"] = lake_of_store(document["object_store"] or "")
    if output is Format.JSON:
        print_json(document)
    else:
        _print(document)
    if document["problems"]:
        raise typer.Exit(EXIT_UNHEALTHY)


def _led_by(cluster: ClusterMetadata, broker_id: int) -> dict[str, int]:
    partitions = [part for topic in cluster.topics.values() for part in topic.partitions.values()]
    return {
        "leads": sum(part.leader == broker_id for part in partitions),
        "replicas": sum(broker_id in part.replicas for part in partitions),
    }


def ask(broker: BrokerEndpoint, request: Request[Answer]) -> Answer | None:
    """An answer to a request of our own; None from another Kafka, which ends the connection."""
    from appliance.client.connection import CallTimedOut, Connection, ConnectionLost

    try:
        with Connection(
            broker.host, broker.port, client_id=CLIENT_ID, timeout_ms=OWN_TIMEOUT_MS, security=secured.security()
        ) as connection:
            return connection.call(request, OWN_VERSION)
    except (ConnectionLost, CallTimedOut):
        return None


def _controller(brokers: list[BrokerEndpoint]) -> dict[str, Any] | None:
    """What the active controller says of itself, through the first broker that reaches it."""
    from appliance.wire.messages.internal_metadata import ControllerStatusRequest

    for one in brokers:
        answer = ask(one, ControllerStatusRequest())
        if answer is None or answer.error_code != ErrorCode.NONE:
            continue
        return {
            "controller_id": answer.controller_id,
            "controller_epoch": answer.controller_epoch,
            "active": answer.active,
            "metadata_position": answer.position,
            "snapshot": answer.snapshot,
            "store": answer.store_state,
            "waiting_operations": answer.waiting_operations,
            "offline_partitions": answer.offline_partitions,
            "under_replicated_partitions": answer.under_replicated_partitions,
            "under_min_isr_partitions": answer.under_min_isr_partitions,
            "reassigning_partitions": answer.reassigning_partitions,
            "data_lost_partitions": answer.data_lost_partitions,
            "unclean_elections": answer.unclean_elections,
            "deleted_topics": answer.deleted_topics,
            "deleted_objects": answer.deleted_objects,
            "deleting": answer.deleting,
            "brokers": [
                {
                    "broker_id": broker.broker_id,
                    "fenced": broker.fenced,
                    "shutting_down": broker.shutting_down,
                    "node": broker.node,
                    "last_heartbeat_age_ms": broker.last_heartbeat_age_ms,
                }
                for broker in answer.brokers
            ],
        }
    return None


def _broker_answers(brokers: list[BrokerEndpoint], all_partitions: bool) -> dict[int, BrokerStatusResponse]:
    """What the brokers that are ours say of themselves, by their ids."""
    from appliance.wire.messages.internal_status import BrokerStatusRequest

    asked = {one.broker_id: ask(one, BrokerStatusRequest(only_behind=not all_partitions)) for one in brokers}
    return {broker_id: answer for broker_id, answer in asked.items() if answer is not None}


def _runtime(answers: dict[int, BrokerStatusResponse]) -> list[str]:
    """What brokers say is wrong with the runtime that started them."""
    return sorted({answer.runtime_problem for answer in answers.values()} - {""})


def _directories(answers: dict[int, BrokerStatusResponse]) -> list[dict[str, Any]]:
    return [
        {
            "broker_id": broker_id,
            "path": row.path,
            "directory_id": uuid_to_text(row.directory_id) if row.directory_id != ZERO_UUID else None,
            "state": row.state,
            "reason": row.reason,
            "total_bytes": row.total_bytes,
            "free_bytes": row.free_bytes,
            "logs": row.logs,
        }
        for broker_id, answer in answers.items()
        for row in answer.directories
    ]


def _offline(answers: dict[int, BrokerStatusResponse]) -> list[dict[str, Any]]:
    """Partitions that a broker has and does not serve."""
    return [
        {"broker_id": broker_id, "topic": row.topic, "partition": row.partition, "reason": row.reason}
        for broker_id, answer in answers.items()
        for row in answer.offline
    ]


def _disk_problems(document: dict[str, Any]) -> list[str]:
    directories = [
        f"broker {row['broker_id']}: data directory {row['path']} is {row['state']}: {row['reason']}"
        for row in document["directories"]
        if row["state"] != "online"
    ]
    partitions = [
        f"{row['topic']}-{row['partition']} is out of service on broker {row['broker_id']}: {row['reason']}"
        for row in document["offline"]
    ]
    partitions += [
        f"{row['topic']}-{row['partition']}: offsets {row['start_offset']} to {row['end_offset'] - 1} cannot be read "
        f"on broker {row['broker_id']}: {row['reason']}"
        for row in document["damage"]
    ]
    partitions += [
        f"{row['topic']}-{row['partition']} is not compacted on broker {row['broker_id']}: {row['reason']}"
        for row in document["uncleanable"]
    ]
    more = len(partitions) - OFFLINE_SHOWN_MAX
    return [*directories, *partitions[:OFFLINE_SHOWN_MAX], *([f"and {more} more partitions"] if more > 0 else [])]


def _tiering(answers: dict[int, BrokerStatusResponse]) -> list[dict[str, Any]]:
    """Partitions of which something waits for the object store, or all, by topic and partition."""
    rows = []
    for broker_id, answer in answers.items():
        for row in answer.tiering:
            rows.append(
                {
                    "topic": row.topic,
                    "partition": row.partition,
                    "leader": broker_id,
                    "state": row.state,
                    "start_offset": row.start_offset,
                    "tiered_end": row.tiered_end,
                    "waiting_segments": row.waiting_segments,
                    "waiting_bytes": row.waiting_bytes,
                    "reason": row.reason,
                }
            )
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _object_store(client: Client, cluster: ClusterMetadata) -> str | None:
    from appliance.client.results import BROKER_RESOURCE, ConfigResource

    if not cluster.brokers:
        return None
    resource = ConfigResource(BROKER_RESOURCE, str(min(cluster.brokers)))
    entry = client.describe_configs([resource], ["object.store.url"])[resource].get("object.store.url")
    return entry.value if entry is not None else None


def _damage(answers: dict[int, BrokerStatusResponse]) -> list[dict[str, Any]]:
    """Offsets that brokers cannot read from their disks."""
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "broker_id": broker_id,
            "start_offset": row.start_offset,
            "end_offset": row.end_offset,
            "reason": row.reason,
        }
        for broker_id, answer in answers.items()
        for row in answer.damage
    ]


def _uncleanable(answers: dict[int, BrokerStatusResponse]) -> list[dict[str, Any]]:
    """Logs that brokers do not compact any more."""
    return [
        {"topic": row.topic, "partition": row.partition, "broker_id": broker_id, "reason": row.reason}
        for broker_id, answer in answers.items()
        for row in answer.uncleanable
    ]


def _problems(cluster: ClusterMetadata, controller: dict[str, Any] | None, tiering: list[dict[str, Any]]) -> list[str]:
    problems = []
    for name, topic in sorted(cluster.topics.items()):
        if topic.error != ErrorCode.NONE:
            problems.append(f"topic {name}: {topic.error.name}")
        for number, part in sorted(topic.partitions.items()):
            if part.leader not in cluster.brokers:
                problems.append(
                    f"{name}-{number} has no leader ({part.error.name}); its replicas: {list(part.replicas)}"
                )
            elif len(part.isr) < len(part.replicas):
                problems.append(f"{name}-{number}: {len(part.isr)} of {len(part.replicas)} replicas are in sync")
    if controller is not None:
        if controller["store"] not in ("", "ok"):
            problems.append(f"the controller's object store: {controller['store']}")
        for broker in controller["brokers"]:
            if broker["fenced"]:
                problems.append(f"broker {broker['broker_id']} is fenced")
        if controller["data_lost_partitions"]:
            problems.append(
                f"{controller['data_lost_partitions']} partitions lost their only copy: `appliance tier restore` "
                "brings back what the object store has"
            )
        if controller["under_min_isr_partitions"]:
            problems.append(
                f"{controller['under_min_isr_partitions']} partitions have fewer replicas in sync than "
                "min.insync.replicas: acks=all is refused there"
            )
        if controller["unclean_elections"]:
            problems.append(
                f"{controller['unclean_elections']} unclean elections since this controller took over: "
                "acknowledged records may be lost"
            )
    for row in tiering:
        if row["reason"]:
            problems.append(
                f"{row['topic']}-{row['partition']} is not tiered beyond {row['tiered_end']}: {row['reason']}"
            )
    return problems


def _print(document: dict[str, Any]) -> None:
    controller = document["controller"]
    print(f"cluster {document['cluster_id']}  {document['topics']} topics  {document['partitions']} partitions")
    print(f"object store {document['object_store'] or 'unknown'}")
    if controller is not None:
        print(
            f"controller {controller['controller_id']}  epoch {controller['controller_epoch']}  "
            f"metadata at {controller['metadata_position']}  store {controller['store'] or 'unknown'}"
        )
        print(
            f"partitions: {controller['offline_partitions']} offline, "
            f"{controller['under_replicated_partitions']} under-replicated, "
            f"{controller['under_min_isr_partitions']} under min.insync.replicas, "
            f"{controller['reassigning_partitions']} being moved"
        )
        if controller["deleted_topics"]:
            print(
                f"deleted topics: {controller['deleted_topics']} with objects to be removed, "
                f"{controller['deleted_objects']} objects removed so far; {controller['deleting']}"
            )
    print_table(
        ("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS"),
        [(b["broker_id"], b["address"], b["rack"] or "-", b["leads"], b["replicas"]) for b in document["brokers"]],
    )
    print_table(
        ("DATA DIRECTORY", "BROKER", "STATE", "FREE", "OF", "LOGS"),
        [
            (row["path"], row["broker_id"], row["state"], row["free_bytes"], row["total_bytes"], row["logs"])
            for row in document["directories"]
        ],
    )
    print_table(
        ("LAKE OUTPUT", "NEXT OFFSET", "LAG", "ROWS", "DEAD LETTERS", "FILES"),
        [
            (
                f"{row['topic']}-{row['partition']}",
                *(row[k] for k in ("next_offset", "lag", "rows", "dead_letters", "files")),
            )
            for row in document.get("lake", ())
        ],
    )
    print_table(
        ("TIERING", "LEADER", "STATE", "TIERED TO", "WAITING", "BYTES"),
        [
            (
                f"{row['topic']}-{row['partition']}",
                row["leader"],
                row["state"],
                row["tiered_end"],
                row["waiting_segments"],
                row["waiting_bytes"],
            )
            for row in document["tiering"]
        ],
    )
    if document["problems"]:
        print("problems:")
        for problem in document["problems"]:
            print(f"  {problem}")
    else:
        print("healthy")
