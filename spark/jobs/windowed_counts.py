"""Records and bytes of a topic in windows of time, as a stream: late records count up to a limit, then are dropped."""

from __future__ import annotations

from collections.abc import Sequence

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
    to_parquet,
)


def windowed_counts(frame: DataFrame, window: str, late: str) -> DataFrame:
    """Of rows as `format("appliance")` reads them: counts and sums for each topic and window of the records' times.

    A window is written when no record of it counts any more: `late` after its end, by the latest record seen. Then its
    state is forgotten.
    """
    return (
        frame.withWatermark("timestamp", late)
        .groupBy(F.window("timestamp", window), "topic")
        .agg(F.count("*").alias("records"), F.coalesce(F.sum(F.length("value")), F.lit(0)).alias("bytes"))
        .select("topic", F.col("window.start").alias("start"), F.col("window.end").alias("end"), "records", "bytes")
    )


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("windowed_counts", __doc__)
    parser.add_argument("--out", required=True, help="folder or URL of the Parquet files")
    stream_arguments(parser)
    parser.add_argument("--window", default="1 hour", help="length of a window, such as '5 minutes'")
    parser.add_argument("--late", default="10 minutes", help="how late a record may be")
    chosen = parser.parse_args(arguments)

    def job(session: SparkSession) -> Facts:
        counts = windowed_counts(read_stream(session, options_of(chosen)), chosen.window, chosen.late)
        if chosen.dry_run:
            return {"columns": counts.columns}
        return {**run_stream(to_parquet(counts, chosen.out), chosen.checkpoint, chosen.every), "out": chosen.out}

    return run_job("windowed_counts", chosen, job)


if __name__ == "__main__":
    main_of(main)
