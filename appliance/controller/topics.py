"""CreateTopics and DeleteTopics.

Each topic of a request is judged by itself: a mistake in one leaves its neighbours alone. Topics of one request see
those before them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence

from appliance.base.config import BrokerConfig, describe_topic, validate_topic_config
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import ZERO_UUID, is_usable_uuid
from appliance.base.randomness import Randomness, random_uuid
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.delta import MetadataDelta
from appliance.controller.elections import may_take_over
from appliance.controller.image import MetadataImage
from appliance.controller.placement import place
from appliance.controller.records import (
    PartitionChanged,
    PartitionState,
    Record,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
)
from appliance.controller.topic_names import check_no_collision, check_topic_name
from appliance.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from appliance.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

MAX_PARTITIONS_PER_REQUEST = 10_000
"""As in Kafka; also what keeps a request's records in one commit."""


def create_topics(request: CreateTopicsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """One row for each name, in the request's order."""
    config = rules.config_of(image)
    counts = Counter(topic.name for topic in request.topics)
    delta = MetadataDelta(image)
    records: list[Record] = []
    rows: list[CreatableTopicResult] = []
    budget = MAX_PARTITIONS_PER_REQUEST
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} stands in the request more than once")
            check_topic_name(topic.name)
            if topic.name not in image.topics:
                check_no_collision(topic.name, image)
            made, row = _create(topic, delta.build(), config, rules.randomness, budget)
        except KafkaError as error:
            rows.append(CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message))
            continue
        for record in made:
            delta.apply(record, position=-1)
        budget -= row.num_partitions
        records += made
        rows.append(row)
    return answer(CreateTopicsResponse(topics=rows), [] if request.validate_only else records)


def delete_topics(request: DeleteTopicsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """One row for each topic that is named, by name or by id."""
    deletable = rules.config_of(image).get("delete.topic.enable")
    wanted: list[tuple[str | None, uuid.UUID]] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    found = [_named(name, topic_id, image) for name, topic_id in wanted]
    counts = Counter(topic for topic in found if isinstance(topic, uuid.UUID))
    named_by_id = {topic_id for _, topic_id in wanted}
    records: dict[uuid.UUID, Record] = {}
    rows: list[DeletableTopicResult] = []
    for (name, topic_id), topic in zip(wanted, found, strict=True):
        row = DeletableTopicResult(name=name, topic_id=topic_id)
        rows.append(row)
        if isinstance(topic, KafkaError):
            row.error_code, row.error_message = topic.code, topic.message
        elif counts[topic] > 1:
            row.name = image.topics_by_id[topic].name
            if topic in named_by_id:
                row.topic_id = topic
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, "the topic is named more than once"
        elif not deletable:
            row.error_code, row.error_message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
        else:
            row.name, row.topic_id = image.topics_by_id[topic].name, topic
            records[topic] = TopicDeleted(topic)
    return answer(DeleteTopicsResponse(responses=rows), list(records.values()))


def check_replicas(replicas: Sequence[int], image: MetadataImage) -> None:
    """Whether these brokers can be the replicas of a partition.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an assignment names no broker")
    if len(set(replicas)) != len(replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"assignment {list(replicas)} names a broker twice")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {broker_id} is not registered")


def check_assignment(replicas: Sequence[int], image: MetadataImage) -> None:
    """Whether a new partition may be put onto these brokers as somebody asked.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    check_replicas(replicas, image)
    if not any(may_take_over(image.brokers[broker_id]) for broker_id in replicas):
        reason = f"all brokers of assignment {list(replicas)} are fenced or about to stop"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def new_partition(number: int, replicas: tuple[int, ...], image: MetadataImage) -> PartitionState:
    """A partition at the beginning of its life: in sync are all that live, the first of them leads."""
    isr = tuple(broker_id for broker_id in replicas if may_take_over(image.brokers[broker_id]))
    return PartitionState(number, isr[0], 0, 0, replicas, isr)


def _create(
    topic: CreatableTopic, image: MetadataImage, config: BrokerConfig, randomness: Randomness, budget: int
) -> tuple[list[Record], CreatableTopicResult]:
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} exists already")
    # Of an entry that is named twice the last value counts.
    overrides = {entry.name: entry.value for entry in topic.configs}
    validate_topic_config(overrides, config)
    replicas = _assigned(topic, image) if topic.assignments else _placed(topic, image, config, randomness, budget)
    if len(replicas) > budget:
        raise _too_many_partitions()
    topic_id = _new_topic_id(image, randomness)
    texts = {name: text for name, text in overrides.items() if text is not None}
    records: list[Record] = [TopicCreated(topic.name, topic_id)]
    records += [TopicConfigSet(topic_id, name, text) for name, text in texts.items()]
    records += [PartitionChanged(topic_id, new_partition(at, on, image)) for at, on in enumerate(replicas)]
    row = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=[
            CreatableTopicConfigs(
                name=described.name,
                value=described.value,
                read_only=described.read_only,
                config_source=described.source,
                is_sensitive=described.is_sensitive,
            )
            for described in describe_topic(texts, config)
        ],
    )
    return records, row


def _placed(
    topic: CreatableTopic, image: MetadataImage, config: BrokerConfig, randomness: Randomness, budget: int
) -> list[tuple[int, ...]]:
    """-1 stands for the defaults (KIP-464)."""
    partitions, replication_factor = topic.num_partitions, topic.replication_factor
    if partitions < -1 or partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; 1 or more, or -1 for the default")
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}; 1 or more, or -1 for the default",
        )
    if partitions == -1:
        partitions = config.get("num.partitions")
    if replication_factor == -1:
        replication_factor = config.get("default.replication.factor")
    if partitions > budget:
        raise _too_many_partitions()
    return place(image, partitions, replication_factor, randomness)


def _assigned(topic: CreatableTopic, image: MetadataImage) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "with a manual assignment, replication_factor must be -1")
    if topic.num_partitions != -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "with a manual assignment, num_partitions must be -1")
    by_number = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    if sorted(by_number) != list(range(len(topic.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a manual assignment numbers its partitions from 0 without a gap"
        )
    for replicas in by_number.values():
        check_assignment(replicas, image)
        if len(replicas) != len(by_number[0]):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all partitions of a topic have the same number of replicas"
            )
    return [tuple(by_number[number]) for number in range(len(by_number))]


def _named(name: str | None, topic_id: uuid.UUID, image: MetadataImage) -> uuid.UUID | KafkaError:
    """The topic that a row of DeleteTopics means, or what is wrong with the row."""
    if (name is None) == (topic_id == ZERO_UUID):
        return KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named either by its name or by its id")
    if name is not None:
        topic = image.topics.get(name)
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    else:
        topic = image.topics_by_id.get(topic_id)
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of that id")
    return unknown if topic is None else topic.topic_id


def _new_topic_id(image: MetadataImage, randomness: Randomness) -> uuid.UUID:
    while True:
        topic_id = random_uuid(randomness)
        if is_usable_uuid(topic_id) and topic_id not in image.topics_by_id:
            return topic_id


def _too_many_partitions() -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, f"a request may create {MAX_PARTITIONS_PER_REQUEST} partitions, this one wants more"
    )
