"""A leader never waits on its event loop for the disk that a follower's batches lie on."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from appliance.base.disk import WouldWait
from appliance.client.connection import Connection
from appliance.server.handlers import replica_fetch
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from appliance.wire.messages.produce import ProduceResponse
from tests.support.broker import running_cluster
from tests.support.replicated import until
from tests.support.requests import batch_of, produce_request
from tests.support.server import receive_frame

BATCHES = 40


class NothingCached:
    """Pages, none of which is in memory."""

    def __init__(self) -> None:
        self.refused = 0

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        self.refused += 1
        raise WouldWait("not in memory")


def takes(port: int, frame: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(frame)
        _, response = decode_response(ProduceResponse, receive_frame(sock), 12)
        return response.responses[0].partition_responses[0].error_code == 0


def test_a_follower_gets_on_where_its_batches_must_be_found_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, threads = NothingCached(), set()
    real = replica_fetch._find_and_warm

    def find_and_warm(*arguments: Any) -> None:
        threads.add(threading.current_thread().name)
        real(*arguments)

    monkeypatch.setattr(replica_fetch, "CACHED_PAGES", pages)
    monkeypatch.setattr(replica_fetch, "_find_and_warm", find_and_warm)
    # One batch for each fetch: the next one has to be looked for.
    with running_cluster(tmp_path, brokers=2, properties={"replica.fetch.max.bytes": "1"}) as cluster:
        brokers = list(cluster.brokers.values())
        with Connection("127.0.0.1", brokers[0].port, client_id="test", timeout_ms=10_000) as connection:
            topic = CreatableTopic(name="cold", num_partitions=1, replication_factor=2)
            (created,) = connection.call(CreateTopicsRequest(topics=[topic])).topics
            assert created.error_code == 0, created
        one = encode_request(produce_request(created, {0: (batch := batch_of(b"x" * 100))}), 12, 7, "test")
        port = until(lambda: next((each.port for each in brokers if takes(each.port, one)), 0), "a leader")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(one * (BATCHES - 1))
            for _ in range(BATCHES - 1):
                receive_frame(sock)
        files = [cluster.data_dir(number) / "cold-0" / "00000000000000000000.log" for number in cluster.brokers]
        until(lambda: all(file.exists() and file.stat().st_size == BATCHES * len(batch) for file in files), "both logs")
        assert files[0].read_bytes() == files[1].read_bytes()
    assert pages.refused
    assert threads and all(name.startswith("helper") for name in threads), threads
