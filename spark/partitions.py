"""A split as Spark carries it to a task, of batches and streams alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark.decode import FIELDS
from spark.options import SourceOptions
from spark.plan import Split
from spark.reading import read_split
from spark.workers import keep_what_is_loaded


class SplitPartition(InputPartition):
    """One split, and where the object store is that it may need."""

    def __init__(self, split: Split, object_store: str) -> None:
        super().__init__(str(split.tp))
        self.split = split
        self.object_store = object_store


def read_partition(
    options: SourceOptions, columns: tuple[str, ...], partition: InputPartition, never_null: frozenset[str]
) -> Iterator[Any]:
    """The rows of a partition; none of one that stands for an empty plan. `never_null`: as Spark's schema has it."""
    if not isinstance(partition, SplitPartition):
        return
    fields = [FIELDS[name].with_nullable(name not in never_null) for name in columns]
    schema = pa.schema(fields)
    options = dataclasses.replace(options, object_store=partition.object_store or None)
    for rows in read_split(options, columns, partition.split):
        yield pa.RecordBatch.from_arrays(rows.columns, schema=schema)
    keep_what_is_loaded()
