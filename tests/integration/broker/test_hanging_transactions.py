"""Transactions that hang, zombies, and ids that nobody uses any more: the same on Apache Kafka and here.

A transaction hangs when a leader has its records and its coordinator knows nothing of it. Leaders that ask first do not
let that happen, so they are told not to (`transaction.partition.verification.enable`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.broker import running_cluster
from tests.support.compat import Server as Readable
from tests.support.compat import read_topic
from tests.support.java_tools import tool
from tests.support.kafka_peer import KafkaPeer
from tests.support.replicated import until
from tests.support.requests import batch_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TIMEOUT_S = 60.0
PRODUCE_VERSION, INIT_VERSION, END_VERSION = 9, 5, 4
PROPERTIES = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
}
EXPIRY_MS = 3_000
EXPIRING = {
    "transactional.id.expiration.ms": str(EXPIRY_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
TRANSACTIONS = "TransactionsCommand"
FENCED = ErrorCode.PRODUCER_FENCED


class Server(NamedTuple):
    servers: str
    broker_id: int

    def connect(self) -> Connection:
        host, port = self.servers.split(":")
        return Connection(host, int(port), timeout_ms=20_000)

    def new_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)

    def committed(self, topic: str) -> list[bytes | None]:
        readable = Readable(self.servers, Path(), 1)
        return [message.value() for message in read_topic(readable, topic, isolation_level="read_committed")]

    def say(self, *arguments: str) -> list[dict[str, str]]:
        """The table that kafka-transactions prints."""
        text = tool(TRANSACTIONS, "--bootstrap-server", self.servers, *arguments)
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:
            return []
        head = lines[0].split("\t")
        rows = [dict(zip(head, line.split("\t"), strict=False)) for line in lines[1:]]
        return [{name.strip(): value.strip() for name, value in row.items() if name.strip()} for row in rows]


@contextmanager
def started(kind: str, folder: Path, properties: dict[str, str]) -> Iterator[Server]:
    if kind == "kafka":
        with KafkaPeer(folder=folder / "kafka", properties=properties) as peer:
            yield Server(peer.bootstrap_servers, 1)
    else:
        with running_cluster(folder, properties=properties) as cluster:
            yield Server(cluster.bootstrap_servers, 1)


@pytest.fixture(scope="module", params=["kafka", "ours"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(request.param, tmp_path_factory.mktemp(request.param), PROPERTIES) as server:
        yield server


def begin(
    connection: Connection, transactional_id: str, producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
) -> InitProducerIdResponse:
    """The coordinator is asked until it is there."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    connection.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
    passing = (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = connection.call(request, INIT_VERSION)
        if answer.error_code not in passing or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def write(connection: Connection, topic: str, transactional_id: str, producer_id: int, epoch: int) -> int:
    """A batch in a transaction, without a word to its coordinator; the error code."""
    batch = batch_of(
        b"unknown to all", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=20_000, topic_data=[data])
    (answer,) = connection.call(request, PRODUCE_VERSION).responses[0].partition_responses
    return answer.error_code


def end(connection: Connection, transactional_id: str, producer_id: int, epoch: int) -> int:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    return connection.call(request, END_VERSION).error_code


def test_a_hanging_transaction_is_found_and_aborted(server: Server) -> None:
    topic, name = "hanging", "hanging-id"
    server.new_topic(topic)
    place = ("--topic", topic, "--partition", "0")
    with server.connect() as connection:
        begun = begin(connection, name)
        assert begun.error_code == 0
        assert write(connection, topic, name, begun.producer_id, begun.producer_epoch) == 0
    plain = Producer({"bootstrap.servers": server.servers})
    plain.produce(topic, b"after", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    assert server.committed(topic) == []
    (described,) = server.say("describe", "--transactional-id", name)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Empty", "")
    (of_partition,) = server.say("describe-producers", "--broker-id", str(server.broker_id), *place)
    assert of_partition["CurrentTransactionStartOffset"] == "0"
    assert of_partition["LatestCoordinatorEpoch"] == "-1"
    everywhere = server.say("find-hanging", "--broker-id", str(server.broker_id), "--max-transaction-timeout", "0")
    found = [row for row in everywhere if row["Topic"] == topic]
    (hanging,) = found
    assert (hanging["Partition"], hanging["StartOffset"]) == ("0", "0")
    assert (hanging["ProducerId"], hanging["ProducerEpoch"]) == (str(begun.producer_id), str(begun.producer_epoch))
    # It has not run for a quarter of an hour, which is the tool's patience.
    assert server.say("find-hanging", "--broker-id", str(server.broker_id), *place) == []
    server.say("abort", *place, "--start-offset", "0")
    until(lambda: server.committed(topic) == [b"after"], "the marker")
    assert server.say("find-hanging", *place, "--max-transaction-timeout", "0") == []
    (of_partition,) = server.say("describe-producers", *place)
    assert of_partition["CurrentTransactionStartOffset"] == "None"


def test_transactions_are_listed_by_state_producer_time_and_name(server: Server) -> None:
    topic = "listed"
    server.new_topic(topic)
    open_one = Producer({"bootstrap.servers": server.servers, "transactional.id": "listed-open"})
    ended = Producer({"bootstrap.servers": server.servers, "transactional.id": "listed-ended"})
    for producer in (open_one, ended):
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    ended.commit_transaction(TIMEOUT_S)

    def states(*filters: str) -> dict[str, str]:
        rows = server.say("list", *filters)
        names = ("listed-open", "listed-ended")
        return {row["TransactionalId"]: row["TransactionState"] for row in rows if row["TransactionalId"] in names}

    both = {"listed-open": "Ongoing", "listed-ended": "CompleteCommit"}
    until(lambda: states() == both, "the end of the second")
    assert states("--transactional-id-pattern", "listed-o.*") == {"listed-open": "Ongoing"}
    assert states("--transactional-id-pattern", "listed") == {}
    assert states("--transactional-id-pattern", ".*-e[a-z]+") == {"listed-ended": "CompleteCommit"}
    # Both have begun longer ago, also the one that has ended since.
    assert states("--duration-filter", "1") == both
    assert states("--duration-filter", "600000") == {}
    tool(TRANSACTIONS, "--bootstrap-server", server.servers, "list", "--transactional-id-pattern", "(", code=1)
    open_one.abort_transaction(TIMEOUT_S)


def test_a_zombie_is_shut_out_wherever_it_asks(server: Server) -> None:
    topic, name = "zombies", "zombie-id"
    server.new_topic(topic)
    with server.connect() as connection:
        zombie = begin(connection, name)
        heir = begin(connection, name)
        assert (heir.producer_id, heir.producer_epoch) == (zombie.producer_id, zombie.producer_epoch + 1)
        assert end(connection, name, zombie.producer_id, zombie.producer_epoch) == FENCED
        assert begin(connection, name, (zombie.producer_id, zombie.producer_epoch)).error_code == FENCED
        # After an error a producer raises its own epoch, and may ask for that twice.
        raised = begin(connection, name, (heir.producer_id, heir.producer_epoch))
        again = begin(connection, name, (heir.producer_id, heir.producer_epoch))
        assert raised.producer_epoch == again.producer_epoch == heir.producer_epoch + 1
        assert begin(connection, name, (zombie.producer_id, zombie.producer_epoch)).error_code == FENCED
        assert write(connection, topic, name, raised.producer_id, raised.producer_epoch) == 0
        late_write = write(connection, topic, name, zombie.producer_id, zombie.producer_epoch)
        assert late_write == ErrorCode.INVALID_PRODUCER_EPOCH
        assert begin(connection, name, timeout_ms=0).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        too_long = begin(connection, name, timeout_ms=900_001)
        assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("kind", ["kafka", "ours"])
def test_an_id_that_nobody_uses_is_forgotten(kind: str, tmp_path: Path) -> None:
    with started(kind, tmp_path, PROPERTIES | EXPIRING) as server, server.connect() as connection:
        forgotten = begin(connection, "forgotten")
        assert forgotten.error_code == 0
        assert [row["TransactionalId"] for row in server.say("list")] == ["forgotten"]
        until(lambda: server.say("list") == [], "the id to be forgotten")
        said = end(connection, "forgotten", forgotten.producer_id, forgotten.producer_epoch)
        assert said == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        anew = begin(connection, "forgotten")
        assert anew.error_code == 0
        assert anew.producer_id != forgotten.producer_id
