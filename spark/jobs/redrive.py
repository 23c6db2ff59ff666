"""Send records of topics once more: a range of them to another topic, or dead letters back to where they came from.

A run first fixes a plan (ranges of offsets) in the folder of --state, then sends each range in one transaction. A run
that finds a plan unfinished finishes it with the same edges, the next one begins where the last one ended; so each
record is sent once for readers with read_committed, whenever a run died. Edges of a range are given with
--option startingOffsets=…, endingOffsets=…, startingTimestamp=… and the like.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from appliance.base.clock import SystemClock
from spark.jobs.common import Facts, arguments_of, main_of, options_of, run_job, servers_of
from spark.jobs.in_tasks import in_tasks
from spark.jobs.load_plan import LoadFolder, LoadRange
from spark.jobs.offline_load import plan_of
from spark.options import SourceOptions, parse_options
from spark.reading import read_split
from spark.sink_options import SinkOptions, parse_sink_options
from spark.sink_task import Row, write_exactly_once

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
ERRORS = "__connect.errors."
"""Kafka Connect's headers of dead letters begin so; those of the appliance's connectors, too."""
ERRORS_TOPIC = f"{ERRORS}topic"
FROM = "redriven.from"
"""The header that says where a record was read: topic-partition@offset."""
RECORDS_PER_RANGE = 50_000
"""Of one transaction, unless maxRecordsPerPartition says otherwise."""
RUN = "_load/run"


class NowhereToGo(Exception):
    """A record does not say where it came from, and no topic is given for such."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where records go."""

    topic: str | None
    """For all of them, or with `back` for those that do not say where they came from."""
    back: bool = False
    """To the topic that Kafka Connect's header of a dead letter names."""
    keep_timestamps: bool = False


def redrive(
    session: SparkSession,
    source: SourceOptions,
    sink: SinkOptions,
    to: Destination,
    state: str,
    dry_run: bool = False,
) -> Facts:
    """Finish the plan that an earlier run has left open, or make the next one and execute it.

    Raises:
        NowhereToGo: see there; nothing of that record's range is visible then.
        DataLoss: records were retired meanwhile, and `failOnDataLoss`.
    """
    folder = LoadFolder.of(state)
    most = source.max_records_per_partition or RECORDS_PER_RANGE
    plan, facts = plan_of(folder, dataclasses.replace(source, max_records_per_partition=most), dry_run=dry_run)
    if dry_run or not plan.ranges:
        return facts
    source = dataclasses.replace(source, object_store=plan.object_store or None)
    run, number = _run_of(folder), plan.number

    def send(item: bytes) -> int:
        index, each = msgspec.json.decode(item, type=tuple[int, LoadRange])
        rows = records_of(source, each, to)
        # The name is that of the range, so that whoever sends it again fences the one before and sees what is done.
        sent = write_exactly_once(sink, rows, f"spark-redrive-{run}-{index}", number)
        return -1 if sent is None else sent

    counts = in_tasks(session, [[msgspec.json.encode(pair)] for pair in enumerate(plan.ranges)], send)
    folder.close_plan(plan)
    sent = [count for count in counts if count >= 0]
    return {**facts, "records": sum(sent), "ranges_before": len(counts) - len(sent)}


def records_of(options: SourceOptions, each: LoadRange, to: Destination) -> Iterator[Row]:
    """The records of a range as a writer takes them, with where each goes. Raises: NowhereToGo, and as `read_split`."""
    split = each.split if options.object_store else dataclasses.replace(each.split, tier="hot")
    clock = SystemClock()
    for rows in read_split(options, COLUMNS, split):
        now_ms = clock.now_ms()
        times = rows["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
        cells = [rows[name].to_pylist() for name in ("key", "value", "offset", "headers")]
        for key, value, offset, headers, time_ms in zip(*cells, times, strict=True):
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            place = f"{split.tp}@{offset}"
            topic = _topic_of(pairs, to, place)
            if to.back:
                pairs = [pair for pair in pairs if not pair[0].startswith(ERRORS)]
            pairs.append((FROM, place.encode()))
            yield topic, None, (time_ms if to.keep_timestamps else now_ms, key, value, pairs)


def _topic_of(headers: Sequence[tuple[str, bytes | None]], to: Destination, place: str) -> str:
    named = [value for name, value in headers if name == ERRORS_TOPIC and value] if to.back else []
    if named:
        return named[-1].decode()
    if to.topic is None:
        raise NowhereToGo(f"{place} has no header {ERRORS_TOPIC}; give a topic for such records")
    return to.topic


def _run_of(folder: LoadFolder) -> str:
    """The name of all runs over one folder: two folders never take each other's work for their own."""
    if not folder.exists(RUN):
        folder.write_whole(RUN, uuid.uuid4().hex.encode())
    return folder.read(RUN).decode()


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("redrive", __doc__)
    parser.add_argument("--state", required=True, help="folder or URL where plans are kept")
    parser.add_argument("--to", metavar="TOPIC", help="where records go; with --back those that name no topic")
    parser.add_argument("--back", action="store_true", help=f"to the topic in the header {ERRORS_TOPIC}")
    parser.add_argument("--keep-timestamps", action="store_true", help="else records have the time of sending")
    chosen = parser.parse_args(arguments)
    if not chosen.to and not chosen.back:
        parser.error("--to or --back is needed")
    source = parse_options({"isolationLevel": "read_committed", **options_of(chosen)})
    # The topic of the marker; a group's offset may be of any.
    marker = chosen.to or chosen.topics.split(",")[0]
    sink = parse_sink_options({**servers_of(chosen), "topic": marker, "delivery": "exactly_once"})
    to = Destination(chosen.to, chosen.back, chosen.keep_timestamps)
    return run_job("redrive", chosen, lambda session: redrive(session, source, sink, to, chosen.state, chosen.dry_run))


if __name__ == "__main__":
    main_of(main)
