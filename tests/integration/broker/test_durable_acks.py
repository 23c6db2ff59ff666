"""`flush.messages=1` on a running broker: one flush for many requests, none believed after a failed one."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.produce import PartitionProduceResponse
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, new_topic, produce

CLIENTS = 24
WAIT_S = 15


class Gate:
    """Counts the flushes of a topic's log files; while closed it lets none of them begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.flushes: list[str] = []
        self.is_open = threading.Event()
        self.began = threading.Event()
        self.error = 0
        real = SystemDisk.fdatasync

        def fdatasync(disk: SystemDisk, descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.parent.name.startswith(f"{topic}-"):
                self.flushes.append(path.parent.name)
                self.began.set()
                assert self.is_open.wait(WAIT_S)
                if self.error:
                    raise OSError(self.error, "on purpose")
            real(disk, descriptor)

        monkeypatch.setattr(SystemDisk, "fdatasync", fdatasync)


def connect(cluster: RunningCluster) -> Connection:
    return Connection("127.0.0.1", cluster.brokers[1].port, client_id="other", timeout_ms=WAIT_S * 1_000)


@contextmanager
def waiting_producers(
    cluster: RunningCluster, gate: Gate, topic: CreatableTopicResult, folder: Path
) -> Iterator[list[PartitionProduceResponse]]:
    """The first one's flush has begun when the others' records are written; then all go on."""
    answers: list[PartitionProduceResponse] = []

    def one() -> None:
        with connect(cluster) as connection:
            answers.append(produce(connection, topic, batch_of(b"x")))

    with ThreadPoolExecutor(CLIENTS) as pool:
        work = [pool.submit(one)]
        assert gate.began.wait(WAIT_S)
        (file,) = folder.glob(f"**/{topic.name}-0/*.log")
        size = file.stat().st_size
        work += [pool.submit(one) for _ in range(CLIENTS - 1)]
        end = time.monotonic() + WAIT_S
        while file.stat().st_size < CLIENTS * size and time.monotonic() < end:
            time.sleep(0.01)
        assert file.stat().st_size == CLIENTS * size and answers == [], "nothing is acknowledged before it is durable"
        gate.is_open.set()
        for each in work:
            each.result(WAIT_S)
    yield answers


def test_one_flush_is_for_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_cluster(tmp_path) as cluster, connect(cluster) as connection:
        topic = new_topic(connection, configs={"flush.messages": "1"})
        gate = Gate(monkeypatch, topic.name)
        with waiting_producers(cluster, gate, topic, tmp_path) as answers:
            assert sorted(answer.base_offset for answer in answers) == list(range(CLIENTS))
            assert len(gate.flushes) == 2, "one for the first, one for all that came meanwhile"


def test_after_a_failed_flush_nothing_was_acknowledged_and_other_directories_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    with running_cluster(tmp_path, log_dirs=directories) as cluster, connect(cluster) as connection:
        topic = new_topic(connection, partitions=2, configs={"flush.messages": "1"})
        gate = Gate(monkeypatch, topic.name)
        gate.error = errno.EIO
        with waiting_producers(cluster, gate, topic, tmp_path) as answers:
            assert len(answers) == CLIENTS
            assert not [answer for answer in answers if answer.error_code == ErrorCode.NONE]
        gate.error = 0
        assert produce(connection, topic, batch_of(b"x"), partition=1).error_code == ErrorCode.NONE
        assert produce(connection, topic, batch_of(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert set(gate.flushes) == {f"{topic.name}-0", f"{topic.name}-1"}
