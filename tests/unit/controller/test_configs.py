"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.controller.configs import Alteration, ResourceType, alter, alter_incrementally
from appliance.controller.image import MetadataImage
from appliance.controller.topics import create_topics
from appliance.wire.messages import alter_configs, incremental_alter_configs
from appliance.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.support.metadata import cluster, committed, rules

SET, DELETE, APPEND, SUBTRACT = Alteration
TOPIC, BROKER, CLIENT_METRICS, GROUP = ResourceType


def with_topic(**configs: str) -> MetadataImage:
    image = cluster(1)
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=entries)
    return committed(image, create_topics(CreateTopicsRequest(topics=[wanted]), image, rules()))[1]


def incrementally(
    image: MetadataImage,
    *entries: tuple[str, int, str | None],
    resource: tuple[int, str] = (TOPIC, "t"),
    validate_only: bool = False,
) -> tuple[Any, MetadataImage]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in entries
                ],
            )
        ],
        validate_only=validate_only,
    )
    response, image = committed(image, alter_incrementally(request, image, rules()))
    return response.responses[0], image


def test_an_entry_is_set_and_deleted_and_the_others_stay() -> None:
    image = with_topic(retention_ms="1000", segment_bytes="2000000")
    row, image = incrementally(image, ("retention.ms", SET, "5000"))
    assert (row.error_code, row.resource_type, row.resource_name) == (0, TOPIC, "t")
    assert dict(image.topics["t"].configs) == {"retention.ms": "5000", "segment.bytes": "2000000"}
    _, image = incrementally(image, ("retention.ms", DELETE, None))
    assert dict(image.topics["t"].configs) == {"segment.bytes": "2000000"}


def test_a_list_is_added_to_and_taken_from() -> None:
    image = with_topic()
    _, image = incrementally(image, ("cleanup.policy", APPEND, "compact"))
    assert image.topics["t"].configs["cleanup.policy"] == "delete,compact"
    _, image = incrementally(image, ("cleanup.policy", APPEND, "compact"))
    assert image.topics["t"].configs["cleanup.policy"] == "delete,compact"
    _, image = incrementally(image, ("cleanup.policy", SUBTRACT, "delete"))
    assert image.topics["t"].configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_entry_changes_nothing(entries: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    image = with_topic()
    row, later = incrementally(image, *entries)
    assert row.error_code == code
    assert row.error_message
    assert later is image


def test_an_alteration_can_be_tried_only() -> None:
    image = with_topic()
    row, later = incrementally(image, ("retention.ms", SET, "1"), validate_only=True)
    assert row.error_code == 0
    assert later is image


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((BROKER, "9"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "one"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "01"), ErrorCode.INVALID_REQUEST),
        ((99, "t"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_that_is_not_there(resource: tuple[int, str], code: ErrorCode) -> None:
    assert incrementally(with_topic(), ("retention.ms", SET, "1"), resource=resource)[0].error_code == code


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_broker_is_altered_alone_or_with_all_others(broker: str) -> None:
    row, image = incrementally(with_topic(), ("log.retention.ms", SET, "1000"), resource=(BROKER, broker))
    assert row.error_code == 0
    assert {name: dict(configs) for name, configs in image.broker_configs.items()} == {
        broker: {"log.retention.ms": "1000"}
    }
    _, image = incrementally(image, ("log.retention.ms", DELETE, None), resource=(BROKER, broker))
    assert image.broker_configs == {}


def test_a_key_that_a_broker_reads_at_its_start_only_cannot_be_altered() -> None:
    row, _ = incrementally(with_topic(), ("broker.rack", SET, "a"), resource=(BROKER, "1"))
    assert row.error_code == ErrorCode.INVALID_REQUEST


def test_what_was_altered_for_all_brokers_counts_when_topics_are_made() -> None:
    _, image = incrementally(with_topic(), ("log.retention.ms", SET, "77"), resource=(BROKER, ""))
    request = CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
    response, _ = committed(image, create_topics(request, image, rules()))
    assert next(row.value for row in response.topics[0].configs if row.name == "retention.ms") == "77"


def test_the_old_form_replaces_all_entries() -> None:
    image = with_topic(retention_ms="1000", segment_bytes="2000000")
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[alter_configs.AlterableConfig(name="retention.ms", value="7")],
            ),
            alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="x"),
        ]
    )
    response, image = committed(image, alter(request, image, rules()))
    assert [row.error_code for row in response.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert dict(image.topics["t"].configs) == {"retention.ms": "7"}


def test_a_resource_that_stands_twice_is_refused() -> None:
    image = with_topic()
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    response, later = committed(
        image, alter(alter_configs.AlterConfigsRequest(resources=[resource, resource]), image, rules())
    )
    assert [row.error_code for row in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert later is image
