"""The benchmark's C clients speak the protocol: Apache Kafka answers them, and errors end them with a message."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.benchmarks.build import client_program
from tests.benchmarks.servers import BenchmarkedServer
from tests.support.kafka_peer import KafkaPeer

pytestmark = pytest.mark.java


def client(peer: KafkaPeer, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [client_program(program), "--port", str(peer.port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def measured(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Peer(BenchmarkedServer):
    """The Apache Kafka that runs for all tests."""

    name = "Apache Kafka"

    def __init__(self, peer: KafkaPeer) -> None:
        self._peer = peer
        self.port = peer.port

    @property
    def pid(self) -> int:
        return self._peer.pid

    def start(self) -> None: ...

    def stop(self) -> None: ...


def new_topic(peer: KafkaPeer, name: str, partitions: int) -> str:
    """A topic whose partitions have leaders."""
    Peer(peer).create_topic(name, partitions)
    return name


@pytest.fixture(scope="module")
def topic(kafka_peer: KafkaPeer) -> str:
    return new_topic(kafka_peer, "benchmark-clients", 2)


def test_every_record_that_is_produced_can_be_drained(kafka_peer: KafkaPeer, topic: str) -> None:
    load = ("--topic", topic, "--records", "20", "--requests", "500", "--connections", "3", "--depth", "4")
    produced = measured(client(kafka_peer, "produce_load", *load))
    assert produced["requests"] == 500
    size = int(500 * produced["batch_bytes"])
    drained = measured(client(kafka_peer, "fetch_drain", "--topic", topic, "--bytes", str(size)))
    assert (drained["records"], drained["bytes"], drained["passes"]) == (10_000, size, 1)


def test_idempotent_producers_keep_their_sequences(kafka_peer: KafkaPeer, topic: str) -> None:
    load = ("--topic", topic, "--requests", "300", "--connections", "2", "--depth", "4", "--partitions", "2")
    assert measured(client(kafka_peer, "produce_load", *load, "--idempotent", "--acks", "-1"))["requests"] == 300


def test_one_request_may_carry_batches_for_many_partitions(kafka_peer: KafkaPeer) -> None:
    new_topic(kafka_peer, "benchmark-batches", 50)
    load = ("--topic", "benchmark-batches", "--requests", "40", "--batches", "50", "--connections", "2")
    produced = measured(client(kafka_peer, "produce_load", *load))
    drained = measured(
        client(
            kafka_peer, "fetch_drain", "--topic", "benchmark-batches", "--bytes", str(int(40 * produced["batch_bytes"]))
        )
    )
    assert (produced["requests"], drained["records"]) == (40, 40), "the first partition has one batch of each request"


def test_at_a_fixed_rate_the_load_takes_its_time(kafka_peer: KafkaPeer, topic: str) -> None:
    load = ("--topic", topic, "--requests", "500", "--rate", "1000", "--depth", "64")
    assert measured(client(kafka_peer, "produce_load", *load))["seconds"] > 0.49


def test_one_record_travels_from_producer_to_consumer(kafka_peer: KafkaPeer) -> None:
    new_topic(kafka_peer, "benchmark-end-to-end", 1)
    run = measured(client(kafka_peer, "end_to_end", "--topic", "benchmark-end-to-end", "--records", "50"))
    assert 0 < run["p50_us"] < 1e6


def test_an_error_is_no_figure(kafka_peer: KafkaPeer) -> None:
    done = client(kafka_peer, "produce_load", "--topic", "not-there-at-all", "--requests", "10")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Produce: error 3" in done.stderr


def test_load_goes_to_this_machine_only(kafka_peer: KafkaPeer) -> None:
    done = client(kafka_peer, "produce_load", "--host", "192.0.2.1")
    assert done.returncode == 1
    assert "loopback only" in done.stderr
