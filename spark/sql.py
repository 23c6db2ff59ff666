"""Topics as views for SQL: values of JSON become columns, beside `_key`, `_offset` and the like.

register_topics(session, {"kafka.bootstrap.servers": servers}, ["flights", "planes"])
session.sql("select carrier, count(*) from flights group by carrier")

A view reads what was there when it was first asked, of both tiers; register it again for newer records. Iceberg tables
of lake output are views beside them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark.options import LATEST, parse_options
from spark.planning import bounds_of, connected, partitions_of, plan_batch
from spark.reading import read_split

OF_THE_RECORD = ("key", "topic", "partition", "offset", "timestamp", "headers", "tier")
SAMPLES = 1_000
"""So many of the newest records of a topic are looked at for the columns, unless a schema is given."""


class NoColumns(ValueError):
    """A topic's values are no JSON objects, or there are none to learn from."""


def register_topics(
    session: SparkSession,
    options: Mapping[str, str],
    topics: Sequence[str],
    schemas: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Make a temporary view of each topic.

    Args:
        session, options: how to read, as for `format("appliance")`, without the topics.
        topics: their names.
        schemas: the columns of topics as DDL, such as `"carrier string, dep_delay double"`; learned where not given.

    Returns: the names of the views by topic: those of the topics, with `_` for what SQL does not take.

    Raises:
        NoColumns: nothing can be learned from a topic.
        ValueError: two topics come to the same name.
    """
    names = {topic: view_name(topic) for topic in topics}
    if len(set(names.values())) < len(names):
        raise ValueError(f"two of these topics would be views of the same name: {', '.join(topics)}")
    for topic, name in names.items():
        frame = session.read.format("appliance").options(**{**options, "subscribe": topic}).load()
        schema = (schemas or {}).get(topic) or learn_schema(session, options, topic)
        with_json_columns(frame, schema).createOrReplaceTempView(name)
    return names


def register_tables(session: SparkSession, catalog: str, tables: Sequence[str]) -> dict[str, str]:
    """Make a temporary view of each Iceberg table.

    Args:
        catalog: pyiceberg's properties, as `lake.iceberg.catalog` takes them.
        tables: their names with their namespaces, such as `appliance.flights`.

    Returns: the names of the views by table: `appliance_flights`.

    Raises:
        ImportError: the extra `iceberg` is not installed.
        ValueError: two tables come to the same name.
    """
    from spark.iceberg import register_iceberg

    register_iceberg(session)
    names = {table: view_name(table) for table in tables}
    if len(set(names.values())) < len(names):
        raise ValueError(f"two of these tables would be views of the same name: {', '.join(tables)}")
    for table, name in names.items():
        session.read.format("appliance_iceberg").option("catalog", catalog).load(table).createOrReplaceTempView(name)
    return names


def view_name(source: str) -> str:
    """A name that SQL takes without quotes."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", source)
    return f"_{name}" if name[0].isdigit() else name


def with_json_columns(frame: DataFrame, schema: str | StructType) -> DataFrame:
    """The fields of `value` as columns; those of the record follow with `_` before their names.

    A value that is no such JSON has nulls in all of its columns, and so has a null value.
    """
    parsed = frame.withColumn("value", F.from_json(F.col("value").cast("string"), schema))
    of_the_record = [name for name in OF_THE_RECORD if name in frame.columns]
    cells = {name: F.col(name).cast("string") if name == "key" else F.col(name) for name in of_the_record}
    return parsed.select("value.*", *(cell.alias(f"_{name}") for name, cell in cells.items()))


def learn_schema(session: SparkSession, options: Mapping[str, str], topic: str, samples: int = SAMPLES) -> str:
    """The columns of a topic whose values are JSON objects, from its newest records.

    Raises:
        NoColumns: none of them is an object.
    """
    objects = [text for text in _newest_values(options, topic, samples) if _is_object(text)]
    if not objects:
        raise NoColumns(f"no value of {topic} is a JSON object; give the columns in schemas")
    # Of an array Spark merges the types of all elements.
    array = F.schema_of_json(F.lit(f"[{','.join(objects)}]"))
    found: str = session.range(1).select(array).collect()[0][0]
    return found.removeprefix("ARRAY<").removesuffix(">")


def _newest_values(options: Mapping[str, str], topic: str, samples: int) -> list[str]:
    chosen = parse_options({**options, "subscribe": topic, "isolationLevel": "read_committed"})
    with connected(chosen) as client:
        bounds = bounds_of(client, chosen, partitions_of(chosen, client.metadata([topic])))
    share = -(-samples // len(bounds))
    starts = {tp: max(bound.log_start_offset, bound.end_offset - share) for tp, bound in bounds.items()}
    chosen = dataclasses.replace(chosen, starting_offsets=starts, ending_offsets=LATEST)
    plan = plan_batch(chosen)
    chosen = dataclasses.replace(chosen, object_store=plan.object_store or None)
    return [
        value.decode(errors="replace")
        for split in plan.splits
        for rows in read_split(chosen, ("value",), split)
        for value in rows["value"].to_pylist()
        if value is not None
    ]


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
