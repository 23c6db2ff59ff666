"""From topics to a topic, exactly once: choose, change and re-key records with SQL expressions, as a stream.

Expressions see the columns of the record (key, value, topic, timestamp, …), and with --schema the fields of JSON
values: --schema 'origin string, dep_delay double' --where 'dep_delay > 60' --key origin
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.jobs.common import (
    Facts,
    arguments_of,
    main_of,
    options_of,
    read_stream,
    run_job,
    run_stream,
    stream_arguments,
    to_topic,
)


@dataclass(frozen=True, slots=True)
class Steps:
    """What happens to each record; what is None stays as it is."""

    schema: str | None = None
    """DDL of the fields of JSON values that expressions may name."""
    where: str | None = None
    key: str | None = None
    value: str | None = None


def pipeline(frame: DataFrame, steps: Steps) -> DataFrame:
    """Of rows as `format("appliance")` reads them: key, value, timestamp, and headers where there are some."""
    if steps.schema:
        fields = F.from_json(F.col("value").cast("string"), steps.schema)
        names = frame.columns
        frame = frame.withColumn("_json", fields).select(*names, "_json.*")
    if steps.where:
        frame = frame.where(steps.where)
    key = F.expr(steps.key).cast("string") if steps.key else F.col("key")
    value = F.expr(steps.value).cast("string") if steps.value else F.col("value")
    others = [name for name in ("timestamp", "headers") if name in frame.columns]
    return frame.select(key.alias("key"), value.alias("value"), *others)


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("pipeline", __doc__)
    parser.add_argument("--to", required=True, metavar="TOPIC")
    parser.add_argument("--schema", help="fields of JSON values, as DDL")
    parser.add_argument("--where", help="which records go on; all by default")
    parser.add_argument("--key", help="another key")
    parser.add_argument("--value", help="another value, such as 'to_json(struct(origin, dep_delay))'")
    stream_arguments(parser)
    chosen = parser.parse_args(arguments)
    steps = Steps(chosen.schema, chosen.where, chosen.key, chosen.value)

    def job(session: SparkSession) -> Facts:
        frame = pipeline(read_stream(session, {"includeHeaders": "true", **options_of(chosen)}), steps)
        if chosen.dry_run:
            return {"columns": frame.columns}
        writer = to_topic(frame, chosen, chosen.to).option("keepTimestamps", "true")
        return {**run_stream(writer, chosen.checkpoint, chosen.every), "to": chosen.to}

    return run_job("pipeline", chosen, job)


if __name__ == "__main__":
    main_of(main)
