"""Records of share groups as bytes, in the formats of Kafka's `__consumer_offsets`, so that its tools can read them.

```
key    int16 kind, then a group id, and for some kinds a member id
value  int16 version (0), then the value message in that version; no value deletes
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from appliance.share_groups.stored import (
    KnownState,
    KnownStateRecord,
    KnownTopics,
    ShareCurrent,
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMember,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    Target,
)
from appliance.wire.codec import decode, encode
from appliance.wire.messages.consumer_group_records import GroupKey, MemberKey
from appliance.wire.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from appliance.wire.schema import Struct, WireError

MEMBER_KIND = 10
GROUP_EPOCH_KIND = 11
TARGET_EPOCH_KIND = 12
TARGET_KIND = 13
CURRENT_KIND = 14
KNOWN_STATE_KIND = 15

_INT16 = struct.Struct(">h")
_VERSION_0 = _INT16.pack(0)

M = TypeVar("M", bound=Struct)


def encode_record(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    match record:
        case ShareGroupEpochRecord(group_id, epoch, metadata_hash):
            of_epoch = None if epoch is None else ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
            return _key(GROUP_EPOCH_KIND, group_id), _value(of_epoch)
        case ShareMemberRecord(group_id, member_id, member):
            return _key(MEMBER_KIND, group_id, member_id), _value(None if member is None else _of_member(member))
        case ShareTargetEpochRecord(group_id, epoch, timestamp_ms):
            metadata = None
            if epoch is not None:
                metadata = ShareGroupTargetAssignmentMetadataValue(
                    assignment_epoch=epoch, assignment_timestamp=timestamp_ms
                )
            return _key(TARGET_EPOCH_KIND, group_id), _value(metadata)
        case ShareTargetRecord(group_id, member_id, target):
            of_target = None
            if target is not None:
                rows = [TopicPartition(topic_id=topic, partitions=list(target[topic])) for topic in sorted(target)]
                of_target = ShareGroupTargetAssignmentMemberValue(topic_partitions=rows)
            return _key(TARGET_KIND, group_id, member_id), _value(of_target)
        case ShareCurrentRecord(group_id, member_id, current):
            return _key(CURRENT_KIND, group_id, member_id), _value(None if current is None else _of_current(current))
        case KnownStateRecord(group_id, known):
            return _key(KNOWN_STATE_KIND, group_id), _value(None if known is None else _of_known(known))


def decode_record(key: bytes, value: bytes | None) -> ShareGroupRecord | None:
    """Read a record; None if it is none of a share group.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    read = _READERS.get(_INT16.unpack_from(key)[0]) if len(key) >= 2 else None
    return None if read is None else read(memoryview(key)[2:], value)


def _key(kind: int, group_id: str, member_id: str | None = None) -> bytes:
    if member_id is None:
        return _INT16.pack(kind) + encode(GroupKey(group_id=group_id), 0)
    return _INT16.pack(kind) + encode(MemberKey(group_id=group_id, member_id=member_id), 0)


def _value(value: Struct | None) -> bytes | None:
    return None if value is None else _VERSION_0 + encode(value, 0)


def _read_value(kind: type[M], value: bytes | None) -> M | None:
    if value is None:
        return None
    if value[:2] != _VERSION_0:
        raise WireError(f"{kind.__name__} of an unknown version")
    return decode(kind, memoryview(value)[2:], 0)


def _of_member(member: ShareMember) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
    )


def _of_current(current: ShareCurrent) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        assigned_partitions=[
            TopicPartitions(topic_id=topic, partitions=list(current.assigned[topic]))
            for topic in sorted(current.assigned)
        ],
    )


def _of_known(known: KnownState) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_rows(known.initializing),
        initialized_topics=_rows(known.initialized),
        deleting_topics=[TopicInfo(topic_id=each, topic_name=known.deleting[each]) for each in sorted(known.deleting)],
    )


def _rows(topics: KnownTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=each, topic_name=topics[each][0], partitions=list(topics[each][1]))
        for each in sorted(topics)
    ]


def _target(rows: list[TopicPartition] | list[TopicPartitions]) -> Target:
    return {row.topic_id: tuple(row.partitions) for row in rows if row.partitions}


def _topics(rows: list[TopicPartitionsInfo]) -> KnownTopics:
    return {row.topic_id: (row.topic_name, tuple(row.partitions)) for row in rows}


def _read_member(key: memoryview, value: bytes | None) -> ShareGroupRecord:
    names, read = decode(MemberKey, key, 0), _read_value(ShareGroupMemberMetadataValue, value)
    member = None
    if read is not None:
        member = ShareMember(read.client_id, read.client_host, tuple(read.subscribed_topic_names), read.rack_id)
    return ShareMemberRecord(names.group_id, names.member_id, member)


def _read_epoch(key: memoryview, value: bytes | None) -> ShareGroupRecord:
    group_id, read = decode(GroupKey, key, 0).group_id, _read_value(ShareGroupMetadataValue, value)
    if read is None:
        return ShareGroupEpochRecord(group_id, None)
    return ShareGroupEpochRecord(group_id, read.epoch, read.metadata_hash)


def _read_target_epoch(key: memoryview, value: bytes | None) -> ShareGroupRecord:
    group_id = decode(GroupKey, key, 0).group_id
    read = _read_value(ShareGroupTargetAssignmentMetadataValue, value)
    if read is None:
        return ShareTargetEpochRecord(group_id, None)
    return ShareTargetEpochRecord(group_id, read.assignment_epoch, read.assignment_timestamp)


def _read_target(key: memoryview, value: bytes | None) -> ShareGroupRecord:
    names, read = decode(MemberKey, key, 0), _read_value(ShareGroupTargetAssignmentMemberValue, value)
    return ShareTargetRecord(names.group_id, names.member_id, None if read is None else _target(read.topic_partitions))


def _read_current(key: memoryview, value: bytes | None) -> ShareGroupRecord:
    names, read = decode(MemberKey, key, 0), _read_value(ShareGroupCurrentMemberAssignmentValue, value)
    current = None
    if read is not None:
        current = ShareCurrent(read.member_epoch, read.previous_member_epoch, _target(read.assigned_partitions))
    return ShareCurrentRecord(names.group_id, names.member_id, current)


def _read_known(key: memoryview, value: bytes | None) -> ShareGroupRecord:
    group_id, read = decode(GroupKey, key, 0).group_id, _read_value(ShareGroupStatePartitionMetadataValue, value)
    if read is None:
        return KnownStateRecord(group_id, None)
    deleting = {row.topic_id: row.topic_name for row in read.deleting_topics}
    return KnownStateRecord(
        group_id, KnownState(_topics(read.initializing_topics), _topics(read.initialized_topics), deleting)
    )


_READERS: Mapping[int, Callable[[memoryview, bytes | None], ShareGroupRecord]] = {
    MEMBER_KIND: _read_member,
    GROUP_EPOCH_KIND: _read_epoch,
    TARGET_EPOCH_KIND: _read_target_epoch,
    TARGET_KIND: _read_target,
    CURRENT_KIND: _read_current,
    KNOWN_STATE_KIND: _read_known,
}
