"""Work that is listed before it begins, one list for each Spark task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession


def in_tasks(session: SparkSession, tasks: Sequence[Sequence[bytes]], work: Callable[[bytes], int]) -> list[int]:
    """What `work` gave for each item; a task does its items one after the other.

    Args:
        session: where.
        tasks: items as `work` reads them.
        work: can be pickled; Spark may call it again for an item that is done.
    """
    rows = [(number, msgspec.json.encode([item.decode() for item in task])) for number, task in enumerate(tasks)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(1).to_pylist():
                for item in msgspec.json.decode(text, type=list[str]):
                    yield pa.record_batch([pa.array([work(item.encode())], pa.int64())], names=["result"])

    frame = session.createDataFrame(rows, "task int, items binary").repartitionByRange(len(tasks), "task")
    return [row["result"] for row in frame.mapInArrow(run, "result bigint").collect()]
