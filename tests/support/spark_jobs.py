"""What tests of Spark jobs share: a broker, topics with known records, and jobs run as a user runs them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.partitioner import partition_for_key
from appliance.client.results import NewTopic
from appliance.records.builder import NewRecord, build_batch
from spark.options import parse_options
from spark.planning import plan_batch
from spark.reading import read_split
from tests.support.broker import running_cluster


@dataclass
class JobsCluster:
    """One broker with a tier."""

    servers: str
    client: Client

    def topic(self, name: str, partitions: int = 2, **configs: str) -> str:
        self.client.create_topics([NewTopic(name, partitions, configs={"retention.ms": "-1", **configs})])
        return name

    def write(self, topic: str, partition: int, records: Sequence[NewRecord]) -> None:
        for first in range(0, len(records), 2_000):
            batch = build_batch(records[first : first + 2_000])
            self.client.produce(TopicPartition(topic, partition), batch)

    def write_by_key(self, topic: str, partitions: int, records: Sequence[NewRecord]) -> None:
        """As Kafka's producers do."""
        parts: dict[int, list[NewRecord]] = {}
        for record in records:
            assert record[1] is not None
            parts.setdefault(partition_for_key(record[1], partitions), []).append(record)
        for number, rows in parts.items():
            self.write(topic, number, rows)

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "subscribe": topic, **more}

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """What a read_committed reader finds, without Spark."""
        options = parse_options(self.options(topic, isolationLevel="read_committed"))
        columns = ("key", "value", "partition", "offset", "timestamp", "headers")
        plan = plan_batch(options)
        splits, options = plan.splits, dataclasses.replace(options, object_store=plan.object_store or None)
        return [row for split in splits for rows in read_split(options, columns, split) for row in rows.to_pylist()]

    def values(self, topic: str) -> list[bytes]:
        return sorted(row["value"] for row in self.rows(topic))

    def arguments(self, topic: str, *more: str) -> list[str]:
        return ["--bootstrap-servers", self.servers, "--topics", topic, *more]


@contextmanager
def jobs_cluster(folder: Path, **properties: str) -> Iterator[JobsCluster]:
    with running_cluster(folder, brokers=1, properties=properties) as servers, Client(servers.bootstrap_servers) as own:
        yield JobsCluster(servers.bootstrap_servers, own)


class KeptSession:
    """The session that all tests share, which a job must not stop."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    def stop(self) -> None:
        """Left to the fixture."""


class JobRunner:
    """Runs a job's `main` in the shared session; gives what it printed at the end."""

    def __init__(self, session: SparkSession, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        patch.setattr("spark.jobs.common.spark_session", lambda *_, **__: KeptSession(session))
        self._captured = captured
        self.lines: list[str] = []
        """What came before the facts."""
        self.progress: list[dict[str, Any]] = []

    def __call__(self, main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> dict[str, Any]:
        assert main(arguments) == 0
        told = self._captured.readouterr()
        *self.lines, last = told.out.splitlines()
        lines = [line for line in told.err.splitlines() if line.startswith('{"progress"')]
        self.progress = [json.loads(line)["progress"] for line in lines]
        facts: dict[str, Any] = json.loads(last)
        assert facts["seconds"] >= 0
        return facts
