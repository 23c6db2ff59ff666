"""rskafka, a small client in Rust without C below it: src/main.rs beside this file does what is asked here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compat import AGAINST_KAFKA, CODECS, Sample, Server, produce, read_topic
from tests.support.programs import Scenarios, needs_a_build, rust_program

pytestmark = [pytest.mark.xdist_group("compat"), pytest.mark.compat, needs_a_build]

TIME = 1_600_000_000_000


@pytest.fixture(scope="module")
def rskafka(server: Server) -> Scenarios:
    return Scenarios(rust_program(Path(__file__).parent), server.bootstrap_servers)


def produced_and_read(server: Server, rskafka: Scenarios, codec: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    told = rskafka("produce", topic=topic, codec=codec, count=200, time=TIME)
    assert told == {"offsets": list(range(200)), "refused": "MessageTooLarge"}
    values = [None, *(b"v%d" % number for number in range(1, 200))]
    messages = read_topic(server, topic)
    assert [message.value() for message in messages] == values
    assert messages[7].headers() == [("empty", b""), ("h", b"1")]
    headers = {"empty": "", "h": "1"}
    read = rskafka("read", topic=topic, count=200)
    assert read["messages"] == [
        [number, f"k{number}", value and value.decode(), headers, TIME + number] for number, value in enumerate(values)
    ]
    assert (read["end"], read["beyond"]) == (200, "OffsetOutOfRange")


def test_records_go_in_and_come_out(server: Server, rskafka: Scenarios) -> None:
    produced_and_read(server, rskafka, "lz4")


@pytest.mark.parametrize("codec", CODECS)
def test_records_go_in_and_come_out_in_each_codec(server: Server, rskafka: Scenarios, codec: str) -> None:
    produced_and_read(server, rskafka, codec)


def test_records_of_librdkafka_are_read(server: Server, rskafka: Scenarios) -> None:
    topic = server.new_topic(retention_ms="-1")
    for codec in CODECS:
        produce(server, topic, [Sample(b"k", b"v", [("h", b"1")], TIME)] * 50, compression_type=codec)
    read = rskafka("read", topic=topic, count=250)["messages"]
    assert read == [[number, "k", "v", {"h": "1"}, TIME] for number in range(250)]


def test_topics_are_made_and_deleted(server: Server, rskafka: Scenarios, group_id: str) -> None:
    assert rskafka("topics", topic=f"rskafka-{group_id}") == {
        "created": "none",
        "again": "TopicAlreadyExists",
        "invalid": "InvalidTopicException",
        "partitions": 3,
        "deleted": "none",
        "gone": "UnknownTopicOrPartition",
    }


def test_offsets_are_told_and_records_deleted(server: Server, rskafka: Scenarios) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, [Sample(None, b"x", [], TIME + number) for number in range(10)])
    assert rskafka("offsets", topic=topic, time=TIME + 4) == {
        "first": 0,
        "end": 10,
        "timed": 4,
        "after": 3,
        "beyond": "OffsetOutOfRange",
        # Its question makes the topic. We answer when it is there, Kafka at once (docs/differences.md).
        "missing": "UnknownTopicOrPartition" if AGAINST_KAFKA else "none",
    }
