"""What all jobs share: how they are asked, how they read, and what they say at the end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.session import spark_session

Facts = dict[str, Any]
"""What a job did, as one JSON object."""


def arguments_of(name: str, document: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments that every job takes."""
    parser = argparse.ArgumentParser(prog=f"python -m spark.jobs.{name}", description=document)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topics", required=True, metavar="A,B", help="topics to read")
    parser.add_argument("--cores", default="*", help="of a local session; all by default")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="a further option of the reader"
    )
    return parser


def options_of(chosen: argparse.Namespace) -> dict[str, str]:
    """The reader's options as the arguments say them."""
    options = {"kafka.bootstrap.servers": chosen.bootstrap_servers, "subscribe": chosen.topics}
    for pair in chosen.option:
        name, separator, value = pair.partition("=")
        if not separator:
            raise SystemExit(f"--option takes NAME=VALUE, not {pair}")
        options[name] = value
    return options


def read_batch(session: SparkSession, options: dict[str, str]) -> DataFrame:
    return session.read.format("appliance").options(**options).load()


def read_stream(session: SparkSession, options: dict[str, str]) -> DataFrame:
    return session.readStream.format("appliance").options(**{"startingOffsets": "earliest", **options}).load()


def run_job(name: str, chosen: argparse.Namespace, job: Callable[[SparkSession], Facts]) -> int:
    """Run a job in a session of its own, and print its facts and its time as JSON."""
    began = time.monotonic()
    session = spark_session(name, cores=chosen.cores)
    try:
        facts = job(session)
    finally:
        session.stop()
    print(json.dumps({"job": name, **facts, "seconds": round(time.monotonic() - began, 3)}))
    return 0


def main_of(main: Callable[[Sequence[str]], int]) -> None:
    sys.exit(main(sys.argv[1:]))
