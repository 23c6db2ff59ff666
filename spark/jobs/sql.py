"""Ask topics in SQL: each is a view of its name, with the fields of its JSON values as columns.

Iceberg tables may stand beside them: --catalog type=rest,uri=http://… --table appliance.flights is appliance_flights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession

from spark.jobs.common import Facts, arguments_of, main_of, options_of, run_job
from spark.sql import register_tables, register_topics

ROWS_MAX = 100_000


def schemas_of(pairs: Sequence[str]) -> dict[str, str]:
    """`--schema TOPIC=DDL`, as often as wanted. Raises: SystemExit."""
    schemas = {}
    for pair in pairs:
        topic, separator, ddl = pair.partition("=")
        if not separator:
            raise SystemExit(f"--schema takes TOPIC=COLUMNS, not {pair}")
        schemas[topic] = ddl
    return schemas


def run_sql(session: SparkSession, chosen: argparse.Namespace) -> Facts:
    options = options_of(chosen)
    topics = options.pop("subscribe").split(",")
    views = register_topics(session, options, topics, schemas_of(chosen.schema))
    if chosen.table:
        views |= register_tables(session, chosen.catalog, chosen.table)
    frame = session.sql(chosen.query)
    facts: Facts = {"views": views, "columns": frame.columns}
    if chosen.dry_run:
        return facts
    if chosen.out:
        frame.write.mode("overwrite").parquet(chosen.out)
        return {**facts, "rows": session.read.parquet(chosen.out).count(), "out": chosen.out}
    rows = frame.limit(chosen.rows).toJSON().collect()
    print("\n".join(rows))
    return {**facts, "rows": len(rows)}


def main(arguments: Sequence[str]) -> int:
    parser = arguments_of("sql", __doc__)
    parser.add_argument("--query", required=True, help="such as: select carrier, count(*) from flights group by 1")
    parser.add_argument(
        "--schema", action="append", default=[], metavar="TOPIC=DDL", help="columns; learned from records otherwise"
    )
    parser.add_argument(
        "--catalog", help="of Iceberg tables: pyiceberg's properties as lake.iceberg.catalog takes them"
    )
    parser.add_argument("--table", action="append", default=[], metavar="NAMESPACE.NAME", help="an Iceberg table")
    parser.add_argument("--out", help="folder or URL of Parquet files; lines of JSON are printed without")
    parser.add_argument("--rows", type=int, default=1_000, help=f"print so many at most, up to {ROWS_MAX:,}")
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.rows <= ROWS_MAX:
        parser.error(f"--rows is between 1 and {ROWS_MAX:,}")
    if chosen.table and not chosen.catalog:
        parser.error("--table needs --catalog")
    return run_job("sql", chosen, lambda session: run_sql(session, chosen))


if __name__ == "__main__":
    main_of(main)
