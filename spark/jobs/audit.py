"""Count the records of topics in buckets of time and by tier, straight from both tiers: what an audit compares with."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.jobs.common import Facts, arguments_of, main_of, options_of, read_batch, run_job

COLUMNS = "topic,partition,offset,timestamp,tier"
"""Values are not read out of their batches."""


def audit_counts(frame: DataFrame, bucket: str) -> DataFrame:
    """Of rows with the `COLUMNS`: records, and the first and last offset, of each partition, bucket and tier.

    Offsets that a partition has none of between first and last were transaction markers, aborted, or compacted.
    """
    start = F.window("timestamp", bucket)["start"].alias("bucket")
    return frame.groupBy("topic", "partition", start, "tier").agg(
        F.count("*").alias("records"), F.min("offset").alias("first_offset"), F.max("offset").alias("last_offset")
    )


def audit(session: SparkSession, options: dict[str, str], bucket: str, out: str | None) -> Facts:
    """Count, keep the table as Parquet where `out` says so, and give the sums."""
    counts = audit_counts(read_batch(session, {**options, "columns": COLUMNS}), bucket)
    if out:
        counts.coalesce(1).write.mode("overwrite").parquet(out)
        counts = session.read.parquet(out)
    sums = counts.groupBy("topic", "tier").agg(F.sum("records").alias("records"), F.countDistinct("bucket").alias("n"))
    found: dict[str, dict[str, int]] = {}
    for row in sums.orderBy("topic", "tier").collect():
        found.setdefault(row["topic"], {})[row["tier"]] = row["records"]
    return {"records": sum(sum(tiers.values()) for tiers in found.values()), "topics": found, "out": out}


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("audit", __doc__)
    parser.add_argument("--out", help="folder or URL of the Parquet table; replaced as a whole")
    parser.add_argument("--bucket", default="1 hour", help="length of a bucket, such as '5 minutes'")
    chosen = parser.parse_args(arguments)

    def job(session: SparkSession) -> Facts:
        if chosen.dry_run:
            frame = read_batch(session, {**options_of(chosen), "columns": COLUMNS})
            return {"columns": audit_counts(frame, chosen.bucket).columns}
        return audit(session, options_of(chosen), chosen.bucket, chosen.out)

    return run_job("audit", chosen, job)


if __name__ == "__main__":
    main_of(main)
