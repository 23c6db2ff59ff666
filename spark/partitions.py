"""A split as Spark carries it to a task, of batches and streams alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from spark.options import SourceOptions
from spark.plan import Split
from spark.reading import read_split


class SplitPartition(InputPartition):
    """One split, and where the object store is that it may need."""

    def __init__(self, split: Split, object_store: str) -> None:
        super().__init__(str(split.tp))
        self.split = split
        self.object_store = object_store


def read_partition(options: SourceOptions, columns: tuple[str, ...], partition: InputPartition) -> Iterator[Any]:
    """The rows of a partition; none of one that stands for an empty plan."""
    if not isinstance(partition, SplitPartition):
        return iter(())
    return read_split(
        dataclasses.replace(options, object_store=partition.object_store or None), columns, partition.split
    )
