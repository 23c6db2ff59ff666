"""`appliance status`: brokers, controller and partitions of a cluster, and what is wrong with it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from appliance.base.errors import ErrorCode, KafkaError
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, print_json, print_table
from appliance.cli.topics import client_of

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.cluster import ClusterMetadata

EXIT_UNHEALTHY = 1


def status(bootstrap_server: Bootstrap = LOCAL_BROKER, output: OutputFormat = Format.TEXT) -> None:
    """Show how the cluster is. Ends with 1 if something is wrong with it."""
    with client_of(bootstrap_server) as client:
        cluster = client.metadata()
        controller = _controller(client)
        document: dict[str, Any] = {
            "cluster_id": cluster.cluster_id,
            "brokers": [
                {
                    "broker_id": b.broker_id,
                    "address": f"{b.host}:{b.port}",
                    "rack": b.rack,
                    **_led_by(cluster, b.broker_id),
                }
                for b in sorted(cluster.brokers.values(), key=lambda broker: broker.broker_id)
            ],
            "controller": controller,
            "topics": len(cluster.topics),
            "partitions": sum(len(topic.partitions) for topic in cluster.topics.values()),
            "object_store": _object_store(client, cluster),
        }
        document["problems"] = _problems(cluster, controller)
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


def _controller(client: Client) -> dict[str, Any] | None:
    """What the active controller says of itself; None where brokers do not hand the question on."""
    from appliance.wire.messages.internal_metadata import ControllerStatusRequest

    try:
        answer = client.call(ControllerStatusRequest())
    except KafkaError as error:
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    if answer.error_code != ErrorCode.NONE:
        return None
    return {
        "controller_id": answer.controller_id,
        "controller_epoch": answer.controller_epoch,
        "active": answer.active,
        "metadata_position": answer.position,
        "snapshot": answer.snapshot,
        "store": answer.store_state,
        "waiting_operations": answer.waiting_operations,
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


def _object_store(client: Client, cluster: ClusterMetadata) -> str | None:
    from appliance.client.results import BROKER_RESOURCE, ConfigResource

    if not cluster.brokers:
        return None
    resource = ConfigResource(BROKER_RESOURCE, str(min(cluster.brokers)))
    entry = client.describe_configs([resource], ["object.store.url"])[resource].get("object.store.url")
    return entry.value if entry is not None else None


def _problems(cluster: ClusterMetadata, controller: dict[str, Any] | None) -> list[str]:
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
    print_table(
        ("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS"),
        [(b["broker_id"], b["address"], b["rack"] or "-", b["leads"], b["replicas"]) for b in document["brokers"]],
    )
    if document["problems"]:
        print("problems:")
        for problem in document["problems"]:
            print(f"  {problem}")
    else:
        print("healthy")
