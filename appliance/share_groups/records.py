"""Records of share groups as bytes, in the formats of Kafka's `__consumer_offsets` (see `groups.record_forms`)."""

from __future__ import annotations

from appliance.groups.record_forms import Forms, epoch_form, group_form, member_form, target_epoch_form
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

MEMBER_KIND = 10
GROUP_EPOCH_KIND = 11
TARGET_EPOCH_KIND = 12
TARGET_KIND = 13
CURRENT_KIND = 14
KNOWN_STATE_KIND = 15


def encode_record(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    return _FORMS.encode(record)


def decode_record(key: bytes, value: bytes | None) -> ShareGroupRecord | None:
    """Read a record; None if it is none of a share group.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    read: ShareGroupRecord | None = _FORMS.decode(key, value)
    return read


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


def _of_target(target: Target) -> ShareGroupTargetAssignmentMemberValue:
    rows = [TopicPartition(topic_id=topic, partitions=list(target[topic])) for topic in sorted(target)]
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=rows)


def _member(value: ShareGroupMemberMetadataValue) -> ShareMember:
    return ShareMember(value.client_id, value.client_host, tuple(value.subscribed_topic_names), value.rack_id)


def _current(value: ShareGroupCurrentMemberAssignmentValue) -> ShareCurrent:
    return ShareCurrent(value.member_epoch, value.previous_member_epoch, _target(value.assigned_partitions))


def _known(value: ShareGroupStatePartitionMetadataValue) -> KnownState:
    deleting = {row.topic_id: row.topic_name for row in value.deleting_topics}
    return KnownState(_topics(value.initializing_topics), _topics(value.initialized_topics), deleting)


_FORMS = Forms(
    member_form(MEMBER_KIND, ShareMemberRecord, ShareGroupMemberMetadataValue, _of_member, _member),
    epoch_form(GROUP_EPOCH_KIND, ShareGroupEpochRecord, ShareGroupMetadataValue),
    target_epoch_form(TARGET_EPOCH_KIND, ShareTargetEpochRecord, ShareGroupTargetAssignmentMetadataValue),
    member_form(
        TARGET_KIND,
        ShareTargetRecord,
        ShareGroupTargetAssignmentMemberValue,
        _of_target,
        lambda value: _target(value.topic_partitions),
    ),
    member_form(CURRENT_KIND, ShareCurrentRecord, ShareGroupCurrentMemberAssignmentValue, _of_current, _current),
    group_form(KNOWN_STATE_KIND, KnownStateRecord, ShareGroupStatePartitionMetadataValue, _of_known, _known),
)
