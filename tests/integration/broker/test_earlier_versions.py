"""Versions of requests that Apache Kafka 4 has given up, as clients of the last ten years send them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.api import APIS, ApiKey
from appliance.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest
from appliance.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from appliance.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from appliance.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.broker import running_cluster
from tests.support.requests import batch_of, new_topic, produce

COORDINATOR_IS_LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with (
        running_cluster(tmp_path_factory.mktemp("cluster")) as cluster,
        Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=20_000) as connected,
    ):
        yield connected


def test_they_are_offered(connection: Connection) -> None:
    offered = connection.versions()
    for key in (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ):
        assert offered[key] == (0, APIS[key].max_version)


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_made_and_deleted(connection: Connection, version: int) -> None:
    config = [CreatableTopicConfig(name="retention.ms", value="1000")]
    wanted = CreatableTopic(name=f"old-{version}", num_partitions=2, replication_factor=1, configs=config)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    assert connection.call(request, version).topics[0].error_code == ErrorCode.NONE
    assert connection.call(request, version).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    deletion = DeleteTopicsRequest(topic_names=[f"old-{version}", "missing"], timeout_ms=10_000)
    answer = connection.call(deletion, 0)
    assert [row.error_code for row in answer.responses] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_is_only_looked_at(connection: Connection) -> None:
    wanted = CreatableTopic(name="not-made", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=True)
    for _ in range(2):
        assert connection.call(request, 1).topics[0].error_code == ErrorCode.NONE


def test_configs_tell_what_is_a_default(connection: Connection) -> None:
    topic = new_topic(connection, configs={"retention.ms": "1000"})
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic.name, configuration_keys=None)
    (result,) = connection.call(DescribeConfigsRequest(resources=[resource]), 0).results
    rows = {row.name: row for row in result.configs}
    assert (rows["retention.ms"].value, rows["retention.ms"].is_default) == ("1000", False)
    assert (rows["segment.ms"].value, rows["segment.ms"].is_default) == ("604800000", True)


def test_log_directories_are_described(connection: Connection) -> None:
    topic = new_topic(connection)
    wanted = [DescribableLogDirTopic(topic=topic.name, partitions=[0])]
    (result,) = connection.call(DescribeLogDirsRequest(topics=wanted), 0).results
    assert [one.name for one in result.topics] == [topic.name]


def offsets_of(connection: Connection, topic: str, partition: int, timestamp: int) -> tuple[int, list[int]]:
    row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])])
    answer = connection.call(request, 0).topics[0].partitions[0]
    return answer.error_code, answer.old_style_offsets


def test_offsets_of_a_log_come_as_a_list(connection: Connection) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"one", b"two", timestamp_ms=1_000)).error_code == 0
    assert offsets_of(connection, topic.name, 0, -1) == (ErrorCode.NONE, [2])
    assert offsets_of(connection, topic.name, 0, -2) == (ErrorCode.NONE, [0])
    assert offsets_of(connection, topic.name, 0, 5_000) == (ErrorCode.NONE, [])
    assert offsets_of(connection, topic.name, 7, -1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_where_a_leader_epoch_ends(connection: Connection) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"one")).error_code == 0
    row = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[row])])
    for version in (0, 1):
        (answer,) = connection.call(request, version).topics[0].partitions
        assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, 1)


def commit(connection: Connection, group: str, topic: str, offset: int, version: int) -> int:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="text")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])])
    return connection.call(request, version).topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", [0, 1])
def test_consumers_without_a_group_commit_and_fetch(connection: Connection, version: int) -> None:
    topic, group = new_topic(connection, partitions=2), f"simple-{version}"
    connection.call(FindCoordinatorRequest(key=group), 0)
    code = commit(connection, group, topic.name, 42, version)
    while code in COORDINATOR_IS_LOADING:
        code = commit(connection, group, topic.name, 42, version)
    assert code == ErrorCode.NONE
    wanted = OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1])
    (answer,) = connection.call(OffsetFetchRequest(group_id=group, topics=[wanted]), 0).topics
    first, second = answer.partitions
    assert (first.committed_offset, first.metadata, first.error_code) == (42, "text", ErrorCode.NONE)
    assert (second.committed_offset, second.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
