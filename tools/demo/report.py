"""The Spark job: hot and tiered records as one table, counted and averaged."""

from __future__ import annotations

import signal
from collections import defaultdict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.session import spark_session
from tools.demo.ingest import FLIGHTS
from tools.demo.tables import Punctuality, Report

FLIGHT_COLUMNS = "month int, carrier string, dep_time int, dep_delay double"


class FlightsJob:
    """One Spark session over the appliance; use as a context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def __enter__(self) -> FlightsJob:
        mine = signal.getsignal(signal.SIGINT)
        self._spark: SparkSession = spark_session("flights", cores=2)
        # PySpark takes Ctrl-C for itself, also after its session has ended.
        signal.signal(signal.SIGINT, mine)
        return self

    def __exit__(self, *error: object) -> None:
        self._spark.stop()

    def table(self, topic: str, tier: str = "auto") -> DataFrame:
        """A topic as a table, with the tier of each record."""
        return (
            self._spark.read.format("appliance")
            .option("kafka.bootstrap.servers", self._bootstrap_servers)
            .option("subscribe", topic)
            .option("includeTier", "true")
            .option("tier", tier)
            .load()
        )

    def counts(self, topics: list[str]) -> dict[str, dict[str, int]]:
        """Records of each topic by the tier they were read from."""
        rows = self.table(",".join(topics)).groupBy("topic", "tier").count().collect()
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        for row in rows:
            counts[row["topic"]][row["tier"]] = row["count"]
        return counts

    def punctuality(self) -> Report:
        """Departures and mean delay for each month and carrier."""
        flights = self.table(FLIGHTS).select(F.from_json(F.col("value").cast("string"), FLIGHT_COLUMNS).alias("flight"))
        rows = (
            flights.select("flight.*")
            .where("dep_time is not null")
            .groupBy("month", "carrier")
            .agg(F.count("*").alias("departures"), F.avg("dep_delay").alias("mean_delay"))
            .collect()
        )
        return {(row["month"], row["carrier"]): Punctuality(row["departures"], row["mean_delay"]) for row in rows}


def differences(found: Report, expected: Report) -> list[str]:
    """What the job got wrong; empty if nothing. Sums of floats may differ in their last digits."""
    wrong = [f"{group} is missing or too much" for group in sorted(found.keys() ^ expected.keys())]
    for group in sorted(found.keys() & expected.keys()):
        mine, theirs = found[group], expected[group]
        if mine.departures != theirs.departures or abs(mine.mean_delay - theirs.mean_delay) > 1e-9:
            wrong.append(f"{group}: {mine}, the input says {theirs}")
    return wrong
