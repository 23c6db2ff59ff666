"""Records of groups of Kafka Streams as bytes, in the formats of Kafka's `__consumer_offsets`.

```
key    int16 kind, then a group id, and for some kinds a member id
value  int16 version (0), then the value message in that version; no value deletes
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from appliance.base.errors import invariant
from appliance.consumer_groups import records as other_records
from appliance.streams_groups.stored import (
    Assignment,
    Current,
    CurrentRecord,
    EveryRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    StreamsGroupRecord,
    TargetEpochRecord,
    TargetRecord,
    Task,
    Tasks,
    TopologyRecord,
)
from appliance.wire.codec import decode, encode
from appliance.wire.messages.consumer_group_records import GroupKey, MemberKey, TargetAssignmentMetadataValue
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
from appliance.wire.schema import Struct, WireError

GROUP_EPOCH_KIND = 17
MEMBER_KIND = 19
TARGET_EPOCH_KIND = 20
TARGET_KIND = 21
CURRENT_KIND = 22
TOPOLOGY_KIND = 23

STANDBY_REPLICAS = "num.standby.replicas"
"""The config that a target was made with."""
_INT16 = struct.Struct(">h")
_VERSION_0 = _INT16.pack(0)

M = TypeVar("M", bound=Struct)


def encode_record(record: EveryRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record of any group."""
    match record:
        case GroupEpochRecord(group_id):
            return _key(GROUP_EPOCH_KIND, GroupKey(group_id=group_id)), _value(_of_epoch(record))
        case TopologyRecord(group_id, topology):
            value = None
            if topology is not None:
                value = StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=topology.subtopologies)
            return _key(TOPOLOGY_KIND, GroupKey(group_id=group_id)), _value(value)
        case MemberRecord(group_id, member_id, member):
            key = _key(MEMBER_KIND, MemberKey(group_id=group_id, member_id=member_id))
            return key, _value(None if member is None else _of_member(member))
        case TargetEpochRecord(group_id, epoch, timestamp_ms):
            metadata = None
            if epoch is not None:
                metadata = TargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
            return _key(TARGET_EPOCH_KIND, GroupKey(group_id=group_id)), _value(metadata)
        case TargetRecord(group_id, member_id, target):
            key = _key(TARGET_KIND, MemberKey(group_id=group_id, member_id=member_id))
            if target is None:
                return key, None
            return key, _value(
                StreamsGroupTargetAssignmentMemberValue(
                    active_tasks=rows_of(target.active),
                    standby_tasks=rows_of(target.standby),
                    warmup_tasks=rows_of(target.warmup),
                )
            )
        case CurrentRecord(group_id, member_id, current):
            key = _key(CURRENT_KIND, MemberKey(group_id=group_id, member_id=member_id))
            return key, _value(None if current is None else _of_current(current))
    return other_records.encode_record(record)


def decode_record(key: bytes, value: bytes | None) -> EveryRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    if len(key) < 2:
        raise WireError(f"a key of {len(key)} bytes")
    read = _READERS.get(_INT16.unpack_from(key)[0])
    if read is None:
        return other_records.decode_record(key, value)
    return read(memoryview(key)[2:], value)


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


def _key(kind: int, key: Struct) -> bytes:
    return _INT16.pack(kind) + encode(key, 0)


def _value(value: Struct | None) -> bytes | None:
    return None if value is None else _VERSION_0 + encode(value, 0)


def _read_value(kind: type[M], value: bytes | None) -> M | None:
    if value is None:
        return None
    if value[:2] != _VERSION_0:
        raise WireError(f"{kind.__name__} of an unknown version")
    return decode(kind, memoryview(value)[2:], 0)


def _of_epoch(record: GroupEpochRecord) -> StreamsGroupMetadataValue | None:
    if record.epoch is None:
        return None
    return StreamsGroupMetadataValue(
        epoch=record.epoch,
        metadata_hash=record.metadata_hash,
        validated_topology_epoch=record.validated_topology_epoch,
        last_assignment_configs=[KeyValue(key=STANDBY_REPLICAS, value=str(record.standby_replicas))],
    )


def _read_epoch(key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    group_id = decode(GroupKey, key, 0).group_id
    read = _read_value(StreamsGroupMetadataValue, value)
    if read is None:
        return GroupEpochRecord(group_id, None)
    configs = {each.key: each.value for each in read.last_assignment_configs or ()}
    replicas = configs.get(STANDBY_REPLICAS, "")
    return GroupEpochRecord(
        group_id, read.epoch, read.metadata_hash, read.validated_topology_epoch,
        int(replicas) if replicas.isdecimal() else 0,
    )  # fmt: skip


def _read_topology(key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    group_id = decode(GroupKey, key, 0).group_id
    read = _read_value(StreamsGroupTopologyValue, value)
    return TopologyRecord(
        group_id, None if read is None else Topology(epoch=read.epoch, subtopologies=read.subtopologies)
    )


def _read_member(key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    names = decode(MemberKey, key, 0)
    read = _read_value(StreamsGroupMemberMetadataValue, value)
    return MemberRecord(names.group_id, names.member_id, None if read is None else _member(read))


def _read_target_epoch(key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    group_id = decode(GroupKey, key, 0).group_id
    read = _read_value(TargetAssignmentMetadataValue, value)
    if read is None:
        return TargetEpochRecord(group_id, None)
    return TargetEpochRecord(group_id, read.assignment_epoch, read.assignment_timestamp)


def _read_target(key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    names = decode(MemberKey, key, 0)
    read = _read_value(StreamsGroupTargetAssignmentMemberValue, value)
    target = None
    if read is not None:
        target = Assignment(tasks_of(read.active_tasks), tasks_of(read.standby_tasks), tasks_of(read.warmup_tasks))
    return TargetRecord(names.group_id, names.member_id, target)


def _read_current(key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    names = decode(MemberKey, key, 0)
    read = _read_value(StreamsGroupCurrentMemberAssignmentValue, value)
    return CurrentRecord(names.group_id, names.member_id, None if read is None else _current(read))


_READERS: Mapping[int, Callable[[memoryview, bytes | None], StreamsGroupRecord]] = {
    GROUP_EPOCH_KIND: _read_epoch,
    MEMBER_KIND: _read_member,
    TARGET_EPOCH_KIND: _read_target_epoch,
    TARGET_KIND: _read_target,
    CURRENT_KIND: _read_current,
    TOPOLOGY_KIND: _read_topology,
}


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
