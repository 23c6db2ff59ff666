"""Java's producers follow the second version of transactions (KIP-890), and the tools look at them."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import Producer

from tests.support.compat import PATIENCE_S, Server, produce, read_topic, wait_until
from tests.support.java_tools import tool

pytestmark = pytest.mark.java


def values(server: Server, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_topic(server, topic, isolation_level="read_committed")]


def left_open(server: Server, topic: str, transactional_id: str) -> Producer:
    """A producer with a record in an open transaction."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"left open", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def columns(text: str) -> list[dict[str, str]]:
    """A tool's table: a row for each line below the names."""
    head, *lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(head, line, strict=False)) for line in lines]


def test_the_perf_test_writes_in_transactions(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    size = ("--num-records", "200", "--record-size", "100", "--throughput", "1000")
    where = ("--topic", topic, "--bootstrap-server", server.bootstrap_servers)
    with_transactions = ("--transactional-id", group_id, "--transaction-duration-ms", "50")
    said = tool("ProducerPerformance", *where, *size, *with_transactions)
    assert "200 records sent" in said
    assert len(values(server, topic)) == 200
    row = columns(tool("TransactionsCommand", "--bootstrap-server", server.bootstrap_servers, "list"))
    (ours,) = [each for each in row if each["TransactionalId"] == group_id]
    assert ours["TransactionState"] == "CompleteCommit"
    # Each end of a transaction has given it a new epoch.
    described = tool(
        "TransactionsCommand",
        "--bootstrap-server",
        server.bootstrap_servers,
        "describe",
        "--transactional-id",
        group_id,
    )
    assert int(columns(described)[0]["ProducerEpoch"]) >= 2


def test_the_copier_copies_each_record_once_although_it_aborts_at_random(server: Server, group_id: str) -> None:
    source, sink = server.new_topic(), server.new_topic()
    inputs = [b"%d" % number for number in range(300)]
    produce(server, source, inputs)
    where = ("--broker-list", server.bootstrap_servers, "--input-topic", source, "--input-partition", "0")
    what = ("--output-topic", sink, "--consumer-group", group_id, "--transactional-id", group_id)
    how = ("--transaction-size", "20", "--max-messages", "300", "--enable-random-aborts")
    said = tool("TransactionalMessageCopier", *where, *what, *how)
    last = json.loads(said.strip().splitlines()[-1])
    assert last.get("consumed", last.get("totalProcessed")) is not None
    assert values(server, sink) == inputs


def test_an_open_transaction_is_described_and_found_and_aborted(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    at = ("--bootstrap-server", server.bootstrap_servers)
    producer = left_open(server, topic, group_id)
    described = tool("TransactionsCommand", *at, "describe", "--transactional-id", group_id)
    assert "Ongoing" in described and f"{topic}-0" in described, described
    (of_partition,) = columns(
        tool("TransactionsCommand", *at, "describe-producers", "--topic", topic, "--partition", "0")
    )
    assert of_partition["CurrentTransactionStartOffset"] == "0"
    # It does not hang: its coordinator knows of it.
    hanging = tool(
        "TransactionsCommand",
        *at,
        "find-hanging",
        "--topic",
        topic,
        "--partition",
        "0",
        "--max-transaction-timeout",
        "0",
    )
    assert columns(hanging) == []
    assert values(server, topic) == []
    produce(server, topic, [b"after"])
    tool("TransactionsCommand", *at, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    wait_until(lambda: values(server, topic) == [b"after"])
    del producer


def test_a_producer_is_fenced_by_force(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    producer = left_open(server, topic, group_id)
    tool(
        "TransactionsCommand",
        "--bootstrap-server",
        server.bootstrap_servers,
        "forceTerminateTransaction",
        "--transactionalId",
        group_id,
    )
    wait_until(lambda: re.search(r"Empty|CompleteAbort", state_of(server, group_id)))
    with pytest.raises(Exception, match=r"FENCED|PRODUCER_EPOCH|fenced"):
        producer.commit_transaction(PATIENCE_S)


def state_of(server: Server, transactional_id: str) -> str:
    return tool(
        "TransactionsCommand",
        "--bootstrap-server",
        server.bootstrap_servers,
        "describe",
        "--transactional-id",
        transactional_id,
    )
