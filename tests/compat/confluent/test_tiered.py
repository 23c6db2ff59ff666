"""Old records come from the object store by the same address and offset: a client sees no difference."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from appliance.base import ids
from appliance.client.client import Client
from tests.support.compat import (
    AGAINST_KAFKA,
    CODECS,
    PATIENCE_S,
    Sample,
    Server,
    produce,
    read_topic,
    sample_of,
    wait_until,
)

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="Apache Kafka brings no object store"),
]

START = 1_600_000_000_000
EARLIEST_LOCAL, LATEST_TIERED = -4, -5


@pytest.fixture(scope="module")
def records() -> list[Sample]:
    noise = random.Random(3).randbytes
    return [Sample(b"%d" % number, noise(2_000), [("n", b"%d" % number)], START + number) for number in range(3_000)]


@pytest.fixture(scope="module")
def topic(server: Server, records: list[Sample]) -> Iterator[str]:
    """Six megabytes in all codecs, of which the broker keeps the last segment only; the rest is in the object store."""
    configs = {"segment_bytes": "1048576", "retention_ms": "-1", "local_retention_ms": "1", "file_delete_delay_ms": "0"}
    name = server.new_topic(**configs)
    share = len(records) // len(CODECS)
    for number, codec in enumerate(CODECS):
        produce(server, name, records[number * share : (number + 1) * share], compression_type=codec)
    folder = server.partition_folder(name)
    wait_until(lambda: len(list(folder.glob("*.log"))) == 1)
    yield name


def test_all_records_are_read_from_the_first(server: Server, topic: str, records: list[Sample]) -> None:
    read = read_topic(server, topic)
    assert [message.offset() for message in read] == list(range(len(records)))
    assert [sample_of(message) for message in read] == records


def test_the_tiers_meet(server: Server, topic: str, records: list[Sample]) -> None:
    place = ids.TopicPartition(topic, 0)
    with Client(server.bootstrap_servers) as client:
        offsets = {at: client.list_offsets({place: at})[place].offset for at in (-2, LATEST_TIERED, EARLIEST_LOCAL, -1)}
    (local,) = server.partition_folder(topic).glob("*.log")
    assert offsets[-2] == 0
    assert 0 < offsets[EARLIEST_LOCAL] == offsets[LATEST_TIERED] + 1 == int(local.stem)
    assert offsets[-1] == len(records)


@pytest.mark.parametrize("number", [0, 1, 777, 1_500, 2_999])
def test_a_record_is_found_by_offset_and_by_time(
    server: Server, group_id: str, topic: str, records: list[Sample], number: int
) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": group_id})
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, START + number)], timeout=PATIENCE_S)
    assert found.offset == number
    consumer.assign([found])
    messages: list[Message] = []
    wait_until(lambda: messages, lambda: messages.extend(consumer.consume(1, 0.1)))
    assert (messages[0].offset(), sample_of(messages[0])) == (number, records[number])
    consumer.close()


def test_kcat_reads_over_the_border(server: Server, topic: str, records: list[Sample]) -> None:
    command = [
        "kcat",
        "-b",
        server.bootstrap_servers,
        "-C",
        "-t",
        topic,
        "-o",
        "beginning",
        "-e",
        "-q",
        "-f",
        "%k %h\n",
    ]
    told = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True).stdout
    assert told == b"".join(b"%d n=%d\n" % (number, number) for number in range(len(records)))
