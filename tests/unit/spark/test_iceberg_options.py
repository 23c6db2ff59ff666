from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from pyiceberg.expressions import AlwaysTrue, GreaterThan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.types import NestedField, StringType, TimestamptzType, UUIDType

from spark.iceberg import FILES_PER_TASK_MAX, NotReadable, bundled, parse_iceberg_options, spark_schema
from spark.option_values import OptionError

WHERE = {"catalog": "type=rest, uri=http://127.0.0.1:1", "table": "appliance.flights"}


def test_options_in_any_case() -> None:
    options = parse_iceberg_options({**WHERE, "SNAPSHOTID": "7", "columns": "a, b ,a", "rowfilter": "a > 3"})
    assert (options.table, options.snapshot_id, options.columns) == ("appliance.flights", 7, ("a", "b"))
    assert options.catalog == {"type": "rest", "uri": "http://127.0.0.1:1"}
    assert options.row_filter == GreaterThan("a", 3)
    assert parse_iceberg_options(WHERE).row_filter == AlwaysTrue()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"table": "flights"}, "namespace.name"),
        ({"catalog": ""}, "catalog is missing"),
        ({"catalog": "rest"}, "'rest' is not key=value"),
        ({"snapshotId": "x"}, "whole number above 0"),
        ({"splitBytes": "0"}, "whole number above 0"),
        ({"snapshotId": "1", "asOfTimestamp": "2"}, "one of"),
        ({"rowFilter": "a >"}, "rowFilter is not understood"),
        ({"colums": "a"}, "colums is not known"),
    ],
)
def test_an_option_that_is_wrong_is_named(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_iceberg_options({**WHERE, **wrong})


def test_a_column_that_spark_has_no_type_for_is_named() -> None:
    schema = Schema(NestedField(1, "at", TimestamptzType()), NestedField(2, "name", StringType()))
    assert spark_schema(schema).simpleString() == "struct<at:timestamp,name:string>"
    with pytest.raises(NotReadable, match="column token"):
        spark_schema(Schema(NestedField(1, "token", UUIDType())))


@dataclass(frozen=True)
class File:
    file_path: str
    file_size_in_bytes: int


@dataclass(frozen=True)
class Task:
    file: File


def tasks(*sizes: int) -> list[FileScanTask]:
    return [cast(Any, Task(File(f"{number:05}", size))) for number, size in enumerate(sizes)]


def test_files_stand_together_until_they_are_of_a_splits_size() -> None:
    found = [[task.file.file_size_in_bytes for task in files.tasks] for files in bundled(tasks(4, 5, 2, 20, 1), 10)]
    assert found == [[4, 5], [2], [20], [1]]
    assert bundled([], 10) == []
    assert len(bundled(tasks(*[0] * (FILES_PER_TASK_MAX + 1)), 10)) == 2
