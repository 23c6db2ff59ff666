"""The table that a topic stands for: the latest value of each key, without those that were deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from spark.jobs.common import (
    Facts,
    arguments_of,
    main_of,
    options_of,
    read_batch,
    read_stream,
    run_job,
    run_stream,
    to_topic,
)


def latest_by_key(frame: DataFrame) -> DataFrame:
    """Of rows as `format("appliance")` reads them: topic, key and the cells of each key's last record.

    A null value deletes its key, as in a compacted topic. Records without a key stand for nothing. Offsets compare
    within a partition only: where a topic has grown partitions, the record of the later time counts.
    """
    newest = F.max_by(F.struct("value", "partition", "offset", "timestamp"), F.struct("timestamp", "offset"))
    of_partition = F.max_by(F.struct("value", "timestamp"), "offset")
    last = (
        frame.where("key is not null")
        .groupBy("topic", "key", "partition")
        .agg(of_partition.alias("last"), F.max("offset").alias("offset"))
        .select("topic", "key", "partition", "offset", "last.value", "last.timestamp")
    )
    table = last.groupBy("topic", "key").agg(newest.alias("last")).select("topic", "key", "last.*")
    return table.where("value is not null")


STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The only store that keeps the state of a `StatefulProcessor`."""

ROW = "topic string, key binary, value binary, partition int, offset bigint, timestamp timestamp"


class LatestValue(StatefulProcessor):
    """Keeps of each key where its last record was; what is deleted is forgotten, too."""

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", "partition int, offset bigint, timestamp timestamp")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        last = tuple(self._last.get()) if self._last.exists() else None
        newest: Row | None = None
        for row in rows:
            place = (row["partition"], row["offset"], row["timestamp"])
            if last is None or _is_newer(place, last):
                last, newest = place, row
        if newest is None:
            return
        if newest["value"] is None:
            self._last.clear()
        else:
            self._last.update(last)
        yield newest

    def close(self) -> None:
        """Nothing is held."""


def _is_newer(place: tuple[Any, ...], last: tuple[Any, ...]) -> bool:
    if place[0] == last[0]:
        return bool(place[1] > last[1])
    return (place[2], place[1]) > (last[2], last[1])


def changes_by_key(frame: DataFrame) -> DataFrame:
    """Of a stream of rows: for each micro-batch the last record of each key in it, null value included.

    A record that is older than what was seen of its key is left out. Needs the session's `STATE_STORE` to be `ROCKSDB`.
    """
    keyed = frame.where("key is not null").select("topic", "key", "value", "partition", "offset", "timestamp")
    changes: DataFrame = keyed.groupBy("topic", "key").transformWithState(LatestValue(), ROW, "Append", "None")
    return changes


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("latest_by_key", __doc__)
    parser.add_argument("--out", help="batch: folder or URL of the Parquet files; replaced as a whole")
    parser.add_argument("--to", metavar="TOPIC", help="stream: a topic that gets the last record of each changed key")
    parser.add_argument("--checkpoint", help="stream: where the query keeps its position and state")
    chosen = parser.parse_args(arguments)
    if bool(chosen.out) == bool(chosen.to) or bool(chosen.to) != bool(chosen.checkpoint):
        parser.error("either --out, or --to and --checkpoint")

    def batch(session: SparkSession) -> Facts:
        table = latest_by_key(read_batch(session, options_of(chosen)))
        if chosen.dry_run:
            return {"keys": table.count()}
        table.write.mode("overwrite").parquet(chosen.out)
        return {"keys": session.read.parquet(chosen.out).count(), "out": chosen.out}

    def stream(session: SparkSession) -> Facts:
        session.conf.set(STATE_STORE, ROCKSDB)
        changes = changes_by_key(read_stream(session, options_of(chosen))).select("key", "value")
        if chosen.dry_run:
            return {"columns": changes.columns}
        return {**run_stream(to_topic(changes, chosen, chosen.to), chosen.checkpoint), "to": chosen.to}

    return run_job("latest_by_key", chosen, stream if chosen.to else batch)


if __name__ == "__main__":
    main_of(main)
