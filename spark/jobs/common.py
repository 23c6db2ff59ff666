"""What all jobs share: how they are asked, how they read, and what they say at the end."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from appliance.base.config_files import read_properties_file
from spark.secured import is_about_security
from spark.session import spark_session

Facts = dict[str, Any]
"""What a job did, as one JSON object."""


def plain_arguments(name: str, document: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments that every job takes."""
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m spark.jobs.{name}", description=document, formatter_class=text)
    parser.add_argument("--cores", default="*", help="of a local session; all by default")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    return parser


def arguments_of(name: str, document: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments of jobs that read topics."""
    parser = plain_arguments(name, document)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topics", required=True, metavar="A,B", help="topics to read")
    parser.add_argument(
        "--command-config", metavar="FILE", help="client configs of a secured listener, as Kafka's own tools take them"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="a further option of the reader"
    )
    return parser


def options_of(chosen: argparse.Namespace) -> dict[str, str]:
    """The reader's options as the arguments say them."""
    options = {**servers_of(chosen), "subscribe": chosen.topics}
    for pair in chosen.option:
        name, separator, value = pair.partition("=")
        if not separator:
            raise SystemExit(f"--option takes NAME=VALUE, not {pair}")
        options[name] = value
    return options


def servers_of(chosen: argparse.Namespace) -> dict[str, str]:
    """Where the brokers are and how one comes in: options of readers and writers alike."""
    options = {"kafka.bootstrap.servers": chosen.bootstrap_servers}
    if chosen.command_config:
        configs = {f"kafka.{name}": text for name, text in read_properties_file(Path(chosen.command_config)).items()}
        options |= {name: text for name, text in configs.items() if is_about_security(name)}
    return options


def read_batch(session: SparkSession, options: dict[str, str]) -> DataFrame:
    return session.read.format("appliance").options(**options).load()


def read_stream(session: SparkSession, options: dict[str, str]) -> DataFrame:
    return session.readStream.format("appliance").options(**{"startingOffsets": "earliest", **options}).load()


def stream_arguments(parser: argparse.ArgumentParser) -> None:
    """What jobs take that are streams."""
    parser.add_argument("--checkpoint", required=True, help="where the query keeps its position and state")
    parser.add_argument(
        "--every", metavar="INTERVAL", help="go on for ever, with a batch every '10 seconds'; else end when all is read"
    )


def to_topic(frame: DataFrame, chosen: argparse.Namespace, topic: str) -> DataStreamWriter:
    """A stream that writes to a topic, exactly once."""
    options = {**servers_of(chosen), "topic": topic, "delivery": "exactly_once"}
    return frame.writeStream.format("appliance").options(**options)


def to_parquet(frame: DataFrame, out: str) -> DataStreamWriter:
    return frame.writeStream.format("parquet").option("path", out)


def run_stream(writer: DataStreamWriter, checkpoint: str, every: str | None = None) -> Facts:
    """Run a query until all is read that is there now, or for ever; tell each batch, and what all of them did.

    Raises: StreamingQueryException: the query failed; it goes on from its checkpoint.
    """
    writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(**({"processingTime": every} if every else {"availableNow": True})).start()
    progress = _Progress()
    try:
        while not query.awaitTermination(PROGRESS_INTERVAL_S):
            progress.take(query.recentProgress)
    except KeyboardInterrupt:
        query.stop()
    progress.take(query.recentProgress)
    return progress.facts


class _Progress:
    """Batches of a query; Spark keeps the last hundred only."""

    def __init__(self) -> None:
        self.facts: Facts = {"batches": 0, "rows": 0, "state_rows": 0, "late_rows": 0}
        self._last = -1

    def take(self, recent: Sequence[Any]) -> None:
        for batch in recent:
            if batch["batchId"] <= self._last:
                continue
            self._last, rows = batch["batchId"], batch["numInputRows"]
            state = batch["stateOperators"]
            self.facts["batches"] += 1
            self.facts["rows"] += rows
            self.facts["state_rows"] = sum(each["numRowsTotal"] for each in state)
            self.facts["late_rows"] += sum(each["numRowsDroppedByWatermark"] for each in state)
            ends = [source["endOffset"] for source in batch["sources"]]
            tell({"batch": self._last, "rows": rows, "ms": batch["batchDuration"], "ends": ends})


PROGRESS_INTERVAL_S = 1


def tell(progress: Facts) -> None:
    """A line of progress: to standard error, so that standard output is the result alone."""
    print(json.dumps({"progress": progress}), file=sys.stderr, flush=True)


@contextmanager
def told_tasks(session: SparkSession) -> Iterator[None]:
    """Tell how many tasks are done, whenever that has changed, while a batch runs."""
    done = threading.Event()
    tracker = session.sparkContext.statusTracker()

    def watch() -> None:
        last: Facts = {}
        while not done.wait(PROGRESS_INTERVAL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            now = {"tasks": sum(s.numTasks for s in known), "done": sum(s.numCompletedTasks for s in known)}
            if known and now != last:
                tell(now)
                last = now

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def run_job(name: str, chosen: argparse.Namespace, job: Callable[[SparkSession], Facts]) -> int:
    """Run a job in a session of its own, and print its facts and its time as JSON."""
    began = time.monotonic()
    session = spark_session(name, cores=chosen.cores)
    try:
        with told_tasks(session):
            facts = job(session)
    finally:
        session.stop()
    print(json.dumps({"job": name, **facts, "seconds": round(time.monotonic() - began, 3)}))
    return 0


def main_of(main: Callable[[Sequence[str]], int]) -> None:
    sys.exit(main(sys.argv[1:]))
