"""`appliance cluster`: even the load, empty a broker, elect leaders, forget a broker that is gone."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, print_json, print_table
from appliance.cli.topics import client_of

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.cluster import ClusterMetadata
    from appliance.controller.balancer import Move, PartitionToBalance, Plan

app = typer.Typer(help="Even the load, elect leaders, forget brokers.", no_args_is_help=True, rich_markup_mode=None)

MOVES_PER_REQUEST = 200
POLL_S = 0.5
TOPIC_RESOURCE, BROKER_RESOURCE, SET, DELETE = 2, 4, 0, 1
PREFERRED, UNCLEAN = 0, 1


@app.command()
def rebalance(
    apply: Annotated[bool, typer.Option("--apply/--dry-run", help="Do it, or only say what would be done.")] = False,
    drain: Annotated[list[int] | None, typer.Option("--drain", help="A broker to empty; may be repeated.")] = None,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, help="Bytes a second that a broker copies at most meanwhile.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until all has been copied.")] = True,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Even replicas, bytes and leaders over the brokers, with few moves."""
    from appliance.controller.balancer import BrokerToBalance, CannotDrain, plan_balance

    if throttle is not None and not wait:
        raise typer.BadParameter(
            "a throttle is taken back when all is copied: it needs --wait", param_hint="--throttle"
        )
    with client_of(bootstrap_server) as client:
        cluster = client.metadata()
        moving = {(topic, number) for topic, number, *_ in _under_way(client)}
        brokers = [BrokerToBalance(b.broker_id, b.rack) for b in cluster.brokers.values()]
        try:
            plan = plan_balance(brokers, _partitions(client, cluster, moving), drain or ())
        except CannotDrain as error:
            raise UserError(str(error), exit_code=1) from None
        if output is Format.TEXT:
            _print_plan(plan, len(moving))
        if apply:
            _apply(client, plan, throttle, wait)
    if output is Format.JSON:
        print_json(_document(plan, applied=apply))
    elif apply:
        print("done" if wait else "begun")
    elif plan.moves:
        print("nothing has been changed: --apply does it")


@app.command()
def reassignments(bootstrap_server: Bootstrap = LOCAL_BROKER, output: OutputFormat = Format.TEXT) -> None:
    """Show the partitions whose replicas are being moved."""
    with client_of(bootstrap_server) as client:
        rows = _under_way(client)
    names = ("topic", "partition", "replicas", "adding", "removing")
    if output is Format.JSON:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table([name.upper() for name in names], rows)


@app.command("elect-leaders")
def elect_leaders(
    topics: Annotated[list[str] | None, typer.Argument(help="Their topics; all if none is named.")] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Any replica that lives, where nobody leads: records may be lost.")
    ] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Give leaderships back to the first replicas, or bring partitions back that nobody leads."""
    with client_of(bootstrap_server) as client:
        wanted = None
        if topics:
            known = client.metadata(topics).topics
            wanted = {name: sorted(known[name].partitions) for name in topics if name in known}
        rows = _elect(client, UNCLEAN if unclean else PREFERRED, wanted)
    failed = [row for row in rows if row["error"] not in ("NONE", "ELECTION_NOT_NEEDED")]
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table(("PARTITION", "RESULT"), [(f"{row['topic']}-{row['partition']}", row["error"]) for row in rows])
    if failed:
        raise typer.Exit(1)


@app.command()
def unregister(
    broker_id: Annotated[int, typer.Argument(help="Of a broker that has been stopped and does not come back.")],
    bootstrap_server: Bootstrap = LOCAL_BROKER,
) -> None:
    """Forget a broker. Drain it first, or its replicas stay missing."""
    from appliance.wire.messages.unregister_broker import UnregisterBrokerRequest

    with client_of(bootstrap_server) as client:
        answer = client.call(UnregisterBrokerRequest(broker_id=broker_id))
    _check(answer.error_code, answer.error_message)
    print(f"broker {broker_id} is not known any more")


@app.command()
def clients(
    instance: Annotated[
        str | None, typer.Option("--instance", help="Show what this client instance pushed last.")
    ] = None,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show the clients that tell of themselves (KIP-714), and their metrics."""
    from appliance.cli.clients import show_clients

    show_clients(bootstrap_server, instance, output)


def _partitions(client: Client, cluster: ClusterMetadata, moving: set[tuple[str, int]]) -> list[PartitionToBalance]:
    """All but those that move already."""
    from appliance.controller.balancer import PartitionToBalance

    sizes = _sizes(client, cluster)
    return [
        PartitionToBalance(name, number, part.replicas, sizes.get((name, number), 0))
        for name, topic in sorted(cluster.topics.items())
        for number, part in sorted(topic.partitions.items())
        if (name, number) not in moving
    ]


def _sizes(client: Client, cluster: ClusterMetadata) -> dict[tuple[str, int], int]:
    """Bytes of one replica, the largest that any broker tells of; brokers that do not answer are passed over."""
    from appliance.wire.messages.describe_log_dirs import DescribeLogDirsRequest

    sizes: dict[tuple[str, int], int] = {}
    for broker_id in cluster.brokers:
        try:
            answer = client.call(DescribeLogDirsRequest(topics=None), broker_id)
        except (OSError, KafkaError) as error:
            print(f"broker {broker_id} does not tell its sizes: {error}", file=sys.stderr)
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for part in topic.partitions:
                    key = (topic.name, part.partition_index)
                    sizes[key] = max(sizes.get(key, 0), part.partition_size)
    return sizes


