"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and what else logs can tell."""

from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from appliance.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from appliance.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from appliance.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce, values_of

START_MS = 1_600_000_000_000


def with_times(connection: Connection, **configs: str) -> CreatableTopicResult:
    """Offsets 0 to 9, one batch each, ten seconds apart; the last but one is the newest."""
    topic = new_topic(connection, configs={"retention.ms": "-1", **configs})
    times = [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]
    for number in times:
        produce(connection, topic, batch_of(b"%d" % number, timestamp_ms=START_MS + number * 10_000))
    return topic


@pytest.mark.parametrize("version", range(1, 12))
def test_both_ends_in_every_version(connection: Connection, version: int) -> None:
    topic = with_times(connection)
    assert list_offset(connection, topic, -2, version=version).offset == 0
    latest = list_offset(connection, topic, -1, version=version)
    assert (latest.error_code, latest.offset, latest.leader_epoch) == (0, 10, 0 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(START_MS - 1, 0), (START_MS, 0), (START_MS + 1, 1), (START_MS + 70_000, 7), (START_MS + 75_000, 8)],
)
def test_a_time_leads_to_the_first_record_at_or_after_it(connection: Connection, timestamp: int, offset: int) -> None:
    found = list_offset(connection, with_times(connection), timestamp)
    assert (found.error_code, found.offset) == (0, offset)
    assert found.timestamp >= timestamp


def test_a_time_after_all_records_leads_nowhere(connection: Connection) -> None:
    found = list_offset(connection, with_times(connection), START_MS + 90_001)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


def test_the_newest_timestamp_need_not_be_the_last_record(connection: Connection) -> None:
    found = list_offset(connection, with_times(connection), -3)
    assert (found.offset, found.timestamp) == (8, START_MS + 90_000)
    assert list_offset(connection, new_topic(connection), -3).offset == -1


def test_places_of_the_tier(connection: Connection) -> None:
    topic = with_times(connection)
    assert list_offset(connection, topic, -4).offset == 0
    assert list_offset(connection, topic, -5).offset == -1, "nothing is tiered"
    assert list_offset(connection, topic, -6).offset == 0


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_places_are_not_known_to_older_versions(connection: Connection, timestamp: int, since: int) -> None:
    topic = new_topic(connection)
    assert list_offset(connection, topic, timestamp, version=since).error_code == 0
    assert list_offset(connection, topic, timestamp, version=since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_unknown_partitions_are_said_so(connection: Connection) -> None:
    topic = new_topic(connection)
    assert list_offset(connection, topic, -1, partition=4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(connection, topic, 5, partition=4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def epoch_end(connection: Connection, topic: CreatableTopicResult, epoch: int, current: int = -1) -> EpochEndOffset:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[partition])])
    return connection.call(request).topics[0].partitions[0]


def test_a_leader_epoch_ends_where_the_log_does_or_is_unknown(connection: Connection) -> None:
    topic = with_times(connection)
    known = epoch_end(connection, topic, 0)
    assert (known.error_code, known.leader_epoch, known.end_offset) == (0, 0, 10)
    unknown = epoch_end(connection, topic, 5)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)
    assert epoch_end(connection, topic, 0, current=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def delete_records(connection: Connection, topic: CreatableTopicResult, offset: int) -> DeleteRecordsPartitionResult:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=1_000
    )
    return connection.call(request).topics[0].partitions[0]


def test_deleted_records_are_gone_for_readers(connection: Connection) -> None:
    topic = with_times(connection)
    assert delete_records(connection, topic, 4).low_watermark == 4
    assert list_offset(connection, topic, -2).offset == 4
    assert fetch(connection, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(values_of(fetch(connection, topic, 4).records)) == 6
    assert list_offset(connection, topic, START_MS).offset == 4
    assert delete_records(connection, topic, 2).low_watermark == 4, "never back"
    assert delete_records(connection, topic, 11).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(connection, topic, -1).low_watermark == 10
    assert produce(connection, topic, batch_of(b"next")).base_offset == 10


def test_records_of_a_compacted_topic_are_not_deleted_by_offset(connection: Connection) -> None:
    topic = new_topic(connection, configs={"cleanup.policy": "compact"})
    assert delete_records(connection, topic, 0).error_code == ErrorCode.POLICY_VIOLATION


def test_the_data_directory_tells_sizes_and_space(connection: Connection) -> None:
    topic = with_times(connection)
    named = [DescribableLogDirTopic(topic=topic.name, partitions=[0])]
    for version, request in ((1, DescribeLogDirsRequest(topics=named)), (5, DescribeLogDirsRequest(topics=None))):
        (directory,) = connection.call(request, version).results
        sizes = {one.name: one.partitions[0].partition_size for one in directory.topics}
        assert sizes[topic.name] > 10 * 61
        if version == 5:
            assert directory.total_bytes > directory.usable_bytes > 0


def test_producers_of_a_partition_are_listed(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, batch_of(b"a", b"b", producer_id=77, producer_epoch=3, base_sequence=0))
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0, 5])])
    first, missing = connection.call(request).topics[0].partitions
    (producer,) = first.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 1)
    assert producer.current_txn_start_offset == -1
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
