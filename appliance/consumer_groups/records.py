"""Records of consumer groups as bytes, in the formats of Kafka's `__consumer_offsets` (see `groups.record_forms`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, cast

from appliance.base.errors import invariant
from appliance.consumer_groups.assignors import Target
from appliance.consumer_groups.stored import (
    AnyRecord,
    ClassicMember,
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
from appliance.groups.record_forms import (
    Forms,
    epoch_form,
    group_form,
    member_form,
    names_only_form,
    target_epoch_form,
)
from appliance.groups.stored import GroupRecord
from appliance.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentMemberAssignmentValue,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

GROUP_EPOCH_KIND = 3
PARTITION_METADATA_KIND = 4
MEMBER_KIND = 5
TARGET_EPOCH_KIND = 6
TARGET_KIND = 7
CURRENT_KIND = 8
REGEX_KIND = 16


def encode_record(record: AnyRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record of any group."""
    return _FORMS.encode(record) if record in _FORMS else classic_records.encode_record(cast(GroupRecord, record))


def decode_record(key: bytes, value: bytes | None) -> AnyRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    return _FORMS.decode(key, value) or classic_records.decode_record(key, value)


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
    rows: list[TopicPartitions] = []
    for topic, epochs in sorted(owned.items()):
        partitions = sorted(epochs)
        rows.append(
            TopicPartitions(
                topic_id=topic, partitions=partitions, assignment_epochs=[epochs[each] for each in partitions]
            )
        )
    return rows


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


def _of_target(target: Target) -> TargetAssignmentMemberValue:
    rows = [TopicPartition(topic_id=topic, partitions=list(target[topic])) for topic in sorted(target)]
    return TargetAssignmentMemberValue(topic_partitions=rows)


def _target(value: TargetAssignmentMemberValue) -> Target:
    return {row.topic_id: tuple(row.partitions) for row in value.topic_partitions if row.partitions}


def _of_regex(resolved: ResolvedRegex) -> RegularExpressionValue:
    return RegularExpressionValue(
        topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )


def _regex(value: RegularExpressionValue) -> ResolvedRegex:
    return ResolvedRegex(tuple(value.topics), value.version, value.timestamp)


_FORMS = Forms(
    epoch_form(GROUP_EPOCH_KIND, GroupEpochRecord, ConsumerGroupMetadataValue),
    names_only_form(PARTITION_METADATA_KIND, PartitionMetadataRecord),
    member_form(MEMBER_KIND, MemberRecord, ConsumerGroupMemberMetadataValue, _of_member, _member),
    target_epoch_form(TARGET_EPOCH_KIND, TargetEpochRecord, TargetAssignmentMetadataValue),
    member_form(TARGET_KIND, TargetRecord, TargetAssignmentMemberValue, _of_target, _target),
    member_form(CURRENT_KIND, CurrentRecord, CurrentMemberAssignmentValue, _of_current, _current),
    group_form(REGEX_KIND, RegexRecord, RegularExpressionValue, _of_regex, _regex, RegularExpressionKey),
)