def _apply(client: Client, plan: Plan, throttle: int | None, wait: bool) -> None:
    copied = [move for move in plan.moves if move.added]
    if throttle is not None and copied:
        _set_throttle(client, copied, str(throttle))
    try:
        _reassign(client, plan.moves)
        if wait:
            _wait_until_done(client, plan.moves)
    finally:
        if throttle is not None and copied:
            _set_throttle(client, copied, None)
    touched: dict[str, list[int]] = defaultdict(list)
    for move in plan.moves:
        touched[move.topic].append(move.partition)
    if touched:
        _elect(client, PREFERRED, touched)


def _reassign(client: Client, moves: list[Move]) -> None:
    from appliance.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    for first in range(0, len(moves), MOVES_PER_REQUEST):
        topics: dict[str, ReassignableTopic] = {}
        for move in moves[first : first + MOVES_PER_REQUEST]:
            topic = topics.setdefault(move.topic, ReassignableTopic(name=move.topic))
            topic.partitions.append(ReassignablePartition(partition_index=move.partition, replicas=list(move.after)))
        answer = client.call(AlterPartitionReassignmentsRequest(topics=list(topics.values())))
        _check(answer.error_code, answer.error_message)
        for topic_row in answer.responses:
            for row in topic_row.partitions:
                _check(row.error_code, f"{topic_row.name}-{row.partition_index}: {row.error_message or ''}")


def _wait_until_done(client: Client, moves: list[Move]) -> None:
    mine = {(move.topic, move.partition) for move in moves}
    shown = -1
    while left := sum((topic, number) in mine for topic, number, *_ in _under_way(client)):
        if left != shown and sys.stderr.isatty():
            print(f"{left} partitions are being copied", file=sys.stderr)
        shown = left
        time.sleep(POLL_S)


def _under_way(client: Client) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    """Topic, partition, replicas, adding and removing of all that is being reassigned."""
    from appliance.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

    answer = client.call(ListPartitionReassignmentsRequest(topics=None))
    _check(answer.error_code, answer.error_message)
    return [
        (topic.name, row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    ]


def _elect(client: Client, kind: int, wanted: dict[str, list[int]] | None) -> list[dict[str, Any]]:
    from appliance.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    topics = None
    if wanted is not None:
        topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in wanted.items()]
    answer = client.call(ElectLeadersRequest(election_type=kind, topic_partitions=topics))
    _check(answer.error_code, None)
    return [
        {"topic": topic.topic, "partition": row.partition_id, "error": ErrorCode(row.error_code).name}
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


def _set_throttle(client: Client, moves: list[Move], rate: str | None) -> None:
    """For these moves, on all brokers (KIP-73); what an operator had set for all before is not kept."""
    from appliance.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    def entry(key: str, value: str) -> AlterableConfig:
        if rate is None:
            return AlterableConfig(name=key, config_operation=DELETE, value=None)
        return AlterableConfig(name=key, config_operation=SET, value=value)

    leading: dict[str, list[str]] = defaultdict(list)
    following: dict[str, list[str]] = defaultdict(list)
    for move in moves:
        leading[move.topic] += [f"{move.partition}:{broker_id}" for broker_id in move.before]
        following[move.topic] += [f"{move.partition}:{broker_id}" for broker_id in move.added]
    rates = [entry(f"{side}.replication.throttled.rate", rate or "") for side in ("leader", "follower")]
    resources = [AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="", configs=rates)]
    for topic in leading:
        lists = [
            entry("leader.replication.throttled.replicas", ",".join(leading[topic])),
            entry("follower.replication.throttled.replicas", ",".join(following[topic])),
        ]
        resources.append(AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=lists))
    for row in client.call(IncrementalAlterConfigsRequest(resources=resources)).responses:
        _check(row.error_code, row.error_message)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), message or None)


def _print_plan(plan: Plan, moving: int) -> None:
    if moving:
        print(f"{moving} partitions are being moved already and left alone")
    if not plan.moves:
        print("the load is even")
    print_table(
        ("PARTITION", "NOW", "THEN", "BYTES"),
        [(f"{m.topic}-{m.partition}", _ids(m.before), _ids(m.after), m.bytes_to_copy) for m in plan.moves],
    )
    changed: Callable[[dict[int, int], dict[int, int], int], str] = lambda before, after, b: (  # noqa: E731
        f"{before.get(b, 0)} -> {after.get(b, 0)}"
    )
    print_table(
        ("BROKER", "REPLICAS", "LEADS", "BYTES"),
        [
            (
                b,
                changed(plan.replicas_before, plan.replicas_after, b),
                changed(plan.leaders_before, plan.leaders_after, b),
                changed(plan.bytes_before, plan.bytes_after, b),
            )
            for b in sorted(plan.replicas_after)
        ],
    )


def _document(plan: Plan, *, applied: bool) -> dict[str, Any]:
    return {
        "applied": applied,
        "bytes_to_copy": plan.bytes_to_copy,
        "moves": [
            {"topic": m.topic, "partition": m.partition, "replicas": list(m.before), "target": list(m.after)}
            for m in plan.moves
        ],
        "brokers": [
            {
                "broker_id": b,
                "replicas": [plan.replicas_before.get(b, 0), plan.replicas_after[b]],
                "leads": [plan.leaders_before.get(b, 0), plan.leaders_after.get(b, 0)],
                "bytes": [plan.bytes_before.get(b, 0), plan.bytes_after.get(b, 0)],
            }
            for b in sorted(plan.replicas_after)
        ],
    }


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))
