"""`format("appliance")`: the Spark Data Source. What decides lies in `plan`, what reads in `reading`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.decode import DEFAULT_COLUMNS
from spark.options import OptionError, SourceOptions, parse_options
from spark.plan import Split
from spark.planning import plan_batch
from spark.reading import read_split

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    "tier": StringType(),
}


class ApplianceDataSource(DataSource):
    """Topics as a table; a schema given by `.schema(...)` picks columns, and what is not picked is not copied."""

    @classmethod
    def name(cls) -> str:
        return "appliance"

    def schema(self) -> StructType:
        options = parse_options(self.options)
        names = [*DEFAULT_COLUMNS]
        if options.include_headers:
            names.append("headers")
        if options.include_tier:
            names.append("tier")
        return StructType([StructField(name, TYPES[name]) for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        return ApplianceReader(parse_options(self.options), columns_of(schema))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema. Raises OptionError: one that is not ours, or of another type."""
    for column in schema.fields:
        wanted = TYPES.get(column.name)
        if wanted is None:
            raise OptionError(f"column {column.name} is not known; there are {', '.join(TYPES)}")
        if column.dataType != wanted:
            raise OptionError(f"column {column.name} is {wanted.simpleString()}, not {column.dataType.simpleString()}")
    return tuple(column.name for column in schema.fields)


class SplitPartition(InputPartition):
    """One split as Spark hands it to a task."""

    def __init__(self, split: Split, object_store: str) -> None:
        super().__init__(str(split.tp))
        self.split = split
        self.object_store = object_store


class ApplianceReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        plan = plan_batch(self._options)
        # Spark takes an empty list for "no partitioning" and asks for one partition; none of ours is needed then.
        return [SplitPartition(split, plan.object_store) for split in plan.splits] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SplitPartition):
            return iter(())
        options = dataclasses.replace(self._options, object_store=partition.object_store or None)
        return read_split(options, self._columns, partition.split)
