"""franz-go, which knows every request of Kafka's, and its kadm: main.go beside this file does what is asked here."""

from __future__ import annotations

import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compat import CODECS, PATIENCE_S, Sample, Server, produce, read_topic, wait_until
from tests.support.compat_groups import PARTITIONS, share_and_take_over
from tests.support.programs import RunningProgram, Scenarios, go_program, needs_a_build

pytestmark = [pytest.mark.xdist_group("compat"), needs_a_build]

TIME = 1_600_000_000_000
HEADERS = [["h", b64encode(b"1").decode()], ["h", None], ["h", ""]]


@pytest.fixture(scope="module")
def franz(server: Server) -> Scenarios:
    return Scenarios(go_program(Path(__file__).parent), server.bootstrap_servers)


def produced_and_read(server: Server, franz: Scenarios, codec: str, acks: int) -> None:
    topic = server.new_topic(retention_ms="-1")
    refused = franz("produce", topic=topic, codec=codec, count=1_000, time=TIME, acks=acks)["refused"]
    assert refused == "MESSAGE_TOO_LARGE"
    wait_until(lambda: len(read_topic(server, topic)) == 1_000)
    for number, message in enumerate(read_topic(server, topic)):
        assert (message.key(), message.value()) == (b"k%d" % number, b"v%d" % number)
        assert message.headers() == [("h", b"1"), ("h", None), ("h", b"")]
    read = franz("read", topic=topic, count=1_000)["messages"]
    assert read == [[number, f"k{number}", f"v{number}", HEADERS, TIME + number] for number in range(1_000)]


def test_records_go_in_and_come_out(server: Server, franz: Scenarios) -> None:
    produced_and_read(server, franz, "snappy", acks=-1)


@pytest.mark.compat
@pytest.mark.parametrize("codec", CODECS)
def test_records_go_in_and_come_out_in_each_codec(server: Server, franz: Scenarios, codec: str) -> None:
    produced_and_read(server, franz, codec, acks=-1)


@pytest.mark.compat
@pytest.mark.parametrize("acks", [0, 1])
def test_records_are_acknowledged_as_is_asked(server: Server, franz: Scenarios, acks: int) -> None:
    produced_and_read(server, franz, "gzip", acks)


@pytest.mark.compat
def test_records_of_librdkafka_are_read(server: Server, franz: Scenarios) -> None:
    topic = server.new_topic(retention_ms="-1")
    for codec in CODECS:
        produce(server, topic, [Sample(b"k", b"v", [("h", b"1")], TIME)] * 50, compression_type=codec)
    read = franz("read", topic=topic, count=250)["messages"]
    assert read == [[number, "k", "v", HEADERS[:1], TIME] for number in range(250)]


@pytest.mark.compat
def test_topics_are_made_changed_and_deleted(server: Server, franz: Scenarios, group_id: str) -> None:
    told = franz("topics", topic=f"franz-{group_id}")
    assert told == {
        "validated": "none",
        "created": "none",
        "again": "TOPIC_ALREADY_EXISTS",
        "invalid": "INVALID_TOPIC_EXCEPTION",
        "replicas": "INVALID_REPLICATION_FACTOR",
        "grown": "none",
        "fewer": "INVALID_PARTITIONS",
        "altered": "none",
        "wrong": "INVALID_CONFIG",
        "configs": {"retention.ms": "604800000 DEFAULT_CONFIG", "segment.ms": "80000 DYNAMIC_TOPIC_CONFIG"},
        "partitions": 5,
        "replicated": 1,
        "brokers": server.brokers,
        "folders": 5,
        "elected": "ELECTION_NOT_NEEDED",
        "versions": server.brokers,
        "deleted": "none",
        "gone": "UNKNOWN_TOPIC_OR_PARTITION",
    }


