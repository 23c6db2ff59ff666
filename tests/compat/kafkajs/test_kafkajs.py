"""kafkajs, the client of most programs in JavaScript: main.js beside this file does what is asked here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.compat import Sample, Server, produce, read_topic, wait_until
from tests.support.compat_groups import PARTITIONS, share_and_take_over
from tests.support.programs import Scenarios, needs_a_build, node_program

pytestmark = [pytest.mark.xdist_group("compat"), needs_a_build]

TIME = 1_600_000_000_000


@pytest.fixture(scope="module")
def kafkajs(server: Server) -> Scenarios:
    return Scenarios(node_program(Path(__file__).parent), server.bootstrap_servers)


def sent(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "value": f"v{number}"} for number in range(count)]


def test_records_go_in_and_come_out(server: Server, kafkajs: Scenarios, group_id: str) -> None:
    """gzip is what kafkajs has without other packages."""
    topic = server.new_topic()
    headers = {"one": "1", "two": ["a", "b"], "empty": ""}
    messages = [
        {"key": "key", "value": "größe", "headers": headers, "timestamp": str(TIME)},
        {"key": None, "value": "no key", "timestamp": str(TIME + 1)},
        {"key": "tombstone", "value": None, "timestamp": str(TIME + 2)},
        {"key": "", "value": "x" * 100_000, "timestamp": str(TIME + 3)},
    ]
    told = kafkajs("produce", topic=topic, codec="gzip", idempotent=True, messages=messages)
    assert told == {"sent": [[0, 0, "0"]], "tooLarge": "MESSAGE_TOO_LARGE"}
    (first, *others) = read_topic(server, topic)
    assert first.headers() == [("one", b"1"), ("two", b"a"), ("two", b"b"), ("empty", b"")]
    assert [message.value() for message in others] == [b"no key", None, b"x" * 100_000]
    read = kafkajs("read", topic=topic, group=group_id, count=len(messages))["messages"]
    assert [row[:4] for row in read] == [
        [0, str(number), message["key"], message["value"]] for number, message in enumerate(messages)
    ]
    assert read[0][4] == headers
    assert [int(row[5]) for row in read] == [TIME + number for number in range(4)]


@pytest.mark.compat
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_are_acknowledged_as_is_asked(server: Server, kafkajs: Scenarios, codec: str, acks: int) -> None:
    topic = server.new_topic()
    kafkajs("produce", topic=topic, codec=codec, acks=acks, messages=sent(500))
    wait_until(lambda: len(read_topic(server, topic)) == 500)


@pytest.mark.compat
def test_records_of_librdkafka_are_read(server: Server, kafkajs: Scenarios, group_id: str) -> None:
    topic = server.new_topic()
    for codec in ("none", "gzip"):
        produce(server, topic, [Sample(b"k", b"v", [("h", b"1"), ("h", b"2")], TIME)] * 50, compression_type=codec)
    read = kafkajs("read", topic=topic, group=group_id, count=100)["messages"]
    assert [int(row[1]) for row in read] == list(range(100))
    assert {(row[2], row[3], str(row[4]), row[5]) for row in read} == {("k", "v", "{'h': ['1', '2']}", str(TIME))}


@pytest.mark.compat
def test_topics_are_made_changed_and_deleted(server: Server, kafkajs: Scenarios, group_id: str) -> None:
    assert kafkajs("topics", topic=f"kafkajs-{group_id}") == {
        "created": True,
        "again": False,
        "invalid": "INVALID_TOPIC_EXCEPTION",
        "replicas": "INVALID_REPLICATION_FACTOR",
        "fewer": "INVALID_PARTITIONS",
        "listed": True,
        "wrong": "INVALID_CONFIG",
        "gone": "UNKNOWN_TOPIC_OR_PARTITION",
        "partitions": [[number, 1] for number in range(5)],
        "before": [["70000", False], ["604800000", True]],
        "after": [["604800000", True], ["80000", False]],
        "brokers": server.brokers,
        "controller": True,
        "cluster": "string",
    }


@pytest.mark.compat
def test_offsets_are_told_set_reset_and_deleted(server: Server, kafkajs: Scenarios, group_id: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, [Sample(None, b"x", [], TIME + number) for number in range(10)])
    assert kafkajs("offsets", topic=topic, group=group_id, time=TIME + 4) == {
        "ends": [["0", "10"]],
        "byTime": ["4"],
        "deleted": [["3", "10"]],
        "none": ["-1"],
        "set": ["5"],
        "reset": ["3"],
        "listed": 1,
        "state": "Empty",
        "removed": [0],
        "missing": "GROUP_ID_NOT_FOUND",
    }


@pytest.mark.compat
def test_batches_are_read_and_a_seek_goes_back(server: Server, kafkajs: Scenarios, group_id: str) -> None:
    topic = server.new_topic()
    produce(server, topic, [b"%d" % number for number in range(200)], batch_num_messages=10)
    told = kafkajs("batches", topic=topic, group=group_id, count=200, seek=150, again=50)
    values = [int(value) for *_, batch in told["batches"] for value in batch]
    assert values[:200] == list(range(200))
    assert values[told["first"] :][:50] == list(range(150, 200))
    assert {row[3] for row in told["batches"]} == {"200"}


@pytest.mark.compat
@pytest.mark.parametrize("uncommitted", [False, True], ids=["committed", "uncommitted"])
def test_transactions_are_read_whole_or_not_at_all(
    server: Server, kafkajs: Scenarios, group_id: str, uncommitted: bool
) -> None:
    topic = server.new_topic()
    told = kafkajs("transactions", topic=topic, group=group_id, id=group_id)
    assert told["offset"] == "7"
    assert told["fenced"] in {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
    wanted = ["committed 1", "committed 2", "aborted", "fenced", "committed 3"]
    if not uncommitted:
        wanted = [value for value in wanted if value.startswith("committed")]
    read = kafkajs("read", topic=topic, group=f"{group_id}-2", count=len(wanted), uncommitted=uncommitted)
    assert [row[3] for row in read["messages"]] == wanted


@pytest.mark.compat
def test_members_of_a_group_share_a_topic_and_take_over(server: Server, kafkajs: Scenarios, group_id: str) -> None:
    topic = server.new_topic(PARTITIONS)
    share_and_take_over(server, topic, lambda: kafkajs.start("member", topic=topic, group=group_id))
