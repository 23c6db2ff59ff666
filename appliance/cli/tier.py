"""`appliance tier`: look into the object store itself; no broker is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.base.errors import UserError
from appliance.base.ids import uuid_to_text
from appliance.cli.output import Format, OutputFormat, print_json, print_table

if TYPE_CHECKING:
    from appliance.tiering.verify import PartitionReport, TierReport

EXIT_NOT_WHOLE = 1
EXIT_NOT_REACHABLE = 4

app = typer.Typer(help="Look into the object store.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def tier() -> None:
    """Commands on the tier; more than one is to come, so that `verify` keeps its name."""


@app.command()
def verify(
    object_store: Annotated[str, typer.Argument(help="A folder, file://… or s3://bucket/prefix.")],
    read_data: Annotated[bool, typer.Option(help="Read every record; without, only indexes and sizes.")] = True,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare the tier with its manifests: no holes, no orphans, checksums kept. Ends with 1 if it is not whole.

    Only reads; brokers may write meanwhile.
    """
    from appliance.base.object_store import ObjectStoreError
    from appliance.tiering.stores import open_store
    from appliance.tiering.verify import verify_tier

    try:
        report = verify_tier(open_store(object_store), read_data=read_data)
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
    for problem in report.problems:
        print(f"{problem.kind}: {problem.name}: {problem.detail}")
    print("whole" if report.is_whole else f"{len(report.problems)} problems")
