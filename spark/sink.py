"""Writers of `format("appliance")`: rows to topics, with the columns of Spark's Kafka sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

from spark.option_values import OptionError
from spark.sink_options import SinkOptions
from spark.sink_task import rows_of, write_at_least_once, write_exactly_once

BATCH_ID_PROPERTY = "streaming.sql.batchId"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Spark tells tasks so of the micro-batch that they work for; not documented, and therefore tested."""

_TEXT = (StringType(), BinaryType())
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@dataclass
class Written(WriterCommitMessage):
    """What a task did; None: an earlier attempt had done it."""

    rows: int | None


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises: OptionError: a column is missing or of another type than Spark's Kafka sink takes."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise OptionError("a column value (string or binary) is needed")
    if "topic" not in types and options.topic is None:
        raise OptionError("a topic is needed: the option topic or a column of that name")
    allowed = {"key": _TEXT, "value": _TEXT, "topic": (StringType(),), "partition": (IntegerType(),)}
    for name, choices in allowed.items():
        if name in types and types[name] not in choices:
            wanted = " or ".join(choice.simpleString() for choice in choices)
            raise OptionError(f"column {name} is {wanted}, not {types[name].simpleString()}")
    if "headers" in types and types["headers"].simpleString() != ArrayType(_HEADER).simpleString():
        raise OptionError(f"column headers is {ArrayType(_HEADER).simpleString()}, not {types['headers']}")


class ApplianceWriter(DataSourceArrowWriter):
    """Of a batch. Attempts of one run know each other by the run's id, or by `sinkName` beyond the run."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = options.sink_name or str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, iterator, self._run, 0)


class ApplianceStreamWriter(DataSourceStreamArrowWriter):
    """Of a stream: each task of each batch for itself, so a batch becomes visible task by task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return _write(self._options, iterator, "", 0)
        context = TaskContext.get()
        batch_id = context.getLocalProperty(BATCH_ID_PROPERTY) if context else None
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
        if batch_id is None or query_id is None:
            raise OptionError("delivery=exactly_once: this Spark does not tell its tasks which batch they work for")
        return _write(self._options, iterator, self._options.sink_name or query_id, int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to be done: tasks have committed."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be undone; with exactly_once what was not committed is not visible."""


def _write(options: SinkOptions, batches: Iterator[Any], name: str, batch_id: int) -> Written:
    rows = rows_of(batches, options)
    if not options.is_exactly_once:
        return Written(write_at_least_once(options, rows))
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    return Written(write_exactly_once(options, rows, f"spark-sink-{name}-{task}", batch_id))
