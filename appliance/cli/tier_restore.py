"""`appliance tier restore`: partitions whose logs are lost come back from the object store.

The metadata lies in the bucket too, so the way back is: `appliance up` over it with empty disks, then this command. It
elects what nobody may lead because all copies are gone; each leader reads the tier before it serves. Where even the
metadata is gone it is begun anew first, from the names in the tier, before `appliance up`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.base.ids import TopicPartition
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, print_json, print_table
from appliance.cli.topics import client_of

if TYPE_CHECKING:
    from appliance.base.object_store import ObjectStore
    from appliance.client.client import Client
    from appliance.controller.image import MetadataImage, PartitionState, TopicState

EXIT_NOT_REACHABLE = 4
POLL_S = 0.3
EARLIEST, LATEST = -2, -1
UNCLEAN = 1
PARTITIONS_PER_ELECTION = 1_000
REBUILT_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Of topics whose own configs are lost: nothing is deleted before somebody says what may be."""
GROUPS_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}
SHARES_CONFIGS = {"cleanup.policy": "delete", "remote.storage.enable": "false", **REBUILT_CONFIGS}
GROUPS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


@dataclass(slots=True)
class _Row:
    """One partition that was lost, and what has come of it."""

    topic: str
    partition: int
    source: str
    """`tier`, `backup of groups`, `nothing`."""
    tiered_end: int = -1
    start_offset: int = -1
    end_offset: int = -1
    result: str = ""


