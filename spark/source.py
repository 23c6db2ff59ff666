"""`format("appliance")`: the Spark Data Source. What decides lies in `plan`, what reads in `reading`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
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
from spark.option_values import OptionError
from spark.options import SourceOptions, parse_options, passed_over, wants_column
from spark.partitions import SplitPartition, read_partition
from spark.planning import plan_batch
from spark.sink import ApplianceStreamWriter, ApplianceWriter, check_columns
from spark.sink_options import parse_sink_options
from spark.sink_options import passed_over as passed_over_by_sinks
from spark.stream import ApplianceStreamReader
from spark.workers import keep_what_is_loaded

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
NEVER_NULL = frozenset(("topic", "partition", "offset", "timestamp", "timestampType", "tier"))


_log = logging.getLogger(__name__)


class ApplianceDataSource(DataSource):
    """Topics as a table; `.schema(...)` or the option `columns` pick columns, and what is not picked is not copied."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        keep_what_is_loaded()

    @classmethod
    def name(cls) -> str:
        return "appliance"

    def schema(self) -> StructType:
        chosen = wanted_columns(self.options)
        if chosen is not None:
            return _struct(chosen)
        names = [*DEFAULT_COLUMNS]
        if wants_column(self.options, "includeHeaders"):
            names.append("headers")
        if wants_column(self.options, "includeTier"):
            names.append("tier")
        return _struct(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        _tell(passed_over(self.options))
        return ApplianceReader(options, columns_of(schema), never_null_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_options(self.options, streaming=True)
        _tell(passed_over(self.options, streaming=True))
        return ApplianceStreamReader(options, columns_of(schema), never_null=never_null_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = parse_sink_options(self.options)
        _tell(passed_over_by_sinks(self.options))
        check_columns(schema, options)
        if overwrite:
            raise OptionError("a log is not overwritten: use mode append")
        return ApplianceWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = parse_sink_options(self.options)
        _tell(passed_over_by_sinks(self.options))
        check_columns(schema, options)
        return ApplianceStreamWriter(options)


def _tell(names: list[str]) -> None:
    if names:
        _log.warning("passed over, for they mean nothing here: %s", ", ".join(names))


def _struct(names: Sequence[str]) -> StructType:
    # Spark asks of each cell whether it is null, unless the column says that none ever is.
    return StructType([StructField(name, TYPES[name], nullable=name not in NEVER_NULL) for name in names])


def wanted_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the option `columns` names; None without it. Raises: OptionError: one that is not ours."""
    text = {name.lower(): value for name, value in options.items()}.get("columns")
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in TYPES]
    if unknown or not names:
        raise OptionError(f"columns takes names out of {', '.join(TYPES)}, not {', '.join(unknown) or 'nothing'}")
    return names


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema. Raises OptionError: one that is not ours, or of another type."""
    for column in schema.fields:
        wanted = TYPES.get(column.name)
        if wanted is None:
            raise OptionError(f"column {column.name} is not known; there are {', '.join(TYPES)}")
        if column.dataType != wanted:
            raise OptionError(f"column {column.name} is {wanted.simpleString()}, not {column.dataType.simpleString()}")
        if not column.nullable and column.name not in NEVER_NULL:
            raise OptionError(f"column {column.name} may be null")
    return tuple(column.name for column in schema.fields)


def never_null_of(schema: StructType) -> frozenset[str]:
    """The columns of which Spark counts on there being no null."""
    return frozenset(column.name for column in schema.fields if not column.nullable)


class ApplianceReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], never_null: frozenset[str] = frozenset()
    ) -> None:
        self._options = options
        self._columns = columns
        self._never_null = never_null

    def partitions(self) -> list[InputPartition]:
        plan = plan_batch(self._options)
        keep_what_is_loaded()
        # Spark takes an empty list for "no partitioning" and asks for one partition; none of ours is needed then.
        return [SplitPartition(split, plan.object_store) for split in plan.splits] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, self._columns, partition, self._never_null)
