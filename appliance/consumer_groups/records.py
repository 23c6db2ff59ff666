"""Records of consumer groups as bytes, in the formats of Kafka's `__consumer_offsets`, so that its tools can read them.

```
key    int16 kind, then a group id, and for some kinds a member id or a regular expression
value  int16 version (0), then the value message in that version; no value deletes
```
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from appliance.base.errors import invariant
from appliance.consumer_groups.stored import (
    AnyRecord,
    ClassicMember,
    ConsumerGroupRecord,
    Current,
    CurrentRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    Owned,
    PartitionMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
)
from appliance.groups import records as classic_records
from appliance.wire.codec import decode, encode
from appliance.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentMemberAssignmentValue,
    GroupKey,
    MemberKey,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from appliance.wire.schema import Struct, WireError

GROUP_EPOCH_KIND = 3
PARTITION_METADATA_KIND = 4
MEMBER_KIND = 5
TARGET_EPOCH_KIND = 6
TARGET_KIND = 7
CURRENT_KIND = 8
REGEX_KIND = 16

_INT16 = struct.Struct(">h")
_VERSION_0 = _INT16.pack(0)

M = TypeVar("M", bound=Struct)


def encode_record(record: AnyRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record of any group."""
    match record:
        case GroupEpochRecord(group_id, epoch, metadata_hash):
            of_epoch = None if epoch is None else ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
            return _key(GROUP_EPOCH_KIND, GroupKey(group_id=group_id)), _value(of_epoch)
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
            rows = [TopicPartition(topic_id=topic, partitions=list(target[topic])) for topic in sorted(target)]
            return key, _value(TargetAssignmentMemberValue(topic_partitions=rows))
        case CurrentRecord(group_id, member_id, current):
            key = _key(CURRENT_KIND, MemberKey(group_id=group_id, member_id=member_id))
            return key, _value(None if current is None else _of_current(current))
        case RegexRecord(group_id, regex, resolved):
            key = _key(REGEX_KIND, RegularExpressionKey(group_id=group_id, regular_expression=regex))
            if resolved is None:
                return key, None
            return key, _value(
                RegularExpressionValue(
                    topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
                )
            )
        case PartitionMetadataRecord(group_id):
            return _key(PARTITION_METADATA_KIND, GroupKey(group_id=group_id)), None
    return classic_records.encode_record(record)


def decode_record(key: bytes, value: bytes | None) -> AnyRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    if len(key) < 2:
        raise WireError(f"a key of {len(key)} bytes")
    read = _READERS.get(_INT16.unpack_from(key)[0])
    if read is None:
        return classic_records.decode_record(key, value)
    return read(memoryview(key)[2:], value)


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


def _read_epoch(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    group_id = decode(GroupKey, key, 0).group_id
    read = _read_value(ConsumerGroupMetadataValue, value)
    return GroupEpochRecord(group_id, None) if read is None else GroupEpochRecord(
        group_id, read.epoch, read.metadata_hash
    )  # fmt: skip


def _read_partition_metadata(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    return PartitionMetadataRecord(decode(GroupKey, key, 0).group_id)


def _read_member(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    names = decode(MemberKey, key, 0)
    read = _read_value(ConsumerGroupMemberMetadataValue, value)
    return MemberRecord(names.group_id, names.member_id, None if read is None else _member(read))


def _read_target_epoch(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    group_id = decode(GroupKey, key, 0).group_id
    read = _read_value(TargetAssignmentMetadataValue, value)
    if read is None:
        return TargetEpochRecord(group_id, None)
    return TargetEpochRecord(group_id, read.assignment_epoch, read.assignment_timestamp)


def _read_target(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    names = decode(MemberKey, key, 0)
    read = _read_value(TargetAssignmentMemberValue, value)
    target = None
    if read is not None:
        target = {row.topic_id: tuple(row.partitions) for row in read.topic_partitions if row.partitions}
    return TargetRecord(names.group_id, names.member_id, target)


def _read_current(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    names = decode(MemberKey, key, 0)
    read = _read_value(CurrentMemberAssignmentValue, value)
    return CurrentRecord(names.group_id, names.member_id, None if read is None else _current(read))


def _read_regex(key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    names = decode(RegularExpressionKey, key, 0)
    read = _read_value(RegularExpressionValue, value)
    resolved = None if read is None else ResolvedRegex(tuple(read.topics), read.version, read.timestamp)
    return RegexRecord(names.group_id, names.regular_expression, resolved)


_READERS: Mapping[int, Callable[[memoryview, bytes | None], ConsumerGroupRecord]] = {
    GROUP_EPOCH_KIND: _read_epoch,
    PARTITION_METADATA_KIND: _read_partition_metadata,
    MEMBER_KIND: _read_member,
    TARGET_EPOCH_KIND: _read_target_epoch,
    TARGET_KIND: _read_target,
    CURRENT_KIND: _read_current,
    REGEX_KIND: _read_regex,
}


def _of_member(member: MemberInfo) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.classic.protocols],
        )
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )


def _member(value: ConsumerGroupMemberMetadataValue) -> MemberInfo:
    classic = value.classic_member_metadata
    return MemberInfo(
        value.client_id,
        value.client_host,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        value.instance_id,
        value.rack_id,
        None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms, tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        ),
    )


def _of_current(current: Current) -> CurrentMemberAssignmentValue:
    invariant(current.state is not MemberState.UNKNOWN, "a member's state is not known")
    return CurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=int(current.state),
        assigned_partitions=_rows(current.assigned),
        partitions_pending_revocation=_rows(current.pending_revocation),
    )


def _rows(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic,
            partitions=sorted(owned[topic]),
            assignment_epochs=[owned[topic][partition] for partition in sorted(owned[topic])],
        )
        for topic in sorted(owned)
    ]


def _current(value: CurrentMemberAssignmentValue) -> Current:
    known = value.state in (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state) if known else MemberState.UNKNOWN,
        _owned(value.assigned_partitions, value.member_epoch),
        _owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned(rows: Iterable[Any], member_epoch: int) -> dict[uuid.UUID, dict[int, int]]:
    """Brokers before Kafka 4.3 did not say in which epoch a partition was given; then it is the member's."""
    owned: dict[uuid.UUID, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        if row.partitions:
            owned.setdefault(row.topic_id, {}).update(zip(row.partitions, epochs, strict=True))
    return owned