def restore(
    object_store: Annotated[
        str, typer.Argument(help="A folder, s3://bucket/prefix, gs://…, abfs://… or another URL of fsspec.")
    ],
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; may be repeated.")] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="Also what the object store does not hold: it begins anew, empty.")
    ] = False,
    brokers: Annotated[
        list[int] | None,
        typer.Option("--broker", help="If the metadata is lost, too: a broker for the topics; may be repeated."),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", "-r", min=1, help="With --broker: of each partition.")] = 3,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait until all is served.")] = 300.0,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Bring partitions back whose logs are lost: from the object store, with their offsets and groups' commits.

    Ends with 1 if something could not be brought back.
    """
    from appliance.base.object_store import ObjectStoreError
    from appliance.broker_actors.metadata_offline import read_image
    from appliance.controller.commits import LogCorrupt
    from appliance.tiering.stores import open_store

    store = open_store(object_store)
    try:
        image = read_image(store)
        if image is None:
            _begin_anew(store, brokers or [], replicas, output)
            return
        rows = _lost(store, image, topic)
    except ObjectStoreError as error:
        raise UserError(f"object store {object_store}: {error}", EXIT_NOT_REACHABLE) from error
    except LogCorrupt as error:
        raise UserError(f"the metadata log in {object_store} is damaged: {error}", exit_code=1) from error
    wanted = [row for row in rows if empty or row.source != "nothing"]
    for row in rows:
        if row not in wanted:
            row.result = "not in the object store: --empty lets it begin anew"
    if wanted:
        with client_of(bootstrap_server) as client:
            _elect(client, wanted)
            _wait(client, wanted, timeout_s)
    _print(rows, output)
    if any(row.result != "restored" for row in rows):
        raise typer.Exit(1)


def _lost(store: ObjectStore, image: MetadataImage, only: Sequence[str] | None) -> list[_Row]:
    """Partitions of which all copies are lost; those of internal topics first. Raises: ObjectStoreError."""
    rows = []
    first = (GROUPS, TRANSACTIONS, SHARES)
    for name, topic in sorted(image.topics.items(), key=lambda item: (item[0] not in first, item[0])):
        if only and name not in only:
            continue
        rows += [_row(store, topic, partition) for partition in topic.partitions if partition.data_lost]
    return rows


def _row(store: ObjectStore, topic: TopicState, partition: PartitionState) -> _Row:
    from appliance.base.object_store import ObjectNotFound
    from appliance.tiering.manifest import CorruptManifest, parse_manifest
    from appliance.tiering.names import manifest_name

    row = _Row(topic.name, partition.partition, "nothing")
    if topic.name in (GROUPS, SHARES):
        row.source = "backup of groups"
        return row
    if topic.name == TRANSACTIONS:
        # Transactions that the tier knows as decided are ended from there; producers begin anew.
        row.source = "tier"
        return row
    try:
        manifest = parse_manifest(store.get(manifest_name(topic.topic_id, partition.partition)).data)
        row.source, row.tiered_end = "tier", manifest.end_offset
    except ObjectNotFound:
        pass
    except CorruptManifest as error:
        raise UserError(f"{topic.name}-{partition.partition}: {error}", exit_code=1) from error
    return row


def _elect(client: Client, rows: Sequence[_Row]) -> None:
    from appliance.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    by_place = {(row.topic, row.partition): row for row in rows}
    for first in range(0, len(rows), PARTITIONS_PER_ELECTION):
        topics: dict[str, TopicPartitions] = {}
        for row in rows[first : first + PARTITIONS_PER_ELECTION]:
            topics.setdefault(row.topic, TopicPartitions(topic=row.topic)).partitions.append(row.partition)
        answer = client.call(ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=list(topics.values())))
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    by_place[topic.topic, result.partition_id].result = ErrorCode(result.error_code).name


def _wait(client: Client, rows: Sequence[_Row], timeout_s: float) -> None:
    """Until each is served, by a leader that has read the tier."""
    deadline = time.monotonic() + timeout_s
    waiting = [row for row in rows if not row.result]
    while waiting:
        places = [TopicPartition(row.topic, row.partition) for row in waiting]
        try:
            starts = client.list_offsets(dict.fromkeys(places, EARLIEST))
            ends = client.list_offsets(dict.fromkeys(places, LATEST))
        except (KafkaError, OSError) as error:
            if time.monotonic() > deadline:
                for row in waiting:
                    row.result = f"not served within {timeout_s:.0f} s: {error}"
                return
            time.sleep(POLL_S)
            continue
        for row, place in zip(waiting, places, strict=True):
            row.start_offset, row.end_offset, row.result = starts[place].offset, ends[place].offset, "restored"
        return


def _begin_anew(store: ObjectStore, brokers: Sequence[int], replicas: int, output: Format) -> None:
    """The metadata is lost: write what the tier still knows of it. Raises: ObjectStoreError, LogCorrupt."""
    from appliance.broker_actors.metadata_offline import FoundPartition, rebuild
    from appliance.coordinator.backup import parse_backup
    from appliance.tiering.names import GROUPS as BACKUPS
    from appliance.tiering.verify import read_manifests

    manifests = list(read_manifests(store))
    backups = [parse_backup(store.get(row.name).data)[0] for row in store.list(BACKUPS)]
    if not manifests and not backups:
        raise UserError(f"{store.url} holds neither metadata nor a tier", exit_code=1)
    if not brokers:
        raise UserError("the metadata is lost, too: say with --broker which brokers shall hold the topics", exit_code=2)
    names: dict[str, set[object]] = {}
    for name, topic_id in [(m.topic, m.topic_id) for m in manifests] + [(b.topic, b.topic_id) for b in backups]:
        names.setdefault(name, set()).add(topic_id)
    twice = sorted(name for name, ids in names.items() if len(ids) > 1)
    if twice:
        raise UserError(
            f"the tier holds several topics of the same name, one of which was deleted: {', '.join(twice)}",
            exit_code=1,
        )
    found = [FoundPartition(one.topic, one.topic_id, one.partition, one.leader_epoch) for one in manifests]
    found += [
        FoundPartition(one.topic, one.topic_id, one.partition, one.leader_epoch, one.partitions) for one in backups
    ]
    of_internal = {GROUPS: GROUPS_CONFIGS, SHARES: SHARES_CONFIGS}
    configs = {name: of_internal.get(name, REBUILT_CONFIGS) for name in {one.topic for one in found}}
    image = rebuild(store, found, brokers, replicas, configs)
    if output is Format.JSON:
        print_json({"cluster_id": image.cluster_id, "rebuilt": sorted(image.topics)})
        return
    print(f"metadata of cluster {image.cluster_id} begun anew with {len(image.topics)} topics:")
    for name, topic in sorted(image.topics.items()):
        print(
            f"  {name}: {len(topic.partitions)} partitions, retention off, all other configs as the brokers have them"
        )
    print("start the brokers with `appliance up`, then restore again")


def _print(rows: Sequence[_Row], output: Format) -> None:
    if output is Format.JSON:
        print_json([_document(row) for row in rows])
        return
    print_table(
        ("PARTITION", "FROM", "TIERED TO", "START", "END", "RESULT"),
        [(f"{r.topic}-{r.partition}", r.source, r.tiered_end, r.start_offset, r.end_offset, r.result) for r in rows],
    )
    if not rows:
        print("nothing is lost", file=sys.stderr)


def _document(row: _Row) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "source": row.source,
        "tiered_end": row.tiered_end,
        "start_offset": row.start_offset,
        "end_offset": row.end_offset,
        "result": row.result,
    }
