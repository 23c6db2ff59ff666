"""Spark reads lake output as any other Parquet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.laked import AT_ONCE, OUTPUT, Laked

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

NOON_MS = 1_767_268_800_000


def test_spark_finds_each_record_once_with_the_columns_of_the_folders(spark: SparkSession, tmp_path: Path) -> None:
    lake = Laked(tmp_path, retention_ms=-1)
    spec = replace(AT_ONCE, partition_by=("hour",))
    lake.put([{"n": 0}, {"n": 1}], timestamp=NOON_MS)
    lake.put([{"n": 2, "city": "Bern"}], timestamp=NOON_MS + 3_600_000)
    for _ in range(2):
        lake.worker().work(replace(spec, max_bytes=1))
    rows = spark.read.option("mergeSchema", "true").parquet(f"{lake.store.url}/{OUTPUT.folder}data")
    found = {
        (row["n"], row["_offset"], row["city"], str(row["event_date"]), row["event_hour"]) for row in rows.collect()
    }
    assert found == {
        (0, 0, None, "2026-01-01", 12),
        (1, 1, None, "2026-01-01", 12),
        (2, 2, "Bern", "2026-01-01", 13),
    }
    assert rows.count() == 3
