"""Metadata, topics, configs and the cluster, as clients see them over the wire."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.messages.describe_cluster import DescribeClusterRequest
from appliance.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from appliance.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, new_topic, produce

TOPIC, BROKER = 2, 4


def metadata(connection: Connection, *names: str, version: int = 12, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return connection.call(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_brokers_topics_and_leaders(
    cluster: RunningCluster, connection: Connection, version: int
) -> None:
    topic = new_topic(connection, partitions=2)
    response = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", cluster.brokers[1].port)
    (found,) = response.topics
    assert (found.error_code, found.name) == (0, topic.name)
    assert [(one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes) for one in found.partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]
    if version >= 10:
        assert found.topic_id == topic.topic_id
    if version >= 2:
        assert response.cluster_id


@pytest.mark.parametrize(("version", "topics", "all_of_them"), [(0, [], True), (1, [], False), (1, None, True)])
def test_what_no_names_mean_depends_on_the_version(
    connection: Connection, version: int, topics: list[MetadataRequestTopic] | None, all_of_them: bool
) -> None:
    topic = new_topic(connection)
    response = connection.call(MetadataRequest(topics=topics), version)
    assert (topic.name in [one.name for one in response.topics]) == all_of_them


def test_topics_are_found_by_id_from_version_12_on(connection: Connection) -> None:
    topic = new_topic(connection)
    asked = [
        MetadataRequestTopic(name=None, topic_id=topic.topic_id),
        MetadataRequestTopic(name=None, topic_id=uuid.uuid4()),
    ]
    known, unknown = connection.call(MetadataRequest(topics=asked), 12).topics
    assert (known.error_code, known.name) == (0, topic.name)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_does_not_exist_or_cannot_exist_is_said_so(connection: Connection) -> None:
    missing, illegal = metadata(connection, "missing", "no/slash", create=True).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "auto.create.topics.enable is false here"
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_missing_topic_is_created_where_both_sides_allow_it(tmp_path: Path) -> None:
    properties = {"auto.create.topics.enable": "true", "num.partitions": "3"}
    with (
        running_cluster(tmp_path, properties=properties) as cluster,
        Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection,
    ):
        (refused,) = metadata(connection, "wanted", create=False).topics
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        created, illegal = metadata(connection, "wanted", "not/wanted", create=True).topics
        assert (created.error_code, len(created.partitions)) == (0, 3)
        assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        # Below version 4 a request cannot forbid it.
        (old,) = metadata(connection, "wanted-by-old", version=1, create=True).topics
        assert (old.error_code, len(old.partitions)) == (0, 3)


def test_a_new_topic_can_be_used_at_once_and_a_deleted_one_is_gone_at_once(connection: Connection) -> None:
    for version in (2, 4, 5, 7):
        topics = [CreatableTopic(name=f"quick-{version}", num_partitions=1, replication_factor=1)]
        (result,) = connection.call(CreateTopicsRequest(topics=topics), version).topics
        assert result.error_code == 0
        (found,) = metadata(connection, result.name).topics
        result.topic_id = found.topic_id
        assert produce(connection, result, batch_of(b"x")).error_code == 0
    for version in (1, 3, 5):
        request = DeleteTopicsRequest(
            topic_names=["quick-2"] if version == 1 else [f"quick-{version + 1 if version == 3 else 5}"]
        )
        (deleted,) = connection.call(request, version).responses
        assert deleted.error_code == 0
        assert metadata(connection, deleted.name or "").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_id(connection: Connection) -> None:
    topic = new_topic(connection)
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=topic.topic_id),
            DeleteTopicState(name=None, topic_id=uuid.uuid4()),
        ]
    )
    known, unknown = connection.call(request, 6).responses
    assert (known.error_code, known.name) == (0, topic.name)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_created_again_begins_anew(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, batch_of(b"old"))
    connection.call(DeleteTopicsRequest(topic_names=[topic.name]), 5)
    again = new_topic(connection, name=topic.name)
    assert again.topic_id != topic.topic_id
    assert produce(connection, again, batch_of(b"new"), version=13).base_offset == 0
    assert produce(connection, topic, batch_of(b"late"), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_controllers_refusals_reach_the_client(connection: Connection) -> None:
    topic = new_topic(connection)
    topics = [
        CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1),
        CreatableTopic(name="no/slash", num_partitions=1, replication_factor=1),
        CreatableTopic(
            name="bad-config",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="soon")],
        ),
        CreatableTopic(name="too-many-replicas", num_partitions=1, replication_factor=9),
    ]
    results = connection.call(CreateTopicsRequest(topics=topics)).topics
    assert [result.error_code for result in results] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]
    assert all(result.error_message for result in results)


def describe(connection: Connection, kind: int, name: str, keys: list[str] | None, version: int = 4) -> object:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return connection.call(request, version).results[0]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_configs_are_described_with_their_source(connection: Connection, version: int) -> None:
    topic = new_topic(connection, configs={"retention.ms": "12345"})
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic.name, configuration_keys=None)
    result = connection.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), version).results[0]
    rows = {row.name: row for row in result.configs}
    assert len(rows) >= 33
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("12345", 1)
    assert rows["segment.bytes"].config_source == 5
    assert [one.name for one in rows["segment.bytes"].synonyms] == ["log.segment.bytes"]


def test_the_object_store_is_found_by_describing_the_broker(cluster: RunningCluster, connection: Connection) -> None:
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=["object.store.url", "nonsense"]
    )
    result = connection.call(DescribeConfigsRequest(resources=[resource])).results[0]
    assert [(row.name, row.value) for row in result.configs] == [("object.store.url", cluster.object_store)]


def test_an_altered_config_takes_effect(connection: Connection) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"x" * 5_000)).error_code == 0
    config = AlterableConfig(name="max.message.bytes", config_operation=0, value="1000")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic.name, configs=[config])
    (result,) = connection.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert result.error_code == 0
    for _ in range(100):
        if produce(connection, topic, batch_of(b"x" * 5_000)).error_code:
            break
    assert produce(connection, topic, batch_of(b"x" * 5_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_defaults_of_topics_are_altered_while_the_broker_runs(connection: Connection) -> None:
    topic = new_topic(connection)

    def alter(operation: int) -> None:
        config = AlterableConfig(name="message.max.bytes", config_operation=operation, value="1000")
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
        (result,) = connection.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert result.error_code == 0, result

    def becomes(code: ErrorCode) -> bool:
        return any(produce(connection, topic, batch_of(b"x" * 5_000)).error_code == code for _ in range(1_000))

    alter(0)
    try:
        assert becomes(ErrorCode.MESSAGE_TOO_LARGE)
    finally:
        alter(1)
    assert becomes(ErrorCode.NONE)


def test_the_cluster_is_described(cluster: RunningCluster, connection: Connection) -> None:
    response = connection.call(DescribeClusterRequest())
    assert [(one.broker_id, one.port) for one in response.brokers] == [(1, cluster.brokers[1].port)]
    assert response.controller_id == 1
    wrong = connection.call(DescribeClusterRequest(endpoint_type=2))
    assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_partitions_are_described_page_by_page(connection: Connection) -> None:
    names = [new_topic(connection, partitions=3, name=f"paged-{number}").name for number in range(3)]
    seen: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    for _ in range(20):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=2, cursor=cursor
        )
        response = connection.call(request)
        seen += [(topic.name, one.partition_index) for topic in response.topics for one in topic.partitions]
        if response.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    assert seen == [(name, partition) for name in names for partition in range(3)]


def test_only_what_works_is_advertised(connection: Connection) -> None:
    served = {
        api.api_key: api
        for api in connection.call(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3
        ).api_keys
    }
    assert (served[0].min_version, served[0].max_version) == (0, 13)
    assert (served[1].min_version, served[1].max_version) == (0, 18)
    assert served[22].max_version == 5, "version 6 of InitProducerId is not stable in Kafka 4.3"
    assert not [key for key in served if key >= 20_000]
    assert {24, 25, 26, 28} <= served.keys(), "transactions"


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_tells_what_a_client_may_do_if_it_asks(connection: Connection, version: int) -> None:
    topic = new_topic(connection)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])
    told = connection.call(request, version)
    assert told.topics[0].topic_authorized_operations == -(2**31)
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = version <= 10
    asked = connection.call(request, version)
    assert asked.topics[0].topic_authorized_operations == 3_576
    assert asked.cluster_authorized_operations == (8_096 if version <= 10 else -(2**31))
    asked.topics[0].topic_authorized_operations = asked.cluster_authorized_operations = -(2**31)
    assert asked == told
