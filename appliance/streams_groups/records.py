"""Records of groups of Kafka Streams as bytes, in Kafka's formats (see `groups.record_forms`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from appliance.base.errors import invariant
from appliance.consumer_groups import records as other_records
from appliance.consumer_groups.stored import AnyRecord
from appliance.groups.record_forms import Form, Forms, group_form, member_form, target_epoch_form
from appliance.streams_groups.stored import (
    Assignment,
    Current,
    CurrentRecord,
    EveryRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    TargetEpochRecord,
    TargetRecord,
    Task,
    Tasks,
    TopologyRecord,
)
from appliance.wire.messages.consumer_group_records import GroupKey, TargetAssignmentMetadataValue
from appliance.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, Topology
from appliance.wire.messages.streams_group_heartbeat import TaskIds as TargetTaskIds
from appliance.wire.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyValue,
    TaskIds,
)

GROUP_EPOCH_KIND = 17
MEMBER_KIND = 19
TARGET_EPOCH_KIND = 20
TARGET_KIND = 21
CURRENT_KIND = 22
TOPOLOGY_KIND = 23

STANDBY_REPLICAS = "num.standby.replicas"
"""The config that a target was made with."""


def encode_record(record: EveryRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record of any group."""
    return _FORMS.encode(record) if record in _FORMS else other_records.encode_record(cast(AnyRecord, record))


def decode_record(key: bytes, value: bytes | None) -> EveryRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    return _FORMS.decode(key, value) or other_records.decode_record(key, value)


def rows_of(tasks: Tasks) -> list[TargetTaskIds]:
    """Tasks by subtopology, in order."""
    return [TargetTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in _by_subtopology(tasks).items()]


def tasks_of(rows: Iterable[Any] | None) -> Tasks:
    """The tasks that these rows name."""
    return frozenset((row.subtopology_id, partition) for row in rows or () for partition in row.partitions)


def _by_subtopology(tasks: Tasks) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        found.setdefault(name, []).append(partition)
    return found


def _of_epoch(
    epoch: int, metadata_hash: int, validated_topology_epoch: int, standby_replicas: int
) -> StreamsGroupMetadataValue:
    return StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[KeyValue(key=STANDBY_REPLICAS, value=str(standby_replicas))],
    )


def _epoch(value: StreamsGroupMetadataValue) -> tuple[int, int, int, int]:
    configs = {each.key: each.value for each in value.last_assignment_configs or ()}
    replicas = configs.get(STANDBY_REPLICAS, "")
    return (
        value.epoch, value.metadata_hash, value.validated_topology_epoch, int(replicas) if replicas.isdecimal() else 0
    )  # fmt: skip


def _of_topology(topology: Topology) -> StreamsGroupTopologyValue:
    return StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=topology.subtopologies)


def _topology(value: StreamsGroupTopologyValue) -> Topology:
    return Topology(epoch=value.epoch, subtopologies=value.subtopologies)


def _of_target(target: Assignment) -> StreamsGroupTargetAssignmentMemberValue:
    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=rows_of(target.active),
        standby_tasks=rows_of(target.standby),
        warmup_tasks=rows_of(target.warmup),
    )


def _target(value: StreamsGroupTargetAssignmentMemberValue) -> Assignment:
    return Assignment(tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks))


def _of_member(member: MemberInfo) -> StreamsGroupMemberMetadataValue:
    endpoint = member.user_endpoint
    return StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
    )


def _member(value: StreamsGroupMemberMetadataValue) -> MemberInfo:
    endpoint = value.user_endpoint
    return MemberInfo(
        value.client_id,
        value.client_host,
        value.rack_id,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        value.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        tuple((each.key, each.value) for each in value.client_tags),
        value.instance_id,
    )


def _of_current(current: Current) -> StreamsGroupCurrentMemberAssignmentValue:
    invariant(current.state is not MemberState.UNKNOWN, "a member's state is not known")
    assigned, pending, none = current.assigned, current.pending, {}  # type: ignore[var-annotated]
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=int(current.state),
        active_tasks=_rows(assigned.active, current.epochs),
        standby_tasks=_rows(assigned.standby, none),
        warmup_tasks=_rows(assigned.warmup, none),
        active_tasks_pending_revocation=_rows(pending.active, current.epochs),
        standby_tasks_pending_revocation=_rows(pending.standby, none),
        warmup_tasks_pending_revocation=_rows(pending.warmup, none),
    )


def _rows(tasks: Tasks, epochs: Mapping[Task, int]) -> list[TaskIds]:
    """Only active tasks have epochs."""
    return [
        TaskIds(
            subtopology_id=name,
            partitions=numbers,
            assignment_epochs=[epochs[name, number] for number in numbers] if epochs else None,
        )
        for name, numbers in _by_subtopology(tasks).items()
    ]


def _current(value: StreamsGroupCurrentMemberAssignmentValue) -> Current:
    known = value.state in (MemberState.STABLE, MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS)
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state) if known else MemberState.UNKNOWN,
        Assignment(tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)),
        Assignment(
            tasks_of(value.active_tasks_pending_revocation),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        ),
        _epochs([*value.active_tasks, *value.active_tasks_pending_revocation], value.member_epoch),
    )


def _epochs(rows: Iterable[TaskIds], member_epoch: int) -> dict[Task, int]:
    """Brokers before Kafka 4.3 did not say in which epoch a task was given; then it is the member's."""
    epochs: dict[Task, int] = {}
    for row in rows:
        given = row.assignment_epochs
        if given is None or len(given) != len(row.partitions):
            given = [member_epoch] * len(row.partitions)
        for partition, epoch in zip(row.partitions, given, strict=True):
            epochs[row.subtopology_id, partition] = epoch
    return epochs


_FORMS = Forms(
    Form(GROUP_EPOCH_KIND, GroupEpochRecord, GroupKey, StreamsGroupMetadataValue, _of_epoch, _epoch),
    member_form(MEMBER_KIND, MemberRecord, StreamsGroupMemberMetadataValue, _of_member, _member),
    target_epoch_form(TARGET_EPOCH_KIND, TargetEpochRecord, TargetAssignmentMetadataValue),
    member_form(TARGET_KIND, TargetRecord, StreamsGroupTargetAssignmentMemberValue, _of_target, _target),
    member_form(CURRENT_KIND, CurrentRecord, StreamsGroupCurrentMemberAssignmentValue, _of_current, _current),
    group_form(TOPOLOGY_KIND, TopologyRecord, StreamsGroupTopologyValue, _of_topology, _topology),
)