@pytest.mark.compat
def test_offsets_and_groups_are_told_set_and_deleted(server: Server, franz: Scenarios, group_id: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, [Sample(None, b"x", [], TIME + number) for number in range(10)])
    assert franz("groups", topic=topic, group=group_id, time=TIME + 4) == {
        "first": [0, -1],
        "end": [10, -1],
        "committed end": [10, -1],
        "newest": [9, TIME + 9],
        "timed": [4, TIME + 4],
        "removed": ["none", 3],
        "beyond": "OFFSET_OUT_OF_RANGE",
        "epoch": 10,
        "offset": [5, "note", 0],
        "listed": "Empty",
        "lag": 5,
        "forgotten": "none",
        "deleted": "none",
        "gone": "GROUP_ID_NOT_FOUND",
    }


@pytest.mark.compat
@pytest.mark.parametrize("balancer", ["range", "roundrobin", "sticky", "cooperative"])
def test_members_of_a_group_share_a_topic_and_take_over(
    server: Server, franz: Scenarios, group_id: str, balancer: str
) -> None:
    topic = server.new_topic(PARTITIONS)
    options = {"topic": topic, "group": group_id, "balancer": balancer}
    share_and_take_over(server, topic, lambda: franz.start("member", **options))


@pytest.mark.compat
@pytest.mark.parametrize("uncommitted", [False, True], ids=["committed", "uncommitted"])
def test_transactions_are_read_whole_or_not_at_all(
    server: Server, franz: Scenarios, group_id: str, uncommitted: bool
) -> None:
    topic = server.new_topic()
    told = franz("transactions", topic=topic, id=group_id)
    assert told.pop("fenced") in {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
    assert told == {"ongoing": "Ongoing", "listed": True, "begins": [0]}
    wanted = ["committed 1", "committed 2", "aborted", "fenced", "committed 3"]
    if not uncommitted:
        wanted = [value for value in wanted if value.startswith("committed")]
    read = franz("read", topic=topic, count=len(wanted), uncommitted=uncommitted)["messages"]
    assert [value for _, _, value, _, _ in read] == wanted


@pytest.fixture
def copier(franz: Scenarios) -> Iterator[Callable[..., RunningProgram]]:
    started: list[RunningProgram] = []

    def start(**arguments: Any) -> RunningProgram:
        started.append(franz.start("copy", **arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.mark.compat
def test_what_is_copied_in_transactions_is_there_once_though_copiers_come_are_killed_and_abort(
    server: Server, franz: Scenarios, group_id: str, copier: Callable[..., RunningProgram]
) -> None:
    topic, copy = server.new_topic(PARTITIONS), server.new_topic(PARTITIONS)
    options = {"topic": topic, "to": copy, "group": group_id, "every": 20, "balancer": "cooperative"}

    def committed(*copiers: RunningProgram) -> int:
        return sum(count for each in copiers for done, count in each.of("ended") if done)

    for partition in range(PARTITIONS):
        produce(server, topic, [b"%d-%d" % (partition, number) for number in range(300)], partition=partition)
    first = copier(id=f"{group_id}-1", **options)
    wait_until(lambda: committed(first) > 100)
    second = copier(id=f"{group_id}-2", **options)
    wait_until(lambda: committed(second) > 0 or committed(first) >= 1_200)
    first.kill()
    third = copier(id=f"{group_id}-1", **options)
    values = Counter[bytes | None]()

    def read() -> int:
        values.clear()
        values.update(message.value() for message in read_topic(server, copy, PARTITIONS))
        return values.total()

    deadline = time.monotonic() + 3 * PATIENCE_S
    while read() < 1_200 and time.monotonic() < deadline and second.code is third.code is None:
        time.sleep(0.5)
    assert values.total() >= 1_200, f"first: {first.text}\nsecond: {second.text}\nthird: {third.text}"
    for each in (second, third):
        assert each.stop() == 0, each.text
    read()
    assert set(values) == {b"%d-%d" % (partition, number) for partition in range(PARTITIONS) for number in range(300)}
    assert values.total() == 1_200, "nothing is copied twice"
