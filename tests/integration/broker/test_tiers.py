"""Old offsets come out of the object store through the broker, and retention takes what is too old."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import (
    batch_of,
    fetch,
    fetch_request,
    list_offset,
    new_topic,
    partitions_of,
    produce,
    values_of,
)

WAIT_S = 20
YEAR_2013_MS = 1_357_000_000_000
TIERED = {
    "retention.ms": "-1",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A broker that looks at its logs all the time."""
    properties = {
        "tiering.task.interval.ms": "50",
        "log.retention.check.interval.ms": "100",
        "log.segment.bytes": "1048576",
    }
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=properties) as running:
        yield running


@pytest.fixture
def client(quick: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", quick.brokers[1].port, timeout_ms=20_000) as connection:
        yield connection


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def filled(client: Connection, records: int = 400, **configs: str) -> tuple[CreatableTopicResult, list[bytes]]:
    """About 4 MB in segments of 1 MiB, ten seconds between records."""
    topic = new_topic(client, configs={**TIERED, **configs})
    values = [b"%06d" % number + b"x" * 10_000 for number in range(records)]
    for number, value in enumerate(values):
        produce(client, topic, batch_of(value, timestamp_ms=YEAR_2013_MS + number * 10_000))
    return topic, values


def test_what_left_the_disk_is_read_from_the_object_store(client: Connection) -> None:
    topic, values = filled(client)
    assert becomes_true(lambda: list_offset(client, topic, -4).offset > 0), "nothing left the disk"
    assert list_offset(client, topic, -2).offset == 0, "it is still there for readers"
    assert 0 < list_offset(client, topic, -5).offset < 400
    local_start = list_offset(client, topic, -4).offset
    found: list[bytes | None] = []
    while len(found) < len(values):
        # Waits, as consumers do; an answer that would take too long is empty once.
        request = fetch_request(topic, {0: len(found)}, max_wait_ms=500)
        data = partitions_of(client.call(request, 12))[0]
        assert data.error_code == 0
        assert data.log_start_offset == 0
        found += values_of(data.records)
    assert found == values
    assert list_offset(client, topic, -4).offset >= local_start > 100


def test_times_lead_into_the_object_store_too(client: Connection) -> None:
    topic, _ = filled(client)
    assert becomes_true(lambda: list_offset(client, topic, -4).offset > 200)
    for number in (0, 5, 150, 399):
        found = list_offset(client, topic, YEAR_2013_MS + number * 10_000)
        assert (found.error_code, found.offset) == (0, number)
        assert found.timestamp == YEAR_2013_MS + number * 10_000


def test_hot_and_cold_partitions_come_in_one_answer(client: Connection) -> None:
    topic, values = filled(client)
    other = new_topic(client)
    produce(client, other, batch_of(b"hot"))
    assert becomes_true(lambda: list_offset(client, topic, -4).offset > 0)
    request = fetch_request(topic, {0: 3}, max_wait_ms=5_000, max_bytes=10 << 20)
    request.topics += fetch_request(other, {0: 0}).topics
    cold, hot = client.call(request, 12).responses
    assert values_of(cold.partitions[0].records)[0] == values[3]
    assert values_of(hot.partitions[0].records) == [b"hot"]


def test_an_offset_that_no_tier_holds_is_out_of_range(client: Connection) -> None:
    topic, _ = filled(client, records=10)
    assert fetch(client, topic, 11).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_default_time_retention_removes_records_of_2013_as_in_kafka(client: Connection) -> None:
    topic, _ = filled(client, **{"retention.ms": "604800000", "remote.storage.enable": "false"})
    assert becomes_true(lambda: list_offset(client, topic, -2).offset == 400)
    assert fetch(client, topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert produce(client, topic, batch_of(b"now")).base_offset == 400
    assert values_of(fetch(client, topic, 400).records) == [b"now"]


def test_retention_by_size_keeps_whole_segments(client: Connection) -> None:
    configs = {"retention.bytes": "2000000", "remote.storage.enable": "false", "local.retention.bytes": "-2"}
    topic, _ = filled(client, **configs)
    assert becomes_true(lambda: list_offset(client, topic, -2).offset > 0)
    start = list_offset(client, topic, -2).offset
    assert 0 < start <= 200
    assert len(values_of(fetch(client, topic, start).records)) > 0


def test_deleted_segments_leave_the_disk(quick: RunningCluster, client: Connection) -> None:
    topic, _ = filled(client)
    folder: Path = quick.data_dir(1) / f"{topic.name}-0"
    assert becomes_true(lambda: len(list(folder.glob("*.log"))) <= 2)
    assert becomes_true(lambda: not list(folder.glob("*.deleted")))
