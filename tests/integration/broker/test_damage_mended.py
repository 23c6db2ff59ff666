"""What a disk has forgotten comes back from another replica or from the tier, and nobody has to do anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import parse_header
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker import running_cluster
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce, values_of
from tests.support.running import wait_for

WAIT_S = 60
RECORDS = 60
DAMAGED = (3, 9, 10, 17)
LATEST_TIERED = -5


def flip(path: Path) -> bytes:
    """Damage the first segment; returns what it was."""
    before = path.read_bytes()
    content, position = bytearray(before), 0
    while position < len(content):
        header = parse_header(content, position)
        if header.base_offset in DAMAGED:
            content[position + 16] ^= 0x10
        position += header.size_in_bytes
    path.write_bytes(content)
    return before


def read_everything(connection: Connection, topic: CreatableTopicResult) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < RECORDS:
        answer = fetch(connection, topic, len(values))
        assert answer.error_code == 0
        values += values_of(answer.records)
    return values


def value_of(number: int) -> bytes:
    return b"%d" % number + bytes(50_000)


def mended(connection: Connection, topic: CreatableTopicResult, path: Path) -> None:
    before = flip(path)
    assert path.read_bytes() != before
    assert fetch(connection, topic, DAMAGED[0]).error_code == ErrorCode.CORRUPT_MESSAGE
    wait_for(lambda: fetch(connection, topic, DAMAGED[0]).error_code == 0, WAIT_S)
    # The new file is read before it has got the old one's name.
    wait_for(path.exists, WAIT_S)
    assert path.read_bytes() == before
    assert read_everything(connection, topic) == [value_of(number) for number in range(RECORDS)]


def write_all(connection: Connection, topic: CreatableTopicResult) -> None:
    for number in range(RECORDS):
        batch = batch_of(value_of(number), timestamp_ms=1_000_000 + number)
        assert produce(connection, topic, batch, acks=-1).error_code == 0


def leader_of(connection: Connection, topic: CreatableTopicResult) -> int:
    (described,) = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])).topics
    return described.partitions[0].leader_id


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_replica_helps_another(tmp_path: Path, role: str) -> None:
    with running_cluster(tmp_path, 2) as cluster:

        def connected(broker_id: int) -> Connection:
            return Connection("127.0.0.1", cluster.brokers[broker_id].port, timeout_ms=10_000)

        configs = {"remote.storage.enable": "false", "segment.bytes": "1048576", "retention.ms": "-1"}
        with connected(1) as connection:
            topic = new_topic(connection, configs=configs, name="orders", replicas=2)
            wait_for(lambda: leader_of(connection, topic) > 0, WAIT_S)
            leader = leader_of(connection, topic)
        with connected(leader) as connection:
            write_all(connection, topic)
        victim = leader if role == "leader" else 3 - leader
        path = cluster.data_dir(victim) / "orders-0" / f"{0:020}.log"
        with connected(victim) as connection:
            wait_for(lambda: bool(values_of(fetch(connection, topic, RECORDS - 1).records)), WAIT_S)
            mended(connection, topic, path)


def test_the_tier_helps_where_there_is_no_other_replica(tmp_path: Path) -> None:
    with (
        running_cluster(tmp_path, 1, {"tiering.task.interval.ms": "200"}) as cluster,
        Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection,
    ):
        configs = {"segment.bytes": "1048576", "retention.ms": "-1", "local.retention.ms": "-1"}
        topic = new_topic(connection, configs=configs, name="orders")
        write_all(connection, topic)
        wait_for(lambda: list_offset(connection, topic, LATEST_TIERED).offset > max(DAMAGED), WAIT_S)
        mended(connection, topic, cluster.data_dir(1) / "orders-0" / f"{0:020}.log")


def test_where_nobody_has_it_the_damage_stays_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        running_cluster(tmp_path, 1) as cluster,
        Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection,
    ):
        configs = {"remote.storage.enable": "false", "segment.bytes": "1048576", "retention.ms": "-1"}
        topic = new_topic(connection, configs=configs, name="orders")
        write_all(connection, topic)
        path = cluster.data_dir(1) / "orders-0" / f"{0:020}.log"
        flip(path)
        damaged = path.read_bytes()
        assert fetch(connection, topic, DAMAGED[0]).error_code == ErrorCode.CORRUPT_MESSAGE
        wait_for(lambda: "of orders-0 stays damaged" in caplog.text, WAIT_S)
        assert "no other replica is there, and the tier does not have it" in caplog.text
        assert path.read_bytes() == damaged
