"""A Spark session that reads a topic whenever it is told to, and says how long it took. Knows either source.

Runs in the Python of the source it is for, so it imports nothing of this project at first:
python spark_reader.py '{"format": "kafka", "jars": ["…"], "python": "…"}'; then a line of JSON options for each read.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}


def main(text: str) -> None:
    settings = json.loads(text)
    builder = SparkSession.builder.appName("benchmark").master("local[2]")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    if settings.get("jars"):
        builder = builder.config("spark.jars", ",".join(settings["jars"]))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if settings["format"] == "appliance":
        from spark.source import ApplianceDataSource

        session.dataSource.register(ApplianceDataSource)
    print(json.dumps({"spark": session.version}), flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        frame = session.read.format(settings["format"]).options(**json.loads(line)).load()
        row = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").collect()[0]
        took = time.monotonic() - began
        print(json.dumps({"wall_s": took, "records": row["records"], "bytes": row["bytes"]}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
