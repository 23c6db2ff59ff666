"""AlterPartition: a leader asks for another ISR (rules P6 to P9).

FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION: the leader knows an older partition than this. INELIGIBLE_REPLICA: a member
may not join now. NOT_CONTROLLER: the leader has seen a newer partition, so this controller is not the last one.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from appliance.base.errors import ErrorCode, InvariantBroken, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.elections import Outcome
from appliance.controller.image import MetadataImage
from appliance.controller.records import LeaderRecoveryState, PartitionChanged, PartitionState, Record
from appliance.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResponse,
    TopicDataResponse,
)


def alter_partition(request: AlterPartitionRequest, image: MetadataImage, rules: Rules) -> Decision:
    """Every partition is judged by itself; the ones that are accepted are committed together."""
    outcome = Outcome(image, rules)
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return answer(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[Record] = []
    topics: list[TopicDataResponse] = []
    seen: set[tuple[uuid.UUID, int]] = set()
    for topic in request.topics:
        rows: list[PartitionDataResponse] = []
        for data in topic.partitions:
            try:
                if (topic.topic_id, data.partition_index) in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition stands in the request more than once")
                seen.add((topic.topic_id, data.partition_index))
                state = _decided(request.broker_id, topic.topic_id, data, outcome)
            except KafkaError as error:
                rows.append(PartitionDataResponse(partition_index=data.partition_index, error_code=error.code))
                continue
            records.append(PartitionChanged(topic.topic_id, state))
            if state.leader != request.broker_id:
                # Its reassignment is done and it holds no replica any more (KIP-497 has no row for that).
                rows.append(
                    PartitionDataResponse(partition_index=data.partition_index, error_code=ErrorCode.NEW_LEADER_ELECTED)
                )
                continue
            rows.append(
                PartitionDataResponse(
                    partition_index=state.partition,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    leader_recovery_state=state.leader_recovery_state,
                    partition_epoch=state.partition_epoch,
                )
            )
        topics.append(TopicDataResponse(topic_id=topic.topic_id, partitions=rows))
    return answer(AlterPartitionResponse(topics=topics), records)


def _decided(broker_id: int, topic_id: uuid.UUID, data: PartitionData, outcome: Outcome) -> PartitionState:
    """The partition with the ISR that is asked for; its epoch rises also when the ISR stays the same (P8)."""
    image = outcome.image
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = image.partition_by_id(topic_id, data.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if data.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the sender does not lead the partition")
    if data.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    members = _members(data)
    _check_members([broker_id for broker_id, _ in members], partition, broker_id)
    recovery = _recovery(data, partition, len(members))
    for member, broker_epoch in members:
        state = image.brokers.get(member)
        eligible = state is not None and not state.fenced and (member == broker_id or not state.shutting_down)
        if state is None or not eligible or broker_epoch not in (-1, state.broker_epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member}")
    isr = tuple(member for member, _ in members)
    wanted = msgspec.structs.replace(partition, isr=isr, leader_recovery_state=recovery)
    changed = outcome.settle(topic, partition, wanted, always=True)
    if changed is None:
        raise InvariantBroken("a partition that must get a new epoch got none")
    return changed


def _members(data: PartitionData) -> list[tuple[int, int]]:
    """(broker id, broker epoch or -1) of the ISR that is asked for; version 2 has no epochs."""
    return [(state.broker_id, state.broker_epoch) for state in data.new_isr_with_epochs] + [
        (broker_id, -1) for broker_id in data.new_isr
    ]


def _check_members(members: Sequence[int], partition: PartitionState, leader: int) -> None:
    if leader not in members or len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{list(members)} cannot be the ISR of {partition.replicas}")


def _recovery(data: PartitionData, partition: PartitionState, members: int) -> LeaderRecoveryState:
    """KIP-704: a leader reports that it has recovered, never the other way; until then it is alone in the ISR."""
    if data.leader_recovery_state not in tuple(LeaderRecoveryState):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no leader recovery state {data.leader_recovery_state}")
    wanted = LeaderRecoveryState(data.leader_recovery_state)
    if wanted is LeaderRecoveryState.RECOVERING and (
        partition.leader_recovery_state is LeaderRecoveryState.RECOVERED or members > 1
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a leader that recovers is alone in the ISR")
    return wanted
