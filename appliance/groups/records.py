"""Group records as bytes, in the formats of Kafka's `__consumer_offsets`, so that its tools can read them.

```
key    int16 kind (1 offset, 2 generation; 0 is an offset of an old broker), then OffsetCommitKey or GroupMetadataKey
value  int16 version, then OffsetCommitValue or GroupMetadataValue in that version; no value deletes
```
"""

from __future__ import annotations

import struct

from appliance.base.errors import InvariantBroken
from appliance.groups.stored import (
    NO_TIMESTAMP,
    CommittedOffset,
    GenerationRecord,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    StoredGeneration,
    StoredMember,
    TransactionEnded,
)
from appliance.wire.codec import decode, encode
from appliance.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from appliance.wire.schema import WireError

LEGACY_OFFSET_KIND = 0
OFFSET_KIND = 1
GENERATION_KIND = 2

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The one version that can say when an offset expires."""
GENERATION_VERSION = 3

_INT16 = struct.Struct(">h")


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    if isinstance(record, PendingOffsetRecord):
        record = record.record
    if isinstance(record, OffsetRecord):
        key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
        return _INT16.pack(OFFSET_KIND) + encode(key, 0), _offset_value(record.offset)
    if isinstance(record, TransactionEnded):
        raise InvariantBroken("the end of a transaction is a marker, not a record")
    group_key = GroupMetadataKey(group=record.group_id)
    return _INT16.pack(GENERATION_KIND) + encode(group_key, 0), _generation_value(record.generation)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    kind = _leading_int16(key)
    if kind in (LEGACY_OFFSET_KIND, OFFSET_KIND):
        offset_key = decode(OffsetCommitKey, memoryview(key)[2:], 0)
        return OffsetRecord(offset_key.group, offset_key.topic, offset_key.partition, _read_offset(value))
    if kind == GENERATION_KIND:
        return GenerationRecord(decode(GroupMetadataKey, memoryview(key)[2:], 0).group, _read_generation(value))
    return None


def _offset_value(offset: CommittedOffset | None) -> bytes | None:
    if offset is None:
        return None
    version = OFFSET_VERSION if offset.expire_timestamp_ms == NO_TIMESTAMP else OFFSET_VERSION_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    return _INT16.pack(version) + encode(value, version)


def _read_offset(content: bytes | None) -> CommittedOffset | None:
    if content is None:
        return None
    value = decode(OffsetCommitValue, memoryview(content)[2:], _leading_int16(content))
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _generation_value(generation: StoredGeneration | None) -> bytes | None:
    if generation is None:
        return None
    value = GroupMetadataValue(
        protocol_type=generation.protocol_type,
        generation=generation.generation_id,
        protocol=generation.protocol_name,
        leader=generation.leader_id,
        current_state_timestamp=generation.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in generation.members
        ],
    )
    return _INT16.pack(GENERATION_VERSION) + encode(value, GENERATION_VERSION)


def _read_generation(content: bytes | None) -> StoredGeneration | None:
    if content is None:
        return None
    value = decode(GroupMetadataValue, memoryview(content)[2:], _leading_int16(content))
    return StoredGeneration(
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        tuple(
            StoredMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                # Brokers before Kafka 0.10.1 stored none.
                member.rebalance_timeout if member.rebalance_timeout != -1 else member.session_timeout,
                member.session_timeout,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )


def _leading_int16(content: bytes) -> int:
    if len(content) < 2:
        raise WireError(f"{len(content)} bytes, where kind or version takes two")
    number: int = _INT16.unpack_from(content)[0]
    return number
