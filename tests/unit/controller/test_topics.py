"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.controller import topics
from appliance.controller.brokers import fence
from appliance.controller.image import MetadataImage
from appliance.controller.partitions import create_partitions
from appliance.controller.topics import create_topics, delete_topics
from appliance.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from appliance.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.metadata import cluster, committed, leaders, rules


def topic(name: str, partitions: int = -1, replicas: int = -1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, *replicas: list[int], **fields: int) -> CreatableTopic:
    made = topic(name, **fields)
    made.assignments = [CreatableReplicaAssignment(partition_index=at, broker_ids=on) for at, on in enumerate(replicas)]
    return made


def create(image: MetadataImage, *wanted: CreatableTopic, **options: Any) -> tuple[Any, MetadataImage]:
    validate_only = options.pop("validate_only", False)
    chosen = options.pop("chosen", None) or rules(**options)
    request = CreateTopicsRequest(topics=list(wanted), validate_only=validate_only)
    return committed(image, create_topics(request, image, chosen))


def codes(response: Any) -> list[ErrorCode]:
    rows = getattr(response, "topics", None) or getattr(response, "responses", None) or response.results
    return [ErrorCode(row.error_code) for row in rows]


def test_a_topic_gets_an_id_partitions_and_its_configs() -> None:
    response, image = create(cluster(1, 2, 3), topic("a", 6, 1, retention_ms="1000"))
    (row,) = response.topics
    state = image.topics["a"]
    assert (row.error_code, row.error_message) == (0, None)
    assert (row.topic_id, row.num_partitions, row.replication_factor) == (state.topic_id, 6, 1)
    assert image.topics_by_id[row.topic_id] is state
    assert dict(state.configs) == {"retention.ms": "1000"}
    retention = next(config for config in row.configs if config.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("1000", 1)
    assert sorted(leader for leader, _ in leaders(image, "a")) == [1, 1, 2, 2, 3, 3]


def test_minus_one_stands_for_the_defaults() -> None:
    _, image = create(cluster(1), topic("a"), num_partitions="3")
    assert len(image.topics["a"].partitions) == 3


def test_validate_only_changes_nothing() -> None:
    image = cluster(1)
    response, later = create(image, topic("a", 2), topic("", 1), validate_only=True)
    assert codes(response) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert response.topics[0].num_partitions == 2
    assert later is image


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("dot_ted"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 10_001), ErrorCode.POLICY_VIOLATION),
        (topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (topic("a", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("a", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (assigned("a", [1], replicas=1), ErrorCode.INVALID_REQUEST),
        (assigned("a", [1], partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned("a", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", [1, 2], [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", [3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: value.name[:20] if isinstance(value, CreatableTopic) else value.name,
)
def test_what_is_wrong_with_one_topic_leaves_its_neighbours_alone(wanted: CreatableTopic, code: ErrorCode) -> None:
    image = cluster(1, 2, 3)
    _, image = committed(image, fence([(3, image.brokers[3].broker_epoch)], image, rules()))
    _, image = create(image, topic("there"), topic("dot.ted"))
    response, image = create(image, topic("left"), wanted, topic("right"))
    assert codes(response) == [ErrorCode.NONE, code, ErrorCode.NONE]
    assert response.topics[1].error_message
    assert sorted(image.topics) == ["dot.ted", "left", "right", "there"]


def test_a_topic_that_stands_twice_in_a_request_is_refused_once() -> None:
    response, image = create(cluster(1), topic("a"), topic("a"), topic("b"))
    assert [(row.name, row.error_code) for row in response.topics] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]
    assert list(image.topics) == ["b"]


def test_names_collide_with_those_that_are_there_and_not_within_a_request() -> None:
    response, image = create(cluster(1), topic("a.b"), topic("a_b"))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.NONE]
    response, _ = create(image, topic("a.b"), topic("a_b"))
    assert codes(response) == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
    response, image = create(cluster(1), topic("a.b"))
    assert codes(create(image, topic("a_b"))[0]) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_request_has_one_budget_of_partitions() -> None:
    response, _ = create(cluster(1), topic("a", 6_000), topic("b", 6_000), topic("c", 4_000))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


def test_without_a_live_broker_no_topic_is_made() -> None:
    image = cluster(1)
    _, image = committed(image, fence([(1, image.brokers[1].broker_epoch)], image, rules()))
    assert codes(create(image, topic("a"))[0]) == [ErrorCode.INVALID_REPLICATION_FACTOR]


def test_all_replicas_that_are_not_fenced_begin_in_sync() -> None:
    image = cluster(1, 2, 3)
    _, image = committed(image, fence([(2, image.brokers[2].broker_epoch)], image, rules()))
    _, image = create(image, topic("a", 2, 3), assigned("b", [2, 3, 1]))
    for state in image.topics["a"].partitions:
        assert state.replicas[-1] == 2, "a fenced broker leads last"
        assert (state.isr, state.leader) == (state.replicas[:2], state.replicas[0])
    assigned_state = image.topics["b"].partitions[0]
    assert (assigned_state.replicas, assigned_state.isr, assigned_state.leader) == ((2, 3, 1), (3, 1), 3)


def test_a_topic_without_a_wish_gets_the_default_replication_factor() -> None:
    _, image = create(cluster(1, 2, 3), topic("a"), chosen=rules(default_replication_factor="3"))
    assert len(image.topics["a"].partitions[0].replicas) == 3


def test_a_manual_assignment_is_kept_as_it_is() -> None:
    response, image = create(cluster(1, 2), assigned("a", [2], [1], [2]))
    assert [state.replicas for state in image.topics["a"].partitions] == [(2,), (1,), (2,)]
    assert response.topics[0].num_partitions == 3


def test_a_manual_assignment_numbers_its_partitions_without_a_gap() -> None:
    wanted = assigned("a", [1], [1])
    wanted.assignments[1].partition_index = 2
    assert codes(create(cluster(1), wanted)[0]) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_the_largest_request_fits_one_commit() -> None:
    from appliance.controller.commit_queue import MAX_RECORDS_BYTES
    from appliance.controller.records import encoded_size

    image = cluster(1)
    request = CreateTopicsRequest(topics=[topic("a" * 249, topics.MAX_PARTITIONS_PER_REQUEST)])
    assert encoded_size(create_topics(request, image, rules()).records) < MAX_RECORDS_BYTES


def delete(image: MetadataImage, *wanted: DeleteTopicState, **options: str) -> tuple[Any, MetadataImage]:
    return committed(image, delete_topics(DeleteTopicsRequest(topics=list(wanted)), image, rules(**options)))


def test_topics_are_deleted_by_name_and_by_id() -> None:
    created, image = create(cluster(1), topic("a"), topic("b"), topic("c"))
    response, image = delete(image, DeleteTopicState(name="a"), DeleteTopicState(topic_id=created.topics[1].topic_id))
    assert [(row.name, row.topic_id, row.error_code) for row in response.responses] == [
        ("a", created.topics[0].topic_id, 0),
        ("b", created.topics[1].topic_id, 0),
    ]
    assert list(image.topics) == ["c"]
    assert len(image.topics_by_id) == 1


def test_old_requests_name_topics_in_a_list_of_their_own() -> None:
    _, image = create(cluster(1), topic("a"))
    request = DeleteTopicsRequest(topic_names=["a", "b"])
    response, image = committed(image, delete_topics(request, image, rules()))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not image.topics


def test_what_cannot_be_deleted_is_said_row_by_row() -> None:
    created, image = create(cluster(1), topic("a"), topic("b"))
    topic_id = created.topics[0].topic_id
    response, image = delete(
        image,
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=topic_id),
        DeleteTopicState(name="x"),
        DeleteTopicState(topic_id=uuid.uuid4()),
        DeleteTopicState(name="b", topic_id=topic_id),
        DeleteTopicState(),
        DeleteTopicState(name="b"),
    )
    assert codes(response) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert list(image.topics) == ["a"]


def test_deletion_can_be_switched_off() -> None:
    _, image = create(cluster(1), topic("a"))
    response, image = delete(image, DeleteTopicState(name="a"), delete_topic_enable="false")
    assert codes(response) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert "a" in image.topics


def test_a_topic_created_again_has_another_id_and_starts_at_leader_epoch_0() -> None:
    first, image = create(cluster(1), topic("a"))
    _, image = delete(image, DeleteTopicState(name="a"))
    second, image = create(image, topic("a"), seed=1)
    assert first.topics[0].topic_id != second.topics[0].topic_id
    assert leaders(image, "a") == [(1, 0)]


def grow(image: MetadataImage, *wanted: CreatePartitionsTopic, **options: Any) -> tuple[Any, MetadataImage]:
    request = CreatePartitionsRequest(topics=list(wanted), **options)
    return committed(image, create_partitions(request, image, rules()))


def more(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    made = [CreatePartitionsAssignment(broker_ids=on) for on in assignments] if assignments else None
    return CreatePartitionsTopic(name=name, count=count, assignments=made)


def test_a_topic_grows() -> None:
    _, image = create(cluster(1, 2), topic("a", 2))
    response, image = grow(image, more("a", 4))
    assert codes(response) == [ErrorCode.NONE]
    assert sorted(leader for leader, _ in leaders(image, "a")) == [1, 1, 2, 2]
    assert [state.partition for state in image.topics["a"].partitions] == [0, 1, 2, 3]


def test_a_topic_grows_where_it_is_told_to() -> None:
    _, image = create(cluster(1, 2), topic("a", 1))
    _, image = grow(image, more("a", 3, [2], [2]))
    assert [state.replicas for state in image.topics["a"].partitions[1:]] == [(2,), (2,)]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (more("x", 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more("a", 2), ErrorCode.INVALID_PARTITIONS),
        (more("a", 1), ErrorCode.INVALID_PARTITIONS),
        (more("a", 4, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 20_000), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_is_wrong_with_a_growth(wanted: CreatePartitionsTopic, code: ErrorCode) -> None:
    _, image = create(cluster(1), topic("a", 2), topic("b", 1))
    response, image = grow(image, wanted, more("b", 2))
    assert codes(response) == [code, ErrorCode.NONE]
    assert len(image.topics["a"].partitions) == 2


def test_growth_can_be_tried_only() -> None:
    _, image = create(cluster(1), topic("a", 2))
    response, later = grow(image, more("a", 3), validate_only=True)
    assert codes(response) == [ErrorCode.NONE]
    assert later is image
