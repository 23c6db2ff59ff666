"""Join a stream with a table, partition by partition and without a shuffle: both topics are partitioned alike.

The table is a topic that stands for the latest value of each key. A task reads the partition of the table that goes
with its part of the stream, keeps it for the next micro-batches and reads what is new. Topics of other keys or
partition counts are re-keyed first, with the job `pipeline`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from appliance.base.ids import TopicPartition
from spark.jobs.common import (
    Facts,
    arguments_of,
    main_of,
    options_of,
    read_stream,
    run_job,
    run_stream,
    servers_of,
    stream_arguments,
    to_parquet,
    to_topic,
)
from spark.jobs.table_state import TablePartition
from spark.options import SourceOptions, parse_options
from spark.plan import AUTO, HOT, Split
from spark.planning import bounds_of, connected, object_store_url, partitions_of, topics_of
from spark.reading import read_split

HOWS = ("inner", "left_outer")
TABLE_COLUMNS = ("key", "value", "offset", "timestamp")
TABLES_MAX = 64
"""Partitions of tables that one worker process keeps."""


class NotCoPartitioned(ValueError):
    """The topics have different numbers of partitions: equal keys do not meet."""


def join_table(stream: DataFrame, table: SourceOptions, how: str = "inner", as_of: bool = False) -> DataFrame:
    """The stream's columns, and `table_value` and `table_timestamp`.

    Args:
        stream: as `format("appliance")` reads it, with key, partition and timestamp; not shuffled.
        table: one topic, of as many partitions as the stream's, with keys partitioned alike.
        how: `inner` leaves out records that find nothing, `left_outer` gives them nulls.
        as_of: join with what held at the record's own time, so that a replay finds the same as long as no record of
            the table comes later than those that it is for; else with the latest that is there when the task runs.
    """
    schema = f"{stream.schema.toDDL()}, table_value binary, table_timestamp timestamp"
    return stream.mapInArrow(_joiner(table, how, as_of), schema)


def table_options(servers: Mapping[str, str], topic: str) -> SourceOptions:
    """How a table is read: what is committed, all of it."""
    return parse_options({**servers, "subscribe": topic, "isolationLevel": "read_committed"})


def check_co_partitioned(stream: SourceOptions, table: SourceOptions) -> None:
    """Raises: NotCoPartitioned; KafkaError: a topic is not there."""
    counts = {}
    for options in (stream, table):
        with connected(options) as client:
            cluster = client.metadata(topics_of(options))
            for tp in partitions_of(options, cluster):
                counts[tp.topic] = len(cluster.topics[tp.topic].partitions)
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{topic} has {count} partitions" for topic, count in sorted(counts.items()))
        raise NotCoPartitioned(f"{told}; the job pipeline re-keys into a topic of as many")


def _joiner(
    table: SourceOptions, how: str, as_of: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fresh: dict[int, TablePartition] = {}
        for batch in batches:
            keys, numbers = batch["key"].to_pylist(), batch["partition"].to_pylist()
            times = batch["timestamp"].cast(pa.int64()).to_pylist()
            for number in sorted(set(numbers) - fresh.keys()):
                fresh[number] = table_partition(table, number, as_of)
            cells = [fresh[n].at(key, time_us) for key, n, time_us in zip(keys, numbers, times, strict=True)]
            joined = pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    pa.array([cell and cell.value for cell in cells], pa.binary()),
                    pa.array([cell and cell.time_us for cell in cells], pa.timestamp("us", tz="UTC")),
                ],
                names=[*batch.schema.names, "table_value", "table_timestamp"],
            )
            yield joined if how == "left_outer" else joined.filter(pa.array(np.array([c is not None for c in cells])))

    return join


_tables: dict[tuple[SourceOptions, int, bool], TablePartition] = {}
"""What this worker process has read; Spark keeps workers between micro-batches."""


def table_partition(options: SourceOptions, number: int, as_of: bool) -> TablePartition:
    """A partition of the table as it is now. Raises: TableTooLarge, and as `read_split`."""
    place = (options, number, as_of)
    table = _tables.pop(place, None) or TablePartition(as_of)
    while len(_tables) >= TABLES_MAX:
        del _tables[next(iter(_tables))]
    with connected(options) as client:
        cluster = client.metadata(topics_of(options))
        tp = TopicPartition(topics_of(options)[0], number)
        bound = bounds_of(client, options, [tp])[tp]
        url = "" if options.tier == HOT else object_store_url(options, client, cluster)
    start = max(table.next_offset, bound.log_start_offset)
    if start < bound.end_offset:
        split = Split(tp, cluster.topic_id(tp.topic), start, bound.end_offset, AUTO if url else HOT)
        for rows in read_split(dataclasses.replace(options, object_store=url or None), TABLE_COLUMNS, split):
            columns = [rows[name].to_pylist() for name in ("key", "value", "offset")]
            table.take(zip(*columns, rows["timestamp"].cast(pa.int64()).to_pylist(), strict=True))
        table.next_offset = bound.end_offset
    _tables[place] = table
    return table


def as_record(joined: DataFrame) -> DataFrame:
    """Rows for a topic: the key, and JSON with the texts of both values."""
    texts = (F.col("value").cast("string").alias("stream"), F.col("table_value").cast("string").alias("table"))
    return joined.select("key", F.to_json(F.struct(*texts)).alias("value"), "timestamp")


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("join_table", __doc__)
    parser.add_argument("--table", required=True, metavar="TOPIC", help="the topic that is the table")
    parser.add_argument("--out", help="folder or URL of the Parquet files")
    parser.add_argument("--to", metavar="TOPIC", help='a topic that gets {"stream": …, "table": …}')
    parser.add_argument("--how", choices=HOWS, default="inner")
    parser.add_argument("--as-of", action="store_true", help="join with what held at the record's time, not the latest")
    stream_arguments(parser)
    chosen = parser.parse_args(arguments)
    if bool(chosen.out) == bool(chosen.to):
        parser.error("either --out or --to")
    table = table_options(servers_of(chosen), chosen.table)

    def job(session: SparkSession) -> Facts:
        check_co_partitioned(parse_options(options_of(chosen), streaming=True), table)
        joined = join_table(read_stream(session, options_of(chosen)), table, chosen.how, chosen.as_of)
        if chosen.dry_run:
            return {"columns": joined.columns}
        if chosen.to:
            writer = to_topic(as_record(joined), chosen, chosen.to).option("keepTimestamps", "true")
        else:
            writer = to_parquet(joined, chosen.out)
        return run_stream(writer, chosen.checkpoint, chosen.every)

    return run_job("join_table", chosen, job)


if __name__ == "__main__":
    main_of(main)
