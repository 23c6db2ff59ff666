"""What a request costs the broker's event loop, counted and not timed: calls of our functions, and system calls.

A rise fails here. If it is worth its price, commit the new number with the reason beside it; a fall is committed too,
so that it stays. The polls of the loop itself (epoll) are not seen: it makes them in C.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.client.connection import Connection
from appliance.wire.codec import encode_request
from appliance.wire.messages.create_topics import CreatableTopicResult
from tests.support.broker import RunningCluster, running_cluster
from tests.support.call_counter import CallCounter
from tests.support.requests import batch_of, fetch_request, new_topic, produce, produce_request
from tests.support.server import receive_frame

REQUESTS = 1_000


@dataclass(frozen=True)
class Budget:
    """For one request."""

    calls: float
    system_calls: float


BUDGETS = {
    # recv, writev, send; the calls are readable → frames → raw produce → append → stage, then the tick: hook → write →
    # advance → wake, end of tick → late answer → send. Nine of them ask for lease and clocks and count the loop's lag,
    # once a tick.
    "produce": Budget(calls=28.2, system_calls=3),
    # Eight requests in one segment: one recv, one writev, one send.
    "produce, 8 in flight": Budget(calls=7.33, system_calls=0.375),
    # The same with a producer id: its state is checked and kept.
    "produce, idempotent": Budget(calls=30.2, system_calls=3),
    # Eleven calls for each partition: crc, append, stage, and those of its write. 50 writev; recv and send.
    "produce, 50 partitions": Budget(calls=542, system_calls=52),
    # The short way: recv, preadv to find the batch and of the small piece, send.
    "fetch, small": Budget(calls=42, system_calls=4),
    # recv; preadv to find the batch's end and to see that the pages are cached; send with MSG_MORE, sendfile.
    "fetch, 60 kB": Budget(calls=62, system_calls=8),
    # recv, send: nothing is read for those that did not change. One call is the short way's, which is not for sessions.
    "fetch, session with 200 idle partitions": Budget(calls=56, system_calls=2),
}


@pytest.fixture(scope="module")
def counter() -> CallCounter:
    return CallCounter("broker-1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, counter: CallCounter) -> Iterator[RunningCluster]:
    folder: Path = tmp_path_factory.mktemp("hot-path")
    with counter.watching(), running_cluster(folder) as running:
        yield running


@dataclass
class Client:
    """Sends requests that were encoded before, some at once, and takes the answers."""

    sock: socket.socket

    def exchange(self, frames: list[bytes], at_once: int = 1) -> list[bytes]:
        answers: list[bytes] = []
        for first in range(0, len(frames), at_once):
            some = frames[first : first + at_once]
            self.sock.sendall(b"".join(some))
            answers += [receive_frame(self.sock) for _ in some]
        return answers


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[Client]:
    with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Client(sock)


def encoded(request: object, version: int) -> bytes:
    return encode_request(request, version, 7, "test")  # type: ignore[arg-type]


def check(name: str, counter: CallCounter, run: Callable[[], object], requests: int) -> None:
    """The least of three runs: now and then the kernel hands a request over in two pieces."""
    calls, system_calls = float("inf"), float("inf")
    for _ in range(3):
        with counter.counting():
            run()
        calls = min(calls, sum(counter.calls.values()) / requests)
        system_calls = min(system_calls, sum(counter.system_calls.values()) / requests)
    most = counter.calls.most_common(40), counter.system_calls.most_common(10)
    budget = BUDGETS[name]
    assert calls <= 1.01 * budget.calls, (name, calls, most)
    assert system_calls <= 1.01 * budget.system_calls, (name, system_calls, most)
    if sys.version_info[:2] == (3, 11):
        # Later versions of Python make fewer calls (comprehensions are none there).
        assert calls >= 0.97 * budget.calls, f"{name}: {calls} calls a request; commit the fall"
    assert system_calls >= 0.97 * budget.system_calls, f"{name}: {system_calls} system calls; commit the fall"


def warmed(client: Client, frames: list[bytes]) -> None:
    """The first requests of a connection learn its shape, and the first of a topic open its files."""
    for _ in range(5):
        client.exchange(frames[:8])


@pytest.mark.parametrize(("name", "at_once"), [("produce", 1), ("produce, 8 in flight", 8)])
def test_produce(connection: Connection, client: Client, counter: CallCounter, name: str, at_once: int) -> None:
    topic = new_topic(connection)
    frames = [encoded(produce_request(topic, {0: batch_of(b"x" * 100)}), 12)] * REQUESTS
    warmed(client, frames)
    check(name, counter, lambda: client.exchange(frames, at_once), REQUESTS)


def test_idempotent_produce(connection: Connection, client: Client, counter: CallCounter) -> None:
    topic = new_topic(connection)
    runs = [
        [
            encoded(
                produce_request(
                    topic,
                    {0: batch_of(b"x" * 100, producer_id=9_000 + run, producer_epoch=0, base_sequence=number)},
                    acks=-1,
                ),
                12,
            )
            for number in range(REQUESTS)
        ]
        for run in range(4)
    ]
    client.exchange(runs.pop())
    check("produce, idempotent", counter, lambda: client.exchange(runs.pop()), REQUESTS)


def test_produce_to_many_partitions(connection: Connection, client: Client, counter: CallCounter) -> None:
    topic = new_topic(connection, partitions=50)
    batch = batch_of(b"x" * 100)
    frames = [encoded(produce_request(topic, dict.fromkeys(range(50), batch)), 12)] * 100
    warmed(client, frames)
    check("produce, 50 partitions", counter, lambda: client.exchange(frames), len(frames))


def filled(connection: Connection, value_bytes: int) -> CreatableTopicResult:
    topic = new_topic(connection)
    for _ in range(3):
        assert produce(connection, topic, batch_of(b"x" * value_bytes)).error_code == 0
    return topic


@pytest.mark.parametrize(("name", "value_bytes"), [("fetch, small", 100), ("fetch, 60 kB", 60_000)])
def test_fetch(connection: Connection, client: Client, counter: CallCounter, name: str, value_bytes: int) -> None:
    topic = filled(connection, value_bytes)
    request = fetch_request(topic, {0: 1}, partition_max_bytes=value_bytes + 1_000)
    frames = [encoded(request, 12)] * REQUESTS
    warmed(client, frames)
    check(name, counter, lambda: client.exchange(frames), REQUESTS)


def test_a_fetch_pays_nothing_for_idle_partitions(connection: Connection, client: Client, counter: CallCounter) -> None:
    topic = new_topic(connection, partitions=200)
    (first,) = client.exchange([encoded(fetch_request(topic, dict.fromkeys(range(200), 0), session_epoch=0), 12)])
    (session_id,) = struct.unpack_from(">i", first, 4 + 1 + 4 + 2)
    assert session_id
    frames = []
    for epoch in range(1, 3 * REQUESTS + 10):
        request = fetch_request(topic, {}, session_id=session_id, session_epoch=epoch)
        request.topics = []
        frames.append(encoded(request, 12))
    client.exchange([frames.pop(0) for _ in range(5)])

    def run() -> None:
        client.exchange([frames.pop(0) for _ in range(REQUESTS)])

    check("fetch, session with 200 idle partitions", counter, run, REQUESTS)


def test_a_wake_up_reads_the_partition_that_changed_and_no_other(
    connection: Connection, client: Client, counter: CallCounter
) -> None:
    calls = [_calls_of_long_polls(connection, client, counter, partitions) for partitions in (2, 200)]
    assert calls[0] > 100, "it was counted"
    assert calls[1] <= calls[0] + 1, calls


def _calls_of_long_polls(connection: Connection, client: Client, counter: CallCounter, partitions: int) -> float:
    """Calls for one long poll and the record that ends it, at the least."""
    topic = new_topic(connection, partitions=partitions)
    opening = fetch_request(topic, dict.fromkeys(range(partitions), 0), session_epoch=0)
    (first,) = client.exchange([encoded(opening, 12)])
    (session_id,) = struct.unpack_from(">i", first, 4 + 1 + 4 + 2)
    least = float("inf")
    for epoch in range(1, 12):
        request = fetch_request(topic, {1: epoch - 1}, max_wait_ms=10_000, session_id=session_id, session_epoch=epoch)
        with counter.counting():
            client.sock.sendall(encoded(request, 12))
            # It must wait before the record comes; too early it is answered at once, which is no wake-up.
            time.sleep(0.02)
            assert produce(connection, topic, batch_of(b"x"), partition=1).error_code == 0
            assert len(receive_frame(client.sock)) > 100
        if epoch > 1:
            # The first incremental fetch looks at all partitions once.
            least = min(least, sum(counter.calls.values()))
    return least
