"""sarama, a client of many programs in Go: main.go beside this file does what is asked here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compat import CODECS, Sample, Server, produce, read_topic, wait_until
from tests.support.compat_groups import PARTITIONS, share_and_take_over
from tests.support.programs import Scenarios, go_program, needs_a_build

pytestmark = [pytest.mark.xdist_group("compat"), needs_a_build]

TIME = 1_600_000_000_000
EXISTS, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_CONFIG, UNKNOWN_TOPIC = 36, 17, 37, 40, 3
OUT_OF_RANGE, NOT_NEEDED, GROUP_NOT_FOUND = 1, 84, 69


@pytest.fixture(scope="module")
def sarama(server: Server) -> Scenarios:
    return Scenarios(go_program(Path(__file__).parent), server.bootstrap_servers)


def produced_and_read(server: Server, sarama: Scenarios, codec: str, **options: object) -> None:
    topic = server.new_topic(retention_ms="-1")
    told = sarama("produce", topic=topic, codec=codec, count=100, time=TIME, **options)
    if options.get("acks") == 0:
        wait_until(lambda: len(read_topic(server, topic)) == 101)
    else:
        assert told == {"last": [0, 100]}
    *messages, last = read_topic(server, topic)
    assert [message.value() for message in messages] == [b"v%d" % number for number in range(100)]
    assert (last.key(), last.value()) == (b"tombstone", None)
    read = sarama("read", topic=topic, count=100)
    assert read["messages"] == [
        [number, f"k{number}", f"v{number}", ["h=1", "h=2"], TIME + number] for number in range(100)
    ]
    assert read["beyond"] == OUT_OF_RANGE


def test_records_go_in_and_come_out(server: Server, sarama: Scenarios) -> None:
    produced_and_read(server, sarama, "zstd", idempotent=True)


@pytest.mark.compat
@pytest.mark.parametrize("codec", CODECS)
def test_records_go_in_and_come_out_in_each_codec(server: Server, sarama: Scenarios, codec: str) -> None:
    produced_and_read(server, sarama, codec)


@pytest.mark.compat
@pytest.mark.parametrize("acks", [0, 1])
def test_records_are_acknowledged_as_is_asked(server: Server, sarama: Scenarios, acks: int) -> None:
    produced_and_read(server, sarama, "none", acks=acks)


@pytest.mark.compat
@pytest.mark.parametrize("idempotent", [False, True])
def test_the_asynchronous_producer_is_told_of_every_record(server: Server, sarama: Scenarios, idempotent: bool) -> None:
    topic = server.new_topic(3, retention_ms="-1")
    offsets = sarama("asynchronous", topic=topic, count=5_000, time=TIME, idempotent=idempotent, codec="lz4")["offsets"]
    assert sum(map(len, offsets.values())) == 5_000
    assert all(sorted(told) == list(range(len(told))) for told in offsets.values())
    read = read_topic(server, topic, 3)
    assert {message.value() for message in read} == {b"v%d" % number for number in range(5_000)}
    if idempotent:
        for partition in range(3):
            values = [int(message.value()[1:]) for message in read if message.partition() == partition]
            assert values == sorted(values)


@pytest.mark.compat
def test_records_of_librdkafka_are_read(server: Server, sarama: Scenarios) -> None:
    topic = server.new_topic(retention_ms="-1")
    for codec in CODECS:
        produce(server, topic, [Sample(b"k", b"v", [("h", b"1")], TIME)] * 50, compression_type=codec)
    read = sarama("read", topic=topic, count=250)["messages"]
    assert read == [[number, "k", "v", ["h=1"], TIME] for number in range(250)]


@pytest.mark.compat
def test_topics_are_made_changed_and_deleted(server: Server, sarama: Scenarios, group_id: str) -> None:
    assert sarama("topics", topic=f"sarama-{group_id}") == {
        "validated": 0,
        "created": 0,
        "again": EXISTS,
        "invalid": INVALID_TOPIC,
        "grown": 0,
        "fewer": INVALID_PARTITIONS,
        "altered": 0,
        "wrong": INVALID_CONFIG,
        "configs": {"retention.ms": "70000 Topic", "segment.ms": "80000 Topic", "retention.bytes": "-1 Default"},
        "partitions": 5,
        "brokers": server.brokers,
        "controller": True,
        "folders": 1,
        "elected": NOT_NEEDED,
        "deleted": 0,
        "gone": UNKNOWN_TOPIC,
    }


@pytest.mark.compat
def test_offsets_and_groups_are_told_set_and_deleted(server: Server, sarama: Scenarios, group_id: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, [Sample(None, b"x", [], TIME + number) for number in range(10)])
    assert sarama("groups", topic=topic, group=group_id, time=TIME + 4) == {
        "first": [0, -1],
        "end": [10, -1],
        "timed": [4, TIME + 4],
        "after": [3, -1],
        "beyond": True,
        "committed": 0,
        "listed": True,
        "offset": [5, "note"],
        "state": "Empty",
        "forgotten": 0,
        "again": 0,
        "deleted": 0,
        "gone": GROUP_NOT_FOUND,
    }


@pytest.mark.compat
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_members_of_a_group_share_a_topic_and_take_over(
    server: Server, sarama: Scenarios, group_id: str, strategy: str
) -> None:
    topic = server.new_topic(PARTITIONS)
    options = {"topic": topic, "group": group_id, "strategy": strategy}
    share_and_take_over(server, topic, lambda: sarama.start("member", **options))


@pytest.mark.compat
@pytest.mark.parametrize("uncommitted", [False, True], ids=["committed", "uncommitted"])
def test_transactions_are_read_whole_or_not_at_all(
    server: Server, sarama: Scenarios, group_id: str, uncommitted: bool
) -> None:
    topic = server.new_topic()
    assert sarama("transactions", topic=topic, group=group_id, id=group_id) == {"fenced": True, "offset": 7}
    wanted = ["committed 1", "committed 2", "aborted", "fenced", "committed 3"]
    if not uncommitted:
        wanted = [value for value in wanted if value.startswith("committed")]
    read = sarama("read", topic=topic, count=len(wanted), uncommitted=uncommitted)["messages"]
    assert [value for _, _, value, _, _ in read] == wanted
