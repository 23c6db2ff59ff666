"""Spark reads Iceberg tables of lake output, without any JAR, and SQL joins them with topics."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from appliance.tiering.lake.catalogs import catalog_properties, open_catalog
from appliance.tiering.lake.iceberg import open_tables
from spark.iceberg import IcebergReader, parse_iceberg_options, register_iceberg, spark_schema
from spark.sql import register_tables
from tests.support.laked import AT_ONCE, OUTPUT, Laked
from tests.support.tier_objects import TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

NAME = f"appliance.{TOPIC}"
SPEC = replace(AT_ONCE, format="iceberg")
Rows = Callable[..., DataFrame]


class Lake:
    """Lake output in an Iceberg table of an SQLite catalog."""

    def __init__(self, folder: Path) -> None:
        self.laked = Laked(folder, retention_ms=-1)
        self.catalog = f"type=sql,uri=sqlite:///{folder}/iceberg.db,warehouse={self.laked.store.url}/lake/iceberg"
        self._tables = open_tables(self.catalog, "appliance", self.laked.store.url, str(folder))

    def put(self, *values: dict[str, object]) -> Table:
        """One file more; the table with it."""
        self.laked.put(values)
        self.laked.worker().work(SPEC)
        self._tables.publish(self.laked.store, OUTPUT, self.laked.ledger)
        return self.table

    @property
    def table(self) -> Table:
        return open_catalog(catalog_properties(self.catalog)).load_table(NAME)

    def reader(self, **options: str) -> IcebergReader:
        parsed = parse_iceberg_options({"table": NAME, "catalog": self.catalog, **options})
        return IcebergReader(parsed, spark_schema(self.table.schema()))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def rows(spark: SparkSession, lake: Lake) -> Rows:
    register_iceberg(spark)

    def read(**options: object) -> DataFrame:
        reader = spark.read.format("appliance_iceberg").option("catalog", lake.catalog)
        return reader.options(**{name: str(value) for name, value in options.items()}).load(NAME)

    return read


def test_each_row_of_the_newest_snapshot_or_of_an_older_one(lake: Lake, rows: Rows) -> None:
    first = lake.put({"n": 0, "name": "Bern"}, {"n": 1, "name": None}).current_snapshot()
    lake.put({"n": 2, "name": "Chur", "at": 1.5})
    frame = rows()
    assert dict(frame.dtypes) == {
        "_topic": "string", "_partition": "int", "_offset": "bigint", "_timestamp": "timestamp", "_key": "binary",
        "n": "bigint", "name": "string", "at": "double",
    }  # fmt: skip
    found = sorted((row["_offset"], row["n"], row["name"], row["at"]) for row in frame.collect())
    assert found == [(0, 0, "Bern", None), (1, 1, None, None), (2, 2, "Chur", 1.5)]
    assert isinstance(frame.first()["_timestamp"], datetime.datetime)
    assert first is not None
    older = rows(snapshotId=first.snapshot_id)
    assert "at" not in older.columns
    assert sorted(row["n"] for row in older.collect()) == [0, 1]
    assert sorted(row["n"] for row in rows(asOfTimestamp=first.timestamp_ms, columns="n").collect()) == [0, 1]


def test_a_row_filter_leaves_out_rows_and_files_that_have_no_others(lake: Lake, rows: Rows) -> None:
    lake.put({"n": 1, "name": "Bern"}, {"n": 2, "name": None})
    lake.put({"n": 5, "name": "Chur"}, {"n": None, "name": "Brig"})
    assert [len(split.value.tasks) for split in lake.reader(rowFilter="n > 4").partitions()] == [1]
    found = rows(columns="n", rowFilter="n >= 2 and (n < 3 or name = 'Chur')", splitBytes=1)
    assert sorted(row["n"] for row in found.collect()) == [2, 5]
    assert found.where("n = 5").count() == 1
    assert found.count() == 2, "a query's own filter is its own"


def test_a_frame_is_of_one_snapshot(lake: Lake, rows: Rows) -> None:
    lake.put({"n": 1})
    frame = rows()
    assert frame.count() == 1
    lake.put({"n": 2})
    assert frame.count() == 1
    assert rows().count() == 2


def test_small_files_share_a_task(lake: Lake, rows: Rows) -> None:
    for number in range(3):
        lake.put({"n": number})
    assert rows().rdd.getNumPartitions() == 1
    assert rows(splitBytes=1).rdd.getNumPartitions() == 3
    assert rows(splitBytes=1).count() == 3


def test_rows_that_are_deleted_are_gone(lake: Lake, rows: Rows) -> None:
    lake.put({"n": 0}, {"n": 1}).delete("n == 0")
    assert [row["n"] for row in rows().collect()] == [1]


def test_a_table_without_rows(lake: Lake, rows: Rows) -> None:
    lake.put({"n": 0}).delete("n == 0")
    assert rows().count() == 0


def test_tables_are_views(lake: Lake, spark: SparkSession) -> None:
    lake.put({"n": 0}, {"n": 1})
    names = register_tables(spark, lake.catalog, [NAME])
    assert names == {NAME: NAME.replace(".", "_")}
    assert spark.sql(f"select sum(n) as total from {names[NAME]}").first()["total"] == 1
    with pytest.raises(ValueError, match="same name"):
        register_tables(spark, lake.catalog, ["a.b", "a_b"])


def test_what_is_not_there_is_said_in_one_line(lake: Lake, rows: Rows, spark: SparkSession) -> None:
    lake.put({"n": 0})
    with pytest.raises(PySparkException, match="has no snapshot 5"):
        rows(snapshotId=5).count()
    with pytest.raises(PySparkException, match=r"no table appliance\.nothing"):
        spark.read.format("appliance_iceberg").option("catalog", lake.catalog).load("appliance.nothing")
    assert parse_iceberg_options({"path": NAME, "catalog": lake.catalog}).table == NAME
