"""Load topics into Parquet files, from where the last run ended; each record once, however often a run dies."""

from __future__ import annotations

import dataclasses
import posixpath
import uuid
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

from appliance.base.ids import TopicPartition
from spark.decode import DEFAULT_COLUMNS, FIELDS
from spark.jobs.common import Facts, arguments_of, main_of, options_of, run_job
from spark.jobs.in_tasks import in_tasks
from spark.jobs.load_plan import LoadFolder, LoadPlan, LoadRange, tasks_of
from spark.options import EARLIEST, AtTimestamp, SourceOptions, parse_options
from spark.plan import resolve_ranges, spread
from spark.planning import bounds_of, connected, object_store_url, offsets_of, partitions_of, plan_range, topics_of
from spark.reading import read_split

UNITS = ("node", "topic", "partition", "range")
COLUMNS = (*DEFAULT_COLUMNS, "headers")


def offline_load(
    session: SparkSession, options: SourceOptions, out: str, unit: str = "range", dry_run: bool = False
) -> Facts:
    """Finish the plan that an earlier run has left open, or make the next one and execute it.

    Args:
        session, options: with what and what to read; the starting offsets are for partitions never loaded before.
        out: folder or URL.
        unit: how much one task does: a node, a topic, a partition or a range.
        dry_run: only say what the plan would be.

    Raises:
        DataLoss: offsets between two runs were retired, and `failOnDataLoss`.
    """
    folder = LoadFolder.of(out)
    plan, facts = plan_of(folder, options, dry_run=dry_run)
    if dry_run or not plan.ranges:
        return facts
    facts |= execute(session, options, out, plan, unit)
    folder.close_plan(plan)
    return facts


def plan_of(folder: LoadFolder, options: SourceOptions, *, dry_run: bool) -> tuple[LoadPlan, Facts]:
    """The plan that is open in a folder, or the next one, which is open from now on; and what is to be told of it."""
    plan, is_done = folder.last_plan()
    resumed = plan is not None and not is_done
    if plan is None or is_done:
        plan = make_plan(options, plan)
        if not dry_run and plan.ranges:
            folder.open_plan(plan)
    return plan, {
        "plan": plan.number,
        "resumed": resumed,
        "ranges": len(plan.ranges),
        "offsets": sum(each.end - each.start for each in plan.ranges),
    }


def make_plan(options: SourceOptions, last: LoadPlan | None) -> LoadPlan:
    """The next plan: from the ends of the last one to the ends that leaders tell now."""
    with connected(options) as client:
        cluster = client.metadata(None if options.subscribe_pattern else topics_of(options))
        bounds = bounds_of(client, options, partitions_of(options, cluster))
        ids = {tp.topic: cluster.topic_id(tp.topic) for tp in bounds}
        spec = offsets_of(client, options, options.starting_offsets, bounds)
        assert not isinstance(spec, AtTimestamp)
        known = {TopicPartition(t, p): end for t, row in last.ends.items() for p, end in row.items()} if last else {}
        starts = {tp: known.get(tp, spec.get(tp, EARLIEST) if isinstance(spec, dict) else spec) for tp in bounds}
        ranges = resolve_ranges(bounds, ids, starts, options.ending_offsets, options.fail_on_data_loss)
        nodes = {tp: cluster.leader_of(tp) for tp in bounds}
        url = object_store_url(options, client, cluster)
    splits = [split for range_ in ranges for split in plan_range(range_, options, url)]
    splits = spread(splits, options.min_partitions, options.max_records_per_partition)
    ends: dict[str, dict[int, int]] = {}
    for tp, end in sorted({**known, **{each.tp: each.end for each in ranges}}.items()):
        ends.setdefault(tp.topic, {})[tp.partition] = end
    made = [LoadRange(s.tp.topic, str(s.topic_id), s.tp.partition, s.start, s.end, nodes[s.tp]) for s in splits]
    return LoadPlan(last.number + 1 if last else 0, url, made, ends)


def execute(session: SparkSession, options: SourceOptions, out: str, plan: LoadPlan, unit: str) -> Facts:
    """Write the files of a plan that are not there yet."""
    tasks = tasks_of(plan.ranges, unit)
    options = dataclasses.replace(options, object_store=plan.object_store or None)

    def load(item: bytes) -> int:
        return load_range(options, out, msgspec.json.decode(item, type=LoadRange))

    counts = in_tasks(session, [[msgspec.json.encode(each) for each in task] for task in tasks], load)
    written = [count for count in counts if count >= 0]
    return {
        "tasks": len(tasks),
        "files": len(written),
        "files_before": len(counts) - len(written),
        "records": sum(written),
    }


def load_range(options: SourceOptions, out: str, each: LoadRange) -> int:
    """Write one file; how many records are in it, or -1 if it was there already."""
    folder = LoadFolder.of(out)
    if folder.exists(each.file):
        return -1
    place = posixpath.join(folder.path, each.file)
    folder.files.create_dir(posixpath.dirname(place), recursive=True)
    # Attempts do not share a name before the file is whole; what a dead one leaves begins with an underscore.
    draft = posixpath.join(posixpath.dirname(place), f"_{uuid.uuid4().hex}")
    schema = pa.schema([FIELDS[name] for name in COLUMNS])
    records = 0
    split = each.split if options.object_store else dataclasses.replace(each.split, tier="hot")
    with folder.files.open_output_stream(draft) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for rows in read_split(options, COLUMNS, split):
            writer.write_batch(rows)
            records += rows.num_rows
    folder.files.move(draft, place)
    return records


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("offline_load", __doc__)
    parser.add_argument("--out", required=True, help="folder, or URL such as s3://bucket/folder")
    parser.add_argument("--unit", choices=UNITS, default="range", help="how much one task loads")
    chosen = parser.parse_args(arguments)
    options = parse_options(options_of(chosen))
    return run_job(
        "offline_load",
        chosen,
        lambda session: offline_load(session, options, chosen.out, chosen.unit, chosen.dry_run),
    )


if __name__ == "__main__":
    main_of(main)
