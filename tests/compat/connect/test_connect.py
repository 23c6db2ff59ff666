"""Kafka Connect's own workers, standalone and distributed: lines of a file go through a topic into another file."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compat import Server, read_topic, wait_until
from tests.support.kafka_peer import free_port
from tests.support.programs import RunningProgram, java_program, needs_a_build

pytestmark = [pytest.mark.java, needs_a_build]

FILE = "org.apache.kafka.connect.file"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
PATIENCE_S = 120.0
Start = Callable[..., RunningProgram]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(kind, worker, *connectors)`: a worker with these properties."""
    started: list[RunningProgram] = []

    def start(kind: str, *properties: Path) -> RunningProgram:
        command = java_program(Path(__file__).parent, f"org.apache.kafka.connect.cli.Connect{kind}")
        started.append(RunningProgram([*command, *map(str, properties)]))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def properties(path: Path, content: dict[str, Any]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in content.items()))
    return path


def source(name: str, file: Path, topic: str) -> dict[str, Any]:
    connector = f"{FILE}.FileStreamSourceConnector"
    # At its default `batch.size`: with a smaller one it keeps back what it has read until the file grows.
    return {"name": name, "connector.class": connector, "tasks.max": 1, "file": file, "topic": topic}


def sink(name: str, file: Path, topic: str) -> dict[str, Any]:
    return {
        "name": name,
        "connector.class": f"{FILE}.FileStreamSinkConnector",
        "tasks.max": 2,
        "file": file,
        "topics": topic,
        "consumer.override.session.timeout.ms": 6_000,
        "consumer.override.heartbeat.interval.ms": 500,
    }


def worker(server: Server, port: int, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap_servers,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.flush.interval.ms": 500,
        # A worker that has too little time to end well leaves its last offsets unwritten, and lines come twice.
        "offset.flush.timeout.ms": 60_000,
        "task.shutdown.graceful.timeout.ms": 60_000,
        **{name.replace("_", "."): value for name, value in options.items()},
    }


