"""ShareGroupDescribe, ListGroups, DeleteGroups and the offsets of a share group, as its coordinator decides them.

A group's start offsets lie with the share coordinator. Whoever changes them has it written down first what is about to
happen, then the share coordinator is asked, then it is written down what came of it, and the answer leaves.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.share_groups import assignor
from appliance.share_groups.context import AnyEffect, Outcome, PersistJob, Place, ShareContext, write_of
from appliance.share_groups.heartbeat import ToInitialize
from appliance.share_groups.stored import (
    KnownState,
    KnownStateRecord,
    KnownTopics,
    ShareGroup,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    Target,
)
from appliance.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from appliance.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

GROUP_TYPE = "share"


@dataclass(frozen=True, slots=True)
class GroupToDelete:
    """Whom the end of all states of a group is for."""

    call: Call


@dataclass(frozen=True, slots=True)
class TopicsToForget:
    """Whom the end of the states of some topics is for; None: the topics are no more."""

    call: Call | None
    topic_ids: tuple[uuid.UUID, ...]
    response: DeleteShareGroupOffsetsResponse


@dataclass(frozen=True, slots=True)
class OffsetsToSet:
    """Whom other start offsets are for."""

    call: Call
    response: AlterShareGroupOffsetsResponse


# Looking


def describe(context: ShareContext, group_id: str) -> DescribedGroup:
    """State, members, what they have."""
    group = context.find(group_id)
    if group is None:
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a share group.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor.NAME,
        members=[_member(context, group, member_id) for member_id in group.members],
    )


def _member(context: ShareContext, group: ShareGroup, member_id: str) -> Member:
    member, current = group.members[member_id], group.current_of(member_id)
    return Member(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=_shown(context, current.assigned),
    )


def _shown(context: ShareContext, target: Target) -> Assignment:
    topics = context.world().topics_by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=list(target[topic_id]))
            for topic_id in sorted(target)
            if topic_id in topics
        ]
    )


# Deleting


def delete_group(context: ShareContext, group: ShareGroup, call: Call) -> list[AnyEffect]:
    """Nobody may be in it. Its states go first."""
    if not group.is_empty:
        return [_deleted(call, group.group_id, ErrorCode.NON_EMPTY_GROUP)]
    known = group.known
    places = _places([known.initialized, known.initializing])
    if not places:
        answer = _deleted(call, group.group_id, ErrorCode.NONE)
        return [write_of(group.group_id, group.tombstones(), answer)]
    deleting = {
        topic_id: name for topics in (known.initialized, known.initializing) for topic_id, (name, _) in topics.items()
    }
    record = KnownStateRecord(group.group_id, KnownState(deleting={**known.deleting, **deleting}))
    job = PersistJob(group.group_id, places, -1, GroupToDelete(call))
    return [write_of(group.group_id, [record], follow_up=ToInitialize(job))]


def _deleted(call: Call, group_id: str, error: ErrorCode) -> Answer:
    return Answer(call, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=error)]))


def delete_offsets(
    context: ShareContext, group: ShareGroup, call: Call, request: DeleteShareGroupOffsetsRequest
) -> list[AnyEffect]:
    """The states of topics end; a member that comes later begins where `share.auto.offset.reset` says."""
    response = DeleteShareGroupOffsetsResponse()
    known, topics = group.known, context.world().topics
    chosen: dict[uuid.UUID, str] = {}
    for row in request.topics:
        topic = topics.get(row.topic_name)
        result = DeleteShareGroupOffsetsResponseTopic(topic_name=row.topic_name)
        response.responses.append(result)
        if topic is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.error_message = "This server does not host this topic-partition."
            continue
        if topic.topic_id in known.initialized or topic.topic_id in known.deleting:
            result.topic_id = topic.topic_id
            chosen[topic.topic_id] = row.topic_name
        else:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.error_message = "The group has no offsets of this topic."
    if not chosen:
        return [Answer(call, response)]
    record = KnownStateRecord(group.group_id, _without(known, chosen, deleting={**known.deleting, **chosen}))
    places = _places([{topic_id: each for topic_id, each in known.initialized.items() if topic_id in chosen}])
    why = TopicsToForget(call, tuple(chosen), response)
    job = PersistJob(group.group_id, places, -1, why)
    return [write_of(group.group_id, [record], follow_up=ToInitialize(job))]


def topics_deleted(context: ShareContext, group: ShareGroup, topic_ids: Collection[uuid.UUID]) -> list[AnyEffect]:
    """Topics are gone, and so are their states."""
    known = group.known
    gone = {
        topic_id: name
        for topics in (known.initialized, known.initializing)
        for topic_id, (name, _) in topics.items()
        if topic_id in topic_ids
    }
    if not gone:
        return []
    record = KnownStateRecord(group.group_id, _without(known, gone, deleting={**known.deleting, **gone}))
    places = _places(
        [
            {one: each for one, each in topics.items() if one in gone}
            for topics in (known.initialized, known.initializing)
        ]
    )
    why = TopicsToForget(None, tuple(gone), DeleteShareGroupOffsetsResponse())
    return [write_of(group.group_id, [record], follow_up=ToInitialize(PersistJob(group.group_id, places, -1, why)))]


def deleted(
    context: ShareContext, job: PersistJob, why: GroupToDelete | TopicsToForget, outcome: Outcome
) -> list[AnyEffect]:
    """The share coordinator has answered. What could not be ended is as it was."""
    group = context.find(job.group_id)
    failed = {where: result for where, result in outcome.items() if result[0] is not ErrorCode.NONE}
    if isinstance(why, GroupToDelete):
        error = next((each[0] for each in failed.values()), ErrorCode.NONE)
        if error is ErrorCode.NONE and group is not None and not group.is_empty:
            error = ErrorCode.NON_EMPTY_GROUP
        answer = _deleted(why.call, job.group_id, error)
        if group is None:
            return [answer]
        if error is ErrorCode.NONE:
            return [write_of(job.group_id, group.tombstones(), answer)]
        ended = tuple(each.topic_id for each in job.places)
        return [write_of(job.group_id, [_ended(group, ended, failed)], answer)]
    for row in why.response.responses:
        for (topic_id, _), result in failed.items():
            if topic_id == row.topic_id:
                row.error_code, row.error_message = result
    answers = [] if why.call is None else [Answer(why.call, why.response)]
    if group is None:
        return list(answers)
    return [write_of(job.group_id, [_ended(group, why.topic_ids, failed)], *answers)]


def _ended(
    group: ShareGroup, topic_ids: Collection[uuid.UUID], failed: Collection[tuple[uuid.UUID, int]]
) -> KnownStateRecord:
    known = group.known
    initialized = dict(known.initialized)
    for topic_id, partition in sorted(failed):
        if topic_id in known.deleting:
            there = initialized.get(topic_id, ("", ()))[1]
            initialized[topic_id] = (known.deleting[topic_id], tuple(sorted({*there, partition})))
    deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topic_ids}
    return KnownStateRecord(group.group_id, replace(known, initialized=initialized, deleting=deleting))


# Altering


def alter_offsets(
    context: ShareContext, group: ShareGroup, call: Call, request: AlterShareGroupOffsetsRequest
) -> list[AnyEffect]:
    """Partitions of an empty group begin anew at other offsets, in a new epoch of the group."""
    response = AlterShareGroupOffsetsResponse()
    topics, known = context.world().topics, group.known
    places: list[Place] = []
    for row in request.topics:
        topic = topics.get(row.topic_name)
        result = AlterShareGroupOffsetsResponseTopic(topic_name=row.topic_name)
        response.responses.append(result)
        if topic is not None:
            result.topic_id = topic.topic_id
        for each in row.partitions:
            one = AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            result.partitions.append(one)
            if topic is None or not 0 <= each.partition_index < len(topic.partitions):
                one.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                one.error_message = "This server does not host this topic-partition."
            else:
                places.append(Place(topic.topic_id, each.partition_index, each.start_offset))
    if not places:
        return [Answer(call, response)]
    epoch = group.epoch + 1
    initializing = dict(known.initializing)
    names = context.world().topics_by_id
    for place in places:
        before = initializing.get(place.topic_id, ("", ()))[1]
        initializing[place.topic_id] = (names[place.topic_id].name, tuple(sorted({*before, place.partition})))
    records: list[ShareGroupRecord] = [
        ShareGroupEpochRecord(group.group_id, epoch, group.metadata_hash),
        KnownStateRecord(group.group_id, replace(known, initializing=initializing)),
    ]
    job = PersistJob(group.group_id, tuple(places), epoch, OffsetsToSet(call, response))
    return [write_of(group.group_id, records, follow_up=ToInitialize(job))]


def begun(
    context: ShareContext, job: PersistJob, outcome: Outcome, *answers: Answer, follow_up: object = None
) -> list[AnyEffect]:
    """States have begun, or not: write down which."""
    group = context.find(job.group_id)
    if group is None:
        return list(answers)
    known = group.known
    names = {each: name for each, (name, _) in known.initializing.items()}
    initialized = dict(known.initialized)
    initializing = dict(known.initializing)
    for place in job.places:
        error, _ = outcome.get((place.topic_id, place.partition), (ErrorCode.UNKNOWN_SERVER_ERROR, None))
        if error is ErrorCode.NONE and place.topic_id in names:
            name = names[place.topic_id]
            done = initialized.get(place.topic_id, ("", ()))[1]
            initialized[place.topic_id] = (name, tuple(sorted({*done, place.partition})))
            left = tuple(each for each in initializing[place.topic_id][1] if each != place.partition)
            initializing[place.topic_id] = (name, left)
    initializing = {each: row for each, row in initializing.items() if row[1]}
    after = replace(known, initialized=initialized, initializing=initializing)
    if after == known:
        return list(answers)
    return [Write(job.group_id, (KnownStateRecord(job.group_id, after),), answers, follow_up)]


def offsets_set(context: ShareContext, job: PersistJob, why: OffsetsToSet, outcome: Outcome) -> list[AnyEffect]:
    """The share coordinator has answered."""
    for row in why.response.responses:
        for one in row.partitions:
            result = outcome.get((row.topic_id, one.partition_index))
            if result is not None and not one.error_code:
                one.error_code, one.error_message = result
    return begun(context, job, outcome, Answer(why.call, why.response))


def _places(all_topics: list[KnownTopics]) -> tuple[Place, ...]:
    return tuple(
        dict.fromkeys(
            Place(topic_id, index)
            for topics in all_topics
            for topic_id in sorted(topics)
            for index in topics[topic_id][1]
        )
    )


def _without(known: KnownState, topic_ids: Mapping[uuid.UUID, str], deleting: Mapping[uuid.UUID, str]) -> KnownState:
    return KnownState(
        {each: row for each, row in known.initializing.items() if each not in topic_ids},
        {each: row for each, row in known.initialized.items() if each not in topic_ids},
        deleting,
    )
