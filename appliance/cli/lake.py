"""`appliance lake`: what topics have become in the lake. Only the object store is asked."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from appliance.base.errors import UserError
from appliance.cli.output import Format, OutputFormat, print_json, print_table
from appliance.cli.tier import EXIT_NOT_REACHABLE, Store, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from appliance.base.object_store import ObjectStore
    from appliance.tiering.lake.names import Output

Result = TypeVar("Result")

EXIT_FAILED = 1

app = typer.Typer(help="Topics as files of rows.", no_args_is_help=True, rich_markup_mode=None)


@app.command("ls")
def list_lake(
    object_store: Store,
    topic: Topics = None,
    files: Annotated[bool, typer.Option("--files", help="Each file that counts.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List what the lake holds, by its ledgers, and how far it lags behind the tier."""
    rows = _guarded(object_store, lambda store: lake_rows(store, topic, files))
    if output is Format.JSON:
        print_json(rows)
        return
    keys = ("output", "next_offset", "lag", "rows", "dead_letters", "files", "plan")
    print_table(
        ("PARTITION", "OUTPUT", "NEXT OFFSET", "LAG", "ROWS", "DEAD LETTERS", "FILES", "PLAN"),
        [(f"{row['topic']}-{row['partition']}", *(row[key] for key in keys)) for row in rows],
    )
    print_table(
        ("FILE OF", "START", "END", "ROWS", "BYTES", "NAME"),
        [
            (f"{row['topic']}-{row['partition']}", *(one[key] for key in ("start", "end", "rows", "size", "name")))
            for row in rows
            for one in row.get("file_list", ())
        ],
    )


def lake_of_store(object_store: str) -> list[dict[str, Any]]:
    """For `appliance status --lake`."""
    return _guarded(object_store, lake_rows)


def lake_rows(store: ObjectStore, topics: list[str] | None = None, files: bool = False) -> list[dict[str, Any]]:
    """One row for each partition with lake output. Raises: ObjectStoreError, CorruptLedger, CorruptManifest."""
    from appliance.tiering.lake.outputs import files_of, outputs_of, read_ledgers
    from appliance.tiering.reader import TierReader

    reader = TierReader(store)
    rows = []
    for output in outputs_of(store):
        for ledger in read_ledgers(store, output):
            if topics and ledger.topic not in topics:
                continue
            manifest = reader.manifest(ledger.topic_id, ledger.partition)
            row: dict[str, Any] = {
                "topic": ledger.topic,
                "partition": ledger.partition,
                "output": ledger.output,
                "next_offset": ledger.next_offset,
                "lag": max(0, manifest.end_offset - ledger.next_offset) if manifest is not None else 0,
                "rows": ledger.rows,
                "dead_letters": ledger.dead,
                "files": ledger.file_count,
                "plan": f"{ledger.plan.no}: {ledger.plan.start} to {ledger.plan.end - 1}" if ledger.plan else "-",
                "schema": ledger.schema,
                "skipped": [list(one) for one in ledger.skipped],
            }
            if files:
                row["file_list"] = [one._asdict() for one in files_of(store, output, ledger)]
            rows.append(row)
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


@app.command()
def verify(
    object_store: Store,
    read_data: Annotated[bool, typer.Option(help="Compare every row with the tier; without, only names and sizes.")] = (
        True
    ),
    topic: Topics = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare files with ledgers and rows with the tier: each record in exactly one file. Ends with 1 if not."""
    from appliance.tiering.lake.outputs import outputs_of
    from appliance.tiering.lake.verify import verify_output

    def found(store: ObjectStore) -> list[dict[str, Any]]:
        return [
            {
                "topic": one.topic,
                "partition": one.partition,
                "output": one.output,
                "next_offset": one.next_offset,
                "tiered_end": one.tiered_end,
                "rows": one.rows,
                "dead_letters": one.dead,
                "files": one.files,
                "in_flight": one.in_flight,
                "skipped": [list(each) for each in one.skipped],
                "problems": [{"kind": each.kind, "name": each.name, "detail": each.detail} for each in one.problems],
            }
            for each_output in outputs_of(store)
            for one in verify_output(store, each_output, read_data=read_data)
            if not topic or one.topic in topic
        ]

    rows = _guarded(object_store, found)
    problems = [problem for row in rows for problem in row["problems"]]
    if output is Format.JSON:
        print_json({"whole": not problems, "partitions": rows})
    else:
        keys = ("next_offset", "tiered_end", "rows", "dead_letters", "files")
        print_table(
            ("PARTITION", "NEXT OFFSET", "TIERED END", "ROWS", "DEAD LETTERS", "FILES", "PROBLEMS"),
            [(f"{row['topic']}-{row['partition']}", *(row[key] for key in keys), len(row["problems"])) for row in rows],
        )
        for problem in problems:
            print(f"{problem['kind']}: {problem['name']}: {problem['detail']}")
        print(f"{len(problems)} problems" if problems else "whole")
    if problems:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def rebuild(
    object_store: Store,
    topic: Annotated[str, typer.Argument(help="The topic whose files are to be made anew.")],
) -> None:
    """Begin a new output of a topic, which the lake service makes from the tier's first record on.

    The one before stays as it is until `lake drop`. May be repeated.
    """
    from appliance.tiering.lake.outputs import begin_output

    def begin(store: ObjectStore) -> Output:
        return begin_output(store, _topic_id(store, topic))

    print(f"{topic}: the output is {_guarded(object_store, begin)} from now on")


@app.command()
def drop(object_store: Store, topic: Annotated[str, typer.Argument(help="The topic.")]) -> None:
    """Delete a topic's outputs that do not count any more."""
    from appliance.tiering.lake.names import Output
    from appliance.tiering.lake.outputs import current_output, drop_output

    def dropped(store: ObjectStore) -> int:
        topic_id = _topic_id(store, topic)
        current = current_output(store, topic_id).output
        return sum(drop_output(store, Output(topic_id, number)) for number in range(current.generation))

    print(f"{topic}: {_guarded(object_store, dropped)} objects deleted")


def _topic_id(store: ObjectStore, topic: str) -> uuid.UUID:
    """By the metadata, else by the tier's manifests."""
    from appliance.broker_actors.metadata_offline import read_image
    from appliance.tiering.verify import read_manifests

    image = read_image(store)
    if image is not None:
        for topic_id, one in image.topics_by_id.items():
            if one.name == topic:
                return topic_id
    for manifest in read_manifests(store):
        if manifest.topic == topic:
            return manifest.topic_id
    raise UserError(f"the object store knows no topic {topic}", EXIT_FAILED)


def _guarded(object_store: str, work: Callable[[ObjectStore], Result]) -> Result:
    from appliance.base.object_store import ETagMismatch, ObjectExists, ObjectStoreError
    from appliance.controller.commits import LogCorrupt
    from appliance.tiering.lake.ledger import CorruptLedger
    from appliance.tiering.manifest import CorruptManifest
    from appliance.tiering.stores import open_store

    try:
        return work(open_store(object_store))
    except (ObjectExists, ETagMismatch) as error:
        raise UserError(f"somebody else was faster: {error}", EXIT_FAILED) from error
    except ObjectStoreError as error:
        raise UserError(f"object store {object_store}: {error}", EXIT_NOT_REACHABLE) from error
    except (CorruptLedger, CorruptManifest, LogCorrupt) as error:
        raise UserError(f"object store {object_store}: {error}", EXIT_FAILED) from error
