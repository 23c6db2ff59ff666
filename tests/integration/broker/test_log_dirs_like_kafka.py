"""DescribeLogDirs with two data directories, beside Apache Kafka: the same bytes, the same questions."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.support.broker import running_cluster
from tests.support.java_tools import tool
from tests.support.kafka_peer import KafkaPeer
from tests.support.requests import batch_of, new_topic, produce

PARTITIONS = 6
FAILED_WITHIN_S = 30
SERVERS = ["appliance", "kafka"]


@contextmanager
def server_of(kind: str, folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """bootstrap.servers and the two data directories of a running server."""
    if kind == "kafka":
        folders = [folder / "data", folder / "data2"]
        properties = {
            "log.dirs": ",".join(map(str, folders)),
            "log.flush.offset.checkpoint.interval.ms": "200",
            # The metadata log has a directory of its own, or losing that one would end the node.
            "metadata.log.dir": str(folder / "metadata"),
        }
        with KafkaPeer(properties=properties, folder=folder) as peer:
            yield peer.bootstrap_servers, folders
    else:
        folders = [folder / "disk1", folder / "disk2"]
        with running_cluster(folder, log_dirs=folders) as cluster:
            yield cluster.bootstrap_servers, [each / "broker-1" for each in folders]


def connect(bootstrap_servers: str) -> Connection:
    host, _, port = bootstrap_servers.rpartition(":")
    return Connection(host, int(port), timeout_ms=20_000)


def ask(connection: Connection, version: int, topics: dict[str, list[int]] | None) -> list[DescribeLogDirsResult]:
    named = None if topics is None else [DescribableLogDirTopic(topic=t, partitions=p) for t, p in topics.items()]
    response = connection.call(DescribeLogDirsRequest(topics=named), version)
    assert response.error_code == 0
    return response.results


def told(results: list[DescribeLogDirsResult], folders: list[Path], topic: str) -> list[tuple]:
    """What a client sees of one topic, without the names of folders and the numbers of partitions."""
    assert sorted(result.log_dir for result in results) == sorted(map(str, folders))
    rows = []
    for result in results:
        parts = [part for found in result.topics if found.name == topic for part in found.partitions]
        sizes = sorted((part.partition_size, part.offset_lag, part.is_future_key) for part in parts)
        space = result.total_bytes > result.usable_bytes > 0 if result.total_bytes >= 0 else None
        rows.append((result.error_code, sizes, space, result.is_cordoned))
    return sorted(rows, key=str)


def filled(connection: Connection) -> CreatableTopicResult:
    topic = new_topic(connection, partitions=PARTITIONS, name="six")
    batch = batch_of(b"x" * 1_000)
    deadline = time.monotonic() + FAILED_WITHIN_S
    for partition in range(PARTITIONS):
        # Kafka answers CreateTopics before the leaders know.
        while produce(connection, topic, batch, partition=partition).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    return topic


def observe(kind: str, folder: Path) -> dict[str, object]:
    """Everything that a client can find out, healthy and with a directory that was taken away."""
    seen: dict[str, object] = {}
    with server_of(kind, folder) as (servers, folders), connect(servers) as connection:
        topic = filled(connection)
        for version in range(1, 6):
            seen[f"all, version {version}"] = told(ask(connection, version, None), folders, "six")
        # Which partition lies where is each server's own choice.
        seen["two of it"] = sum(len(rows) for _, rows, *_ in told(ask(connection, 5, {"six": [0, 5]}), folders, "six"))
        seen["no such"] = told(ask(connection, 5, {"six": [17], "none": [0]}), folders, "six")
        seen["nothing asked for"] = [len(result.topics) for result in ask(connection, 5, {})]
        output = tool("LogDirsCommand", "--bootstrap-server", servers, "--describe", "--topic-list", "six")
        (line,) = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        (broker,) = line["brokers"]
        assert sorted(each["logDir"] for each in broker["logDirs"]) == sorted(map(str, folders))
        seen["kafka-log-dirs"] = sorted(
            (each["error"], sorted((p["size"], p["offsetLag"], p["isFuture"]) for p in each["partitions"]))
            for each in broker["logDirs"]
        )
        shutil.rmtree(folders[1])
        folders[1].write_text("no folder any more")
        # Who begins a log there finds out.
        new_topic(connection, partitions=2, name="found-out")
        deadline = time.monotonic() + FAILED_WITHIN_S
        while not any(result.error_code == ErrorCode.KAFKA_STORAGE_ERROR for result in ask(connection, 5, None)):
            assert time.monotonic() < deadline, "the directory is not missed"
            time.sleep(0.1)
        seen["one is gone"] = told(ask(connection, 5, None), folders, "six")
        produce(connection, topic, batch_of(b"more"), partition=0)
    return seen


@pytest.fixture(scope="module")
def kafka_saw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return observe("kafka", tmp_path_factory.mktemp("kafka"))


def test_clients_are_told_what_apache_kafka_tells_them(tmp_path: Path, kafka_saw: dict[str, object]) -> None:
    ours = observe("appliance", tmp_path)
    assert ours == kafka_saw
    assert [len(sizes) for _, sizes, *_ in ours["all, version 5"]] == [3, 3]  # type: ignore[attr-defined]
    assert [code for code, *_ in ours["one is gone"]] == [0, 56]  # type: ignore[attr-defined]


@pytest.mark.soak
@pytest.mark.parametrize("kind", SERVERS)
def test_kafkas_tool_moves_replicas_between_directories(kind: str, tmp_path: Path) -> None:
    with server_of(kind, tmp_path) as (servers, folders), connect(servers) as connection:
        topic = filled(connection)

        def partitions_in(folder: Path) -> list[int]:
            (result,) = [
                each
                for each in ask(connection, 4, {topic.name: list(range(PARTITIONS))})
                if each.log_dir == str(folder)
            ]
            return sorted(part.partition_index for found in result.topics for part in found.partitions)

        def reassign(*arguments: str) -> str:
            name = "reassign.ReassignPartitionsCommand"
            return tool(name, "--bootstrap-server", servers, "--reassignment-json-file", str(plan), *arguments)

        moved = partitions_in(folders[0])
        rows = [
            {"topic": topic.name, "partition": each, "replicas": [1], "log_dirs": [str(folders[1])]}
            for each in range(PARTITIONS)
        ]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        said = reassign("--execute", "--replica-alter-log-dirs-throttle", "100000000")
        for each in moved:
            assert f"log directory to {folders[1]} for replica {topic.name}-{each} with broker 1" in said, said
        deadline = time.monotonic() + FAILED_WITHIN_S
        while partitions_in(folders[1]) != list(range(PARTITIONS)) or partitions_in(folders[0]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        said = reassign("--verify")
        completed = f"Reassignment of replica {topic.name}-{moved[0]}-1 completed successfully."
        assert completed in said, said
        for partition in range(PARTITIONS):
            assert produce(connection, topic, batch_of(b"more"), partition=partition).base_offset == 1
