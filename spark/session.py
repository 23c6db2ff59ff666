"""A Spark session in which `format("appliance")` works as it is."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from spark.source import ApplianceDataSource


def spark_session(name: str, cores: int | str = "*", **config: str) -> SparkSession:
    """A local session; `config` adds settings, with `__` for dots.

    Workers run this very Python, listen on loopback only, and time is UTC, so that hours mean the same everywhere.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.appName(name)
        .master(f"local[{cores}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    for key, value in config.items():
        builder = builder.config(key.replace("__", "."), value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(ApplianceDataSource)
    return session