def append(file: Path, numbers: range) -> None:
    """Lines of ASCII: Kafka's file source counts letters where it has to know bytes, and would read some again."""
    with file.open("a") as to:
        to.writelines(f"line {number}\n" for number in numbers)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def lines(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def standalone(server: Server, start: Start, folder: Path, group_id: str, *counts: int) -> None:
    """A worker for each of these counts of lines, one after the other: all that is read is written, once."""
    topic, read, written = server.new_topic(), folder / "in", folder / "out"
    options = {"offset_storage_file_filename": folder / "offsets"}
    files = [
        properties(folder / "worker", worker(server, free_port(), **options)),
        properties(folder / "source", source(f"source-{group_id}", read, topic)),
        properties(folder / "sink", sink(f"sink-{group_id}", written, topic)),
    ]

    def work_until_there_are(count: int) -> None:
        append(read, range(len(lines_of(read)), count))
        running = start("Standalone", *files)
        running.until(lambda: len(lines_of(written)) >= count)
        running.stop()
        assert lines_of(written) == lines(count), running.text

    for count in counts:
        work_until_there_are(count)
    assert [(message.value() or b"").decode() for message in read_topic(server, topic)] == lines(counts[-1])
    groups = server.admin.list_consumer_groups().result(PATIENCE_S).valid
    assert f"connect-sink-{group_id}" in {group.group_id for group in groups}


def test_a_standalone_worker_moves_lines(server: Server, start: Start, tmp_path: Path, group_id: str) -> None:
    standalone(server, start, tmp_path, group_id, 100)


@pytest.mark.compat
def test_a_standalone_worker_goes_on_where_it_was_stopped(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    standalone(server, start, tmp_path, group_id, 100, 250)


class Workers:
    """Distributed workers of one group, and their REST interface."""

    def __init__(self, server: Server, start: Start, folder: Path, group_id: str, **options: Any) -> None:
        self._server, self._start, self._folder, self._group_id = server, start, folder, group_id
        self._options = options

    def start(self) -> tuple[int, RunningProgram]:
        port = free_port()
        topics = {
            f"{kind}_storage_{key}": value
            for kind in ("config", "offset", "status")
            for key, value in {"topic": f"{self._group_id}-{kind}", "replication_factor": 1}.items()
        }
        group = {
            "group_id": self._group_id,
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 500,
            "scheduled_rebalance_max_delay_ms": 0,
            "offset_storage_partitions": 5,
            "status_storage_partitions": 2,
        }
        content = worker(self._server, port, **topics, **group, **self._options)
        running = self._start("Distributed", properties(self._folder / f"worker-{port}", content))
        running.until(lambda: self.connectors(port) is not None)
        return port, running

    def connectors(self, port: int) -> Any:
        return self._ask(port, "/connectors")

    def put(self, port: int, config: dict[str, Any]) -> None:
        """Refused while the group settles (409), so it may take a second try."""
        body = json.dumps({name: str(value) for name, value in config.items()}).encode()
        path = f"/connectors/{config['name']}/config"
        wait_until(lambda: self._ask(port, path, body) is not None, patience_s=PATIENCE_S)

    def state(self, port: int, name: str) -> list[str]:
        told = self._ask(port, f"/connectors/{name}/status")
        return [told["connector"]["state"], *(task["state"] for task in told["tasks"])] if told else []

    def place(self, port: int, name: str) -> str:
        """The address of the worker that has the first task; nothing where there is no answer."""
        told = self._ask(port, f"/connectors/{name}/status")
        return str(told["tasks"][0]["worker_id"]) if told and told["tasks"] else ""

    def _ask(self, port: int, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method="PUT" if body else "GET")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (OSError, http.client.HTTPException):  # what it refuses, or does not answer in time
            return None


@pytest.mark.compat
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
def test_a_distributed_worker_takes_over_from_one_that_was_killed(
    server: Server, start: Start, tmp_path: Path, group_id: str, exactly_once: bool
) -> None:
    """With exactly-once sources offsets and lines are written in one transaction, so that no line comes twice."""
    options = {"exactly_once_source_support": "enabled"} if exactly_once else {}
    workers = Workers(server, start, tmp_path, group_id, **options)
    topic, read, written = server.new_topic(2), tmp_path / "in", tmp_path / "out"
    names = [f"source-{group_id}", f"sink-{group_id}"]
    (one, first), (two, second) = workers.start(), workers.start()
    append(read, range(200))
    workers.put(one, source(names[0], read, topic) | ({"exactly.once.support": "required"} if exactly_once else {}))
    workers.put(two, sink(names[1], written, topic) | {"consumer.override.isolation.level": "read_committed"})
    first.until(lambda: workers.state(one, names[0]) == ["RUNNING"] * 2)
    second.until(lambda: workers.state(two, names[1]) == ["RUNNING"] * 3)
    first.until(lambda: len(lines_of(written)) >= 200)

    second.until(lambda: workers.place(two, names[0]))
    at_first = workers.place(two, names[0]).endswith(f":{one}")
    victim, heir, left = (first, second, two) if at_first else (second, first, one)
    append(read, range(200, 300))
    victim.kill()
    append(read, range(300, 400))
    heir.until(lambda: workers.state(left, names[0]) == ["RUNNING"] * 2)
    heir.until(lambda: set(lines(400)) <= set(lines_of(written)))

    # All of them are gone for a while, and a new one knows what to do.
    heir.stop()
    append(read, range(400, 450))
    three, third = workers.start()
    # It answers before it has read its configs.
    third.until(lambda: sorted(workers.connectors(three) or []) == sorted(names))
    third.until(lambda: set(lines(450)) <= set(lines_of(written)))
    third.stop()
    messages = read_topic(server, topic, 2, isolation_level="read_committed")
    values = sorted((message.value() or b"").decode() for message in messages)
    if exactly_once:
        assert values == sorted(lines(450))
    else:
        assert set(values) == set(lines(450))
