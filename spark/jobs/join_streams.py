"""Join two topics by key, as a stream: records whose times lie within some distance of each other."""

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
    to_topic,
)

HOWS = ("inner", "left_outer", "right_outer", "full_outer")


def join_streams(left: DataFrame, right: DataFrame, within: str, late: str, how: str = "inner") -> DataFrame:
    """Of rows as `format("appliance")` reads them: key, left_value, right_value, left_timestamp, right_timestamp.

    Args:
        left, right: streams; records without a key join with nothing.
        within: how far apart the times of two records may be, in both directions.
        late: how late a record may come. State is kept for `within` and `late`; an outer row is written after them.
        how: `inner` or one of the outer joins.
    """

    def side(frame: DataFrame, name: str) -> DataFrame:
        keyed = frame.where("key is not null").withWatermark("timestamp", late)
        return keyed.select(*(F.col(column).alias(f"{name}_{column}") for column in ("key", "value", "timestamp")))

    near = F.expr(
        f"left_key = right_key AND right_timestamp >= left_timestamp - INTERVAL {within}"
        f" AND right_timestamp <= left_timestamp + INTERVAL {within}"
    )
    joined = side(left, "left").join(side(right, "right"), near, how)
    key = F.coalesce("left_key", "right_key").alias("key")
    return joined.select(key, "left_value", "right_value", "left_timestamp", "right_timestamp")


def as_record(joined: DataFrame) -> DataFrame:
    """Rows for a topic: the key, and JSON with the texts of both values."""
    texts = [F.col(name).cast("string").alias(name.removesuffix("_value")) for name in ("left_value", "right_value")]
    return joined.select("key", F.to_json(F.struct(*texts)).alias("value"))


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("join_streams", __doc__)
    parser.add_argument("--with", required=True, metavar="C,D", dest="right", help="topics to join them with")
    parser.add_argument("--out", help="folder or URL of the Parquet files")
    parser.add_argument("--to", metavar="TOPIC", help='a topic that gets {"left": …, "right": …}')
    parser.add_argument("--within", default="10 minutes", help="how far apart two records may be")
    parser.add_argument("--late", default="10 minutes", help="how late a record may be")
    parser.add_argument("--how", choices=HOWS, default="inner")
    stream_arguments(parser)
    chosen = parser.parse_args(arguments)
    if bool(chosen.out) == bool(chosen.to):
        parser.error("either --out or --to")

    def job(session: SparkSession) -> Facts:
        left = read_stream(session, options_of(chosen))
        right = read_stream(session, {**options_of(chosen), "subscribe": chosen.right})
        joined = join_streams(left, right, chosen.within, chosen.late, chosen.how)
        if chosen.dry_run:
            return {"columns": joined.columns}
        writer = to_topic(as_record(joined), chosen, chosen.to) if chosen.to else to_parquet(joined, chosen.out)
        return run_stream(writer, chosen.checkpoint, chosen.every)

    return run_job("join_streams", chosen, job)


if __name__ == "__main__":
    main_of(main)
