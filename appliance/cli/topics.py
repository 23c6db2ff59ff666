"""`appliance topics`: create, list, describe and delete topics; `topics_import` has the import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition, uuid_to_text
from appliance.cli import secured, topics_import
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, key_values, print_json, print_table

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.cluster import TopicMetadata

CLIENT_ID = "appliance-cli"
EARLIEST, LATEST = -2, -1
_TOPIC_SOURCE = 1

app = typer.Typer(help="Create, list, describe, delete and import topics.", no_args_is_help=True, rich_markup_mode=None)


app.command("import")(topics_import.import_topics)

FIRST_CONTACT_RETRIES = 4
"""Under a second: somebody waits, and an address where nobody listens is more often wrong than slow."""
TIMEOUT_MS = 10_000


def client_of(bootstrap_server: str) -> Client:
    """A client of a cluster that has answered.

    Raises:
        UserError, ConnectionLost, CallTimedOut, KafkaError: no address, or nobody answers there.
    """
    # Here and not above: `--help` needs no client.
    from appliance.client.client import Client
    from appliance.client.retries import RetryPolicy

    patience = RetryPolicy(retry_limit=FIRST_CONTACT_RETRIES)
    security = secured.security()
    with Client(
        bootstrap_server, client_id=CLIENT_ID, timeout_ms=TIMEOUT_MS, retries=patience, security=security
    ) as client:
        client.metadata(())
    return Client(bootstrap_server, client_id=CLIENT_ID, timeout_ms=TIMEOUT_MS, security=security)


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(help="The topics' names.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; the broker's default if not said.")
    ] = -1,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", help="Of each partition; the broker's default if not said.")
    ] = -1,
    config: Annotated[list[str] | None, typer.Option("--config", "-c", help="name=value; may be repeated.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    dry: Annotated[bool, typer.Option("--dry", "-d", help="Only check whether it could be created.")] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Create topics."""
    from appliance.client.results import NewTopic

    configs = key_values(config or (), "--config")
    rows: list[dict[str, Any]] = []
    with client_of(bootstrap_server) as client:
        for name in names:
            try:
                topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, configs=configs)
                created = client.create_topics([topic], validate_only=dry)[name]
            except KafkaError as error:
                if if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    rows.append({"topic": name, "created": False})
                    continue
                raise KafkaError(error.code, f"topic {name}: {error.message or 'refused'}") from None
            rows.append(
                {
                    "topic": name,
                    "created": not dry,
                    "topic_id": uuid_to_text(created.topic_id),
                    "partitions": created.num_partitions,
                    "replicas": created.replication_factor,
                }
            )
    if output is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        word = "created" if row["created"] else "could be created" if dry and "partitions" in row else "exists"
        print(f"{row['topic']} {word}")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", "-i", help="Internal topics too.")] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List topics."""
    with client_of(bootstrap_server) as client:
        topics = client.metadata().topics
    rows = [
        {
            "topic": topic.name,
            "topic_id": uuid_to_text(topic.topic_id),
            "partitions": len(topic.partitions),
            "replicas": _replicas(topic),
            "internal": topic.is_internal,
        }
        for _, topic in sorted(topics.items())
        if internal or not topic.is_internal
    ]
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table(
            ("TOPIC", "PARTITIONS", "REPLICAS"), [(row["topic"], row["partitions"], row["replicas"]) for row in rows]
        )


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(help="The topics' names.")],
    all_configs: Annotated[bool, typer.Option("--all-configs", "-a", help="Configs with their defaults too.")] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show partitions, offsets and configs of topics."""
    with client_of(bootstrap_server) as client:
        documents = [_described(client, name, all_configs) for name in names]
    if output is Format.JSON:
        print_json(documents)
        return
    for number, document in enumerate(documents):
        if number:
            print()
        print(f"topic {document['topic']}  id {document['topic_id']}")
        print_table(("CONFIG", "VALUE"), sorted(document["configs"].items()))
        print_table(
            ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"),
            [
                (p["partition"], p["leader"], p["leader_epoch"], p["replicas"], p["isr"], p["start"], p["end"])
                for p in document["partitions"]
            ],
        )


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="The topics' names.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no error.")] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Delete topics and what is in them."""
    deleted = []
    with client_of(bootstrap_server) as client:
        for name in names:
            known = require_topics(client, [name], missing_is_fine=if_exists)
            if known[name].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # the client would ask again and again, as for a topic that has just been created
            try:
                client.delete_topics([name])
                deleted.append(name)
            except KafkaError as error:
                # It may go between the look and the request.
                if not if_exists or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise KafkaError(error.code, f"topic {name}: {error.message or 'refused'}") from None
    if output is Format.JSON:
        print_json([{"topic": name, "deleted": name in deleted} for name in names])
    else:
        for name in deleted:
            print(f"{name} deleted")


def require_topics(client: Client, names: Sequence[str], *, missing_is_fine: bool = False) -> dict[str, TopicMetadata]:
    """Metadata of the named topics.

    Raises:
        KafkaError: one does not exist or cannot be described.
    """
    topics = client.metadata(names).topics
    for name in names:
        topic = topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if code == ErrorCode.NONE or (missing_is_fine and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            continue
        raise KafkaError(code, f"topic {name}")
    return topics


def _described(client: Client, name: str, all_configs: bool) -> dict[str, Any]:
    from appliance.client.results import TOPIC_RESOURCE, ConfigResource

    topic = require_topics(client, [name])[name]
    resource = ConfigResource(TOPIC_RESOURCE, name)
    entries = client.describe_configs([resource])[resource]
    led = [TopicPartition(name, number) for number, part in topic.partitions.items() if part.leader >= 0]
    starts = client.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    ends = client.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    if len(led) < len(topic.partitions):
        print(f"topic {name}: {len(topic.partitions) - len(led)} partitions have no leader", file=sys.stderr)
    return {
        "topic": name,
        "topic_id": uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {
            entry.name: entry.value for entry in entries.values() if all_configs or entry.source == _TOPIC_SOURCE
        },
        "partitions": [
            {
                "partition": number,
                "leader": part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "start": starts[TopicPartition(name, number)].offset if part.leader >= 0 else None,
                "end": ends[TopicPartition(name, number)].offset if part.leader >= 0 else None,
            }
            for number, part in sorted(topic.partitions.items())
        ],
    }


def _replicas(topic: TopicMetadata) -> int:
    return max((len(part.replicas) for part in topic.partitions.values()), default=0)
