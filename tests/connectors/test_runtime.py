"""The runtime before a real broker: REST, tasks in processes, restarts, resumption, and history from the tier."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.builder import build_batch
from connectors.runtime import launchers
from connectors.runtime.service import serve
from tests.support.broker import RunningCluster, running_cluster
from tests.support.services import records_in, running_service

WAIT_S = 40


@dataclass
class Worker:
    url: str
    cluster: RunningCluster
    client: Client

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def task(self, name: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"/connectors/{name}/status")[1]["tasks"][0])


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("connect")
    with running_cluster(folder, brokers=1, properties={"tiering.task.interval.ms": "100"}) as cluster:
        servers = cluster.bootstrap_servers
        with (
            running_service(serve, "connect", servers, folder, cluster.object_store) as url,
            Client(servers) as client,
        ):
            yield Worker(url, cluster, client)


def eventually(what: str, check: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline_s, f"after {WAIT_S} s still not: {what}"
        time.sleep(0.1)


def values(client: Client, topic: str) -> list[bytes | None]:
    return [record.value for record in records_in(client, topic)]


def source(path: Path, topic: str, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, **more}


def test_a_connector_lives_by_connects_rest_api(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text("one\ntwo\n")
    status, made = worker.ask("POST", "/connectors", {"name": "life", "config": source(path, "life")})
    assert status == 201
    assert (made["name"], made["type"], made["config"]["name"]) == ("life", "source", "life")
    assert made["tasks"] == [{"connector": "life", "task": 0}]
    eventually("two records", lambda: len(values(worker.client, "life")) == 2 if "life" in topics(worker) else False)
    assert "life" in worker.ask("GET", "/connectors")[1]
    assert worker.ask("GET", "/connectors/life/config")[1]["topic"] == "life"
    eventually("RUNNING", lambda: worker.task("life")["state"] == "RUNNING" and worker.task("life")["records"] == 2)
    assert worker.ask("POST", "/connectors", {"name": "life", "config": source(path, "life")})[0] == 409
    assert worker.ask("PUT", "/connectors/life/pause")[0] == 202
    assert worker.task("life")["state"] == "PAUSED"
    path.write_text("one\ntwo\nthree\n")
    assert worker.ask("PUT", "/connectors/life/resume")[0] == 202
    eventually("the third record", lambda: values(worker.client, "life") == [b"one", b"two", b"three"])
    assert worker.ask("DELETE", "/connectors/life")[0] == 204
    assert worker.ask("GET", "/connectors/life/status") == (
        404,
        {"error_code": 404, "message": "Connector life not found"},
    )


def topics(worker: Worker) -> list[str]:
    return list(worker.client.metadata().topics)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        ({"config": {}}, 400, "name"),
        ({"name": "x"}, 400, "config is missing"),
        ({"name": "x", "config": {"topic": "t"}}, 400, "connector.class: is missing"),
        ({"name": "x", "config": {"connector.class": "No"}}, 400, "No is not known"),
        ({"name": "x", "config": {"connector.class": "FileStreamSource"}}, 400, "file: is missing; topic: is missing"),
        ({"name": "x", "config": {"connector.class": "FileStreamSink", "file": "f"}}, 400, "topics: is missing"),
        ({"name": "x", "config": {"connector.class": {"a": 1}}}, 422, "connector.class"),
    ],
)
def test_a_wrong_request_is_told_in_connects_form(worker: Worker, body: Any, status: int, message: str) -> None:
    got, answer = worker.ask("POST", "/connectors", body)
    assert (got, answer["error_code"]) == (status, status)
    assert message in answer["message"]
    assert "x" not in worker.ask("GET", "/connectors")[1]


def test_a_task_that_fails_says_why_and_harms_nobody(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"\xff\n")
    worker.ask("POST", "/connectors", {"name": "broken", "config": source(path, "broken")})
    eventually("FAILED", lambda: worker.task("broken")["state"] == "FAILED")
    assert "is not UTF-8" in worker.task("broken")["trace"]
    path.write_bytes(b"fine\n")
    assert worker.ask("POST", "/connectors/broken/restart")[0] == 204
    eventually("the mended record", lambda: worker.task("broken")["records"] == 1)
    worker.ask("DELETE", "/connectors/broken")


def test_a_killed_task_goes_on_and_nothing_is_lost(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Any] = []
    start = launchers.LocalLauncher.start

    def remember(launcher: launchers.LocalLauncher, spec: Any) -> Any:
        children.append(start(launcher, spec))
        return children[-1]

    monkeypatch.setattr(launchers.LocalLauncher, "start", remember)
    path = tmp_path / "killed"
    lines = [b"line %d" % number for number in range(60_000)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    config = source(path, "killed", **{"batch.size": "500"})
    worker.ask("POST", "/connectors", {"name": "killed", "config": config})
    eventually("some records", lambda: worker.task("killed")["records"] > 1_000)
    os.kill(children[0].pid, signal.SIGKILL)
    assert worker.task("killed")["records"] < 60_000, "the kill came too late to show anything"
    eventually("the last line", lambda: values(worker.client, "killed")[-1:] == [lines[-1]])
    # The last line may have been written by the one that was killed.
    eventually("a second life", lambda: len(children) == 2)
    got = values(worker.client, "killed")
    # At least once: what was written and not yet committed at the kill comes again, at most one batch of it.
    assert sorted(set(got)) == sorted(lines)
    assert len(got) - len(lines) <= 500
    worker.ask("DELETE", "/connectors/killed")


def test_connectors_come_back_and_resume_after_a_restart_of_the_worker(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "again"
    path.write_text("one\n")
    servers, store = worker.cluster.bootstrap_servers, worker.cluster.object_store
    worker.ask("POST", "/connectors", {"name": "again", "config": source(path, "again")})
    eventually("one record", lambda: worker.task("again")["records"] == 1)
    worker.ask("PUT", "/connectors/again/pause")
    path.write_text("one\ntwo\n")
    with running_service(serve, "connect", servers, tmp_path, store) as url:
        other = Worker(url, worker.cluster, worker.client)
        assert other.task("again")["state"] == "PAUSED"
        other.ask("PUT", "/connectors/again/resume")
        eventually("the second record, once", lambda: values(worker.client, "again") == [b"one", b"two"])
    worker.ask("DELETE", "/connectors/again")


def test_a_sink_reads_history_from_the_tier_and_goes_on_with_the_broker(worker: Worker, tmp_path: Path) -> None:
    tp = TopicPartition("history", 0)
    configs = {"segment.bytes": str(1 << 20), "local.retention.bytes": "1", "retention.ms": "-1"}
    worker.client.create_topics([NewTopic("history", 1, configs=configs)])
    value = b"x" * 1_000
    for first in range(0, 5_000, 100):
        worker.client.produce(tp, build_batch([(1, None, b"%d " % n + value, []) for n in range(first, first + 100)]))
    eventually(
        "old segments are only in the object store", lambda: worker.client.list_offsets({tp: -4})[tp].offset > 3_000
    )
    local_start = worker.client.list_offsets({tp: -4})[tp].offset
    folder = tmp_path / "out"
    config = {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "history",
        "store.url": str(folder),
        "flush.size": "1000",
    }
    worker.ask("POST", "/connectors", {"name": "archive", "config": config})
    eventually("5,000 records", lambda: worker.task("archive")["records"] == 5_000)
    for first in range(5_000, 7_000, 100):
        worker.client.produce(tp, build_batch([(1, None, b"%d " % n + value, []) for n in range(first, first + 100)]))
    eventually("7 files", lambda: len(list(folder.rglob("*.json"))) == 7)
    lines = [line for path in sorted(folder.rglob("*.json")) for line in path.read_bytes().splitlines()]
    assert [int(line.split()[0]) for line in lines] == list(range(7_000))
    assert local_start <= worker.task("archive")["tiered_records"] <= 5_000
    worker.ask("DELETE", "/connectors/archive")
