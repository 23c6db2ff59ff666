"""The metadata log without a controller: read it from the store, or begin it anew from what the tier knows.

For commands that look into the object store themselves. Blocks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from appliance.base.clock import SystemClock
from appliance.base.ids import is_usable_uuid, uuid_to_text
from appliance.base.object_store import ObjectNotFound, ObjectStore, StoreUnavailable
from appliance.base.randomness import Randomness, SystemRandomness, random_uuid
from appliance.broker_actors.metadata_store import perform
from appliance.controller.commits import MAX_COMMIT_BYTES
from appliance.controller.image import MetadataImage
from appliance.controller.log_reader import POINTER, LogReader
from appliance.controller.metadata_log import MetadataLog
from appliance.controller.records import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionChanged,
    PartitionState,
    Record,
    TopicConfigSet,
    TopicCreated,
    encoded_size,
)
from appliance.controller.store_calls import NoAnswer, Pause, StoreAnswer, StoreResult, StoreSteps

T = TypeVar("T")

ANSWERLESS_MAX = 8
"""After so many requests in a row without an answer the store counts as away."""
REBUILDER_ID = -1
"""Stands for the controller that writes what this command writes; none has it."""
COMMIT_BYTES = MAX_COMMIT_BYTES // 2


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """What a manifest tells of a partition."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    partitions: int = 0
    """How many the topic has at least."""


def run_steps(steps: StoreSteps[T], store: ObjectStore) -> T:
    """Run a piece of the log's protocol to its end. Raises: StoreUnavailable, and what the piece raises."""
    clock = SystemClock()
    answerless = 0
    try:
        request = next(steps)
        while True:
            sent_ms = clock.monotonic_ms()
            if isinstance(request, Pause):
                time.sleep(request.delay_ms / 1_000)
            result: StoreResult = perform(store, request)
            answerless = answerless + 1 if isinstance(result, NoAnswer) else answerless
            if not isinstance(result, NoAnswer) and not isinstance(request, Pause):
                answerless = 0
            if isinstance(result, NoAnswer) and answerless >= ANSWERLESS_MAX:
                raise StoreUnavailable(result.reason)
            request = steps.send(StoreAnswer(result, sent_ms))
    except StopIteration as stop:
        value: T = stop.value
        return value


def read_image(store: ObjectStore) -> MetadataImage | None:
    """All metadata in the store; None when there is none. Raises: ObjectStoreError, LogCorrupt."""
    try:
        store.get(POINTER)
    except ObjectNotFound:
        return None
    reader = LogReader(SystemRandomness())
    run_steps(reader.read_round(), store)
    return reader.image if reader.image.position >= 0 else None


def rebuild(
    store: ObjectStore,
    found: Sequence[FoundPartition],
    brokers: Sequence[int],
    replication_factor: int,
    configs: Mapping[str, Mapping[str, str]],
    randomness: Randomness | None = None,
) -> MetadataImage:
    """Begin the metadata anew with the topics of `found`; nobody leads them before they are restored.

    Args:
        brokers: ids of the brokers that are going to hold them.
        configs: given to topics, by name; what theirs were is not known.

    Raises: ObjectStoreError, LogCorrupt, SteppedDown.
    """
    chance = randomness or SystemRandomness()
    log = MetadataLog(REBUILDER_ID, chance)
    new_id = random_uuid(chance)
    while not is_usable_uuid(new_id):
        new_id = random_uuid(chance)
    run_steps(log.open(None, uuid_to_text(new_id)), store)
    run_steps(log.claim(SystemClock().now_ms()), store)
    pending: list[Record] = []
    for record in _records(found, brokers, replication_factor, configs):
        if pending and encoded_size([*pending, record]) > COMMIT_BYTES:
            run_steps(log.commit(pending, SystemClock().now_ms()), store)
            pending = []
        pending.append(record)
    if pending:
        run_steps(log.commit(pending, SystemClock().now_ms()), store)
    return log.image


def _records(
    found: Sequence[FoundPartition],
    brokers: Sequence[int],
    replication_factor: int,
    configs: Mapping[str, Mapping[str, str]],
) -> list[Record]:
    topics: dict[uuid.UUID, dict[int, FoundPartition]] = {}
    for one in found:
        topics.setdefault(one.topic_id, {})[one.partition] = one
    records: list[Record] = []
    first = 0
    for topic_id, partitions in topics.items():
        name = next(iter(partitions.values())).topic
        records.append(TopicCreated(name, topic_id))
        records += [TopicConfigSet(topic_id, key, value) for key, value in configs.get(name, {}).items()]
        for number in range(max(max(partitions) + 1, *(one.partitions for one in partitions.values()))):
            at = partitions.get(number)
            replicas = tuple(brokers[(first + n) % len(brokers)] for n in range(min(replication_factor, len(brokers))))
            first += 1
            records.append(
                PartitionChanged(
                    topic_id,
                    PartitionState(
                        number,
                        NO_LEADER,
                        # The election that restores it takes the next one: above all that the tier has seen.
                        at.leader_epoch if at is not None else 0,
                        0,
                        replicas,
                        replicas[:1],
                        leader_recovery_state=LeaderRecoveryState.RECOVERING,
                        data_lost=True,
                    ),
                )
            )
    return records
