"""Requests about topics and configs: each function asks once and gives an answer or an error for each of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from appliance.base.errors import ErrorCode, KafkaError
from appliance.client.connection import Connection, error_of
from appliance.client.results import BROKER_RESOURCE, ConfigEntry, ConfigResource, CreatedTopic, NewTopic
from appliance.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

VERSION_WITH_CONFIG_DOCUMENTATION = 3


def create_topics(
    connection: Connection, topics: Mapping[str, NewTopic], validate_only: bool, timeout_ms: int
) -> dict[str, CreatedTopic | KafkaError]:
    """CreateTopics.

    Raises:
        KafkaError, ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics.values()], timeout_ms=timeout_ms, validate_only=validate_only
    )
    answers: dict[str, CreatedTopic | KafkaError] = {}
    for got in connection.call(request, timeout_ms=timeout_ms).topics:
        created = CreatedTopic(got.name, got.topic_id, got.num_partitions, got.replication_factor)
        answers[got.name] = _error(got.error_code, f"topic {got.name}", got.error_message) or created
    return answers


def _creatable(topic: NewTopic) -> CreatableTopic:
    # Kafka wants -1 for both counts where the replicas are given by hand.
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.num_partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in enumerate(topic.assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def delete_topics(connection: Connection, names: Collection[str], timeout_ms: int) -> dict[str, KafkaError | None]:
    """DeleteTopics by name.

    Raises:
        KafkaError, ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    states = [DeleteTopicState(name=name) for name in names]
    # Versions before 6 have a plain list of names; each version takes the field that it has.
    version = connection.common_version(DeleteTopicsRequest, timeout_ms)
    request = (
        DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        if version >= 6
        else DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    )
    return {
        got.name: _error(got.error_code, f"topic {got.name}", got.error_message)
        for got in connection.call(request, version, timeout_ms).responses
        if got.name is not None
    }


def describe_configs(
    connection: Connection, resources: Collection[ConfigResource], names: Collection[str] | None, timeout_ms: int
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    """DescribeConfigs, with documentation where the broker gives it.

    Raises:
        KafkaError, ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    version = connection.common_version(DescribeConfigsRequest, timeout_ms)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                configuration_keys=None if names is None else list(names),
            )
            for resource in resources
        ],
        include_documentation=version >= VERSION_WITH_CONFIG_DOCUMENTATION,
    )
    answers: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    for got in connection.call(request, version, timeout_ms).results:
        resource = ConfigResource(got.resource_type, got.resource_name)
        entries = {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                entry.config_source,
                entry.read_only,
                entry.is_sensitive,
                entry.config_type,
                entry.documentation,
            )
            for entry in got.configs
        }
        error = _error(got.error_code, f"configs of {resource.name}", got.error_message)
        answers[resource] = entries if error is None else error
    return answers


def broker_of(resource: ConfigResource, otherwise: int) -> int:
    """The broker that alone can tell about a resource; `otherwise` if any can."""
    if resource.resource_type == BROKER_RESOURCE and resource.name.isdecimal():
        return int(resource.name)
    return otherwise


def _error(code: int, what: str, message: str | None) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    return KafkaError(error_of(code), f"{what}: {message}" if message else what)
