"""What Spark's own Kafka source and sink do in each scenario: program.py BOOTSTRAP_SERVERS SCENARIO JSON.

Run by the Python of an environment that has the PySpark of that source; see test_spark_kafka.py.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ROW = ("partition", "offset", "key", "value", "headers", "timestamp")


def session(jars: list[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    config = {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(frame: DataFrame) -> list[list[Any]]:
    def text(content: bytearray | None) -> str | None:
        return None if content is None else bytes(content).decode()

    shown = []
    for row in frame.select(*ROW).sort("partition", "offset").collect():
        headers = [[name, text(value)] for name, value in row.headers or []]
        time_ms = round(row.timestamp.timestamp() * 1_000)
        shown.append([row.partition, row.offset, text(row.key), text(row.value), headers, time_ms])
    return shown


class Scenarios:
    def __init__(self, servers: str, given: dict[str, Any]) -> None:
        self.given = given
        self.spark = session(given["jars"])
        self.kafka = {"kafka.bootstrap.servers": servers, "includeHeaders": "true"}

    def batch(self) -> dict[str, Any]:
        """One list of rows for each set of options that is asked."""
        asked = self.given["asked"]
        return {"read": [rows(self.spark.read.format("kafka").options(**self.kafka, **each).load()) for each in asked]}

    def stream(self) -> dict[str, Any]:
        """What is there now, in small batches; twice with one checkpoint, and something is added between."""
        batches: list[list[list[Any]]] = []
        found: list[list[list[list[Any]]]] = []
        source = self.spark.readStream.format("kafka").options(**self.kafka, **self.given["options"]).load()

        def keep(frame: DataFrame, number: int) -> None:
            batches.append(rows(frame))

        def run() -> None:
            batches.clear()
            writer = source.writeStream.foreachBatch(keep).option("checkpointLocation", self.given["checkpoint"])
            writer.trigger(availableNow=True).start().awaitTermination()
            found.append(list(batches))

        run()
        self.write_rows(self.given["added"])
        run()
        return {"batches": found}

    def write(self) -> dict[str, Any]:
        """A batch into one topic, and a stream of it into another."""
        self.write_rows(self.given["rows"])
        source = self.spark.readStream.format("kafka").options(**self.kafka, **self.given["options"]).load()
        copied = source.select("key", "value", "headers", "partition").writeStream.format("kafka")
        options = {**self.kafka, "topic": self.given["copy"], "checkpointLocation": self.given["checkpoint"]}
        target = copied.options(**options)
        target.trigger(availableNow=True).start().awaitTermination()
        return {"done": True}

    def write_rows(self, values: list[list[Any]]) -> None:
        """Of [topic, key, value, headers, partition]."""
        form = (
            "topic string, key string, value string, headers array<struct<key: string, value: string>>, partition int"
        )
        frame = self.spark.createDataFrame([tuple(row) for row in values], form)
        headers = "transform(headers, h -> struct(h.key as key, cast(h.value as binary) as value)) as headers"
        written = frame.selectExpr(
            "topic", "cast(key as binary) key", "cast(value as binary) value", headers, "partition"
        )
        written.coalesce(1).write.format("kafka").options(**self.kafka).save()


if __name__ == "__main__":
    _, servers, scenario, arguments = sys.argv
    print(json.dumps(getattr(Scenarios(servers, json.loads(arguments)), scenario)()), flush=True)
