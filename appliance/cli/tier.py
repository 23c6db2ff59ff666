"""`appliance tier`: look into the object store itself; no broker is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.base.errors import UserError
from appliance.base.ids import uuid_to_text
from appliance.cli.output import Format, OutputFormat, print_json, print_table
from appliance.cli.tier_restore import restore

if TYPE_CHECKING:
    from appliance.base.object_store import ObjectStore
    from appliance.tiering.verify import PartitionReport, TierReport

EXIT_NOT_WHOLE = 1
EXIT_NOT_REACHABLE = 4

app = typer.Typer(help="Look into the object store.", no_args_is_help=True, rich_markup_mode=None)


app.command()(restore)

Store = Annotated[str, typer.Argument(help="A folder, s3://bucket/prefix, gs://…, abfs://… or another URL of fsspec.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; may be repeated.")]


@app.command("ls")
def list_tier(
    object_store: Store,
    topic: Topics = None,
    objects: Annotated[bool, typer.Option("--objects", help="Each object of each partition.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List what the tier holds, by its manifests."""
    from appliance.base.object_store import ObjectStoreError
    from appliance.tiering.manifest import CorruptManifest
    from appliance.tiering.stores import open_store

    try:
        rows = _rows(open_store(object_store), topic, objects)
    except ObjectStoreError as error:
        raise UserError(f"object store {object_store}: {error}", EXIT_NOT_REACHABLE) from error
    except CorruptManifest as error:
        raise UserError(f"object store {object_store}: {error}: see `tier verify`", EXIT_NOT_WHOLE) from error
    if output is Format.JSON:
        print_json(rows)
        return
    keys = ("start_offset", "end_offset", "segments", "size_bytes", "copy", "garbage")
    print_table(
        ("PARTITION", "START", "END", "SEGMENTS", "BYTES", "COPY", "GARBAGE"),
        [(f"{row['topic']}-{row['partition']}", *(row[key] for key in keys)) for row in rows],
    )
    print_table(
        ("OBJECT OF", "START", "END", "BYTES", "NAME"),
        [
            (
                f"{row['topic']}-{row['partition']}",
                *(one[k] for k in ("start_offset", "end_offset", "size_bytes", "name")),
            )
            for row in rows
            for one in row.get("objects", ())
        ],
    )


def _rows(store: ObjectStore, topics: list[str] | None, objects: bool) -> list[dict[str, Any]]:
    from appliance.base.clock import SystemClock
    from appliance.tiering.manifest import SegmentItem
    from appliance.tiering.tier_cache import TierCache
    from appliance.tiering.verify import read_manifests

    cache = TierCache(store, SystemClock(), max_age_ms=0)
    rows = []
    for manifest in read_manifests(store):
        if topics and manifest.topic not in topics:
            continue
        row: dict[str, Any] = {
            "topic": manifest.topic,
            "topic_id": uuid_to_text(manifest.topic_id),
            "partition": manifest.partition,
            "version": manifest.version,
            "leader_epoch": manifest.leader_epoch,
            "start_offset": manifest.start_offset,
            "end_offset": manifest.end_offset,
            "segments": sum(getattr(item, "segments", 1) for item in manifest.items),
            "size_bytes": manifest.tiered_bytes,
            "copy": manifest.copy,
            "garbage": len(manifest.garbage),
        }
        if objects:
            row["objects"] = [
                {"start_offset": one.start, "end_offset": one.end, "size_bytes": one.size, "name": one.name}
                for one in cache.leaves(manifest, manifest.start_offset)
                if isinstance(one, SegmentItem)
            ]
        rows.append(row)
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


@app.command()
def verify(
    object_store: Store,
    read_data: Annotated[bool, typer.Option(help="Read every record; without, only indexes and sizes.")] = True,
    topic: Topics = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare the tier with its manifests and the metadata: holes, overlaps, orphans, missing and damaged objects.

    Ends with 1 if it is not whole. Only reads; brokers may write meanwhile.
    """
    from appliance.base.object_store import ObjectStoreError
    from appliance.broker_actors.metadata_offline import read_image
    from appliance.controller.commits import LogCorrupt
    from appliance.tiering.stores import open_store
    from appliance.tiering.verify import KnownTopics, compare_topics, verify_tier

    store = open_store(object_store)
    try:
        # First what is there, then the metadata: a topic that comes meanwhile must not look unknown.
        report = verify_tier(store, read_data=read_data, topics=topic or ())
        image = read_image(store)
        if image is not None:
            names = {topic_id: one.name for topic_id, one in image.topics_by_id.items()}
            compare_topics(report, KnownTopics(names, image.deleted_topics))
    except LogCorrupt as error:
        raise UserError(f"the metadata log in {object_store} is damaged: {error}", EXIT_NOT_WHOLE) from error
    except ObjectStoreError as error:
        raise UserError(f"object store {object_store}: {error}", EXIT_NOT_REACHABLE) from error
    if output is Format.JSON:
        print_json(_document(report))
    else:
        _print(report)
    if not report.is_whole:
        raise typer.Exit(EXIT_NOT_WHOLE)


def _document(report: TierReport) -> dict[str, Any]:
    return {
        "whole": report.is_whole,
        "partitions": [_partition(partition) for partition in report.partitions],
        "strangers": [problem.name for problem in report.strangers],
    }


def _partition(report: PartitionReport) -> dict[str, Any]:
    return {
        "topic": report.topic,
        "topic_id": uuid_to_text(report.topic_id),
        "partition": report.partition,
        "version": report.version,
        "leader_epoch": report.leader_epoch,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "segments": report.segments,
        "records": report.records,
        "size_bytes": report.size_bytes,
        "garbage": report.garbage,
        "in_flight": report.in_flight,
        "deleted": report.is_deleted,
        "problems": [{"kind": one.kind, "name": one.name, "detail": one.detail} for one in report.problems],
    }


def _print(report: TierReport) -> None:
    print_table(
        ("PARTITION", "START", "END", "SEGMENTS", "RECORDS", "BYTES", "PROBLEMS"),
        [
            (
                f"{one.topic or uuid_to_text(one.topic_id)}-{one.partition}",
                one.start_offset,
                one.end_offset,
                one.segments,
                one.records,
                one.size_bytes,
                len(one.problems),
            )
            for one in report.partitions
        ],
    )
    for one in report.partitions:
        if one.is_deleted:
            print(f"deleted: {one.topic}-{one.partition}: its objects are being removed")
    for problem in report.problems:
        print(f"{problem.kind}: {problem.name}: {problem.detail}")
    print("whole" if report.is_whole else f"{len(report.problems)} problems")
