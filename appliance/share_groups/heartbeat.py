"""ShareGroupHeartbeat, version 1 (KIP-932).

- Epoch 0 joins, or comes back; -1 leaves. Any other has to be the member's own or its previous one: the answer with the
  new one may have been lost. Whoever is behind is fenced and joins anew.
- The answer says what the member has if that has changed, and to whoever says its topics: whoever does not know whether
  it was heard says them again, as the last answer may have been lost.
- Nobody waits for anybody: partitions may be shared, so a member has its target as soon as there is one.
- A partition is given out when its state has begun with the share coordinator. A heartbeat that names new topics waits
  for that, so that its answer has them; should it fail, the answer leaves without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_context import RETRY_MS
from appliance.share_groups.assignor import ShareSubscriber, assign
from appliance.share_groups.context import (
    AnyEffect,
    PersistJob,
    Place,
    ShareContext,
    ShareSessionOver,
    hash_of,
    told,
    write_of,
)
from appliance.share_groups.stored import (
    KnownStateRecord,
    ShareCurrent,
    ShareCurrentRecord,
    ShareGroup,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMember,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    Target,
)
from appliance.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
FIRST_EPOCH = 1
MEMBER_ID_MAX = 36
"""Characters of a member id, as in Kafka."""
PLACES_MAX = 10_000
"""Partitions whose state is asked for at once; the others follow with later heartbeats."""


@dataclass(frozen=True, slots=True)
class ToInitialize:
    """Follow-up of the record that says which states are about to begin."""

    job: PersistJob


@dataclass(frozen=True, slots=True)
class HeartbeatWaits:
    """A heartbeat that is answered when the states of its topics have begun."""

    call: Call


def check(request: ShareGroupHeartbeatRequest) -> tuple[ErrorCode, str]:
    """What is wrong with the request by itself."""
    invalid = ErrorCode.INVALID_REQUEST
    if not request.group_id.strip():
        return invalid, "GroupId can't be empty."
    if not request.member_id.strip():
        return invalid, "MemberId can't be empty."
    if len(request.member_id) > MEMBER_ID_MAX:
        return invalid, f"MemberId can't have more than {MEMBER_ID_MAX} characters."
    if request.rack_id is not None and not request.rack_id.strip():
        return invalid, "RackId can't be empty."
    if request.member_epoch < LEAVE_EPOCH:
        return invalid, "MemberEpoch is invalid."
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        return invalid, "SubscribedTopicNames must be set in first request."
    return ErrorCode.NONE, ""


def heartbeat(
    context: ShareContext, call: Call, request: ShareGroupHeartbeatRequest, now: Moment, *, may_wait: bool = True
) -> list[AnyEffect]:
    """Decide a heartbeat that joins or stays; `may_wait`: for states that are to begin."""
    group, refusal = _group_and_epoch(context, call, request)
    if group is None:
        return [refusal] if refusal is not None else []
    member_id = request.member_id
    before, current = group.members.get(member_id), group.current_of(member_id)
    member = _said(before or ShareMember(), call, request)
    members = {**group.members, member_id: member}
    records: list[ShareGroupRecord] = []
    if member != before:
        records.append(ShareMemberRecord(group.group_id, member_id, member))
    names = {name: None for each in members.values() for name in each.topic_names}
    must_rise = before is None or before.topic_names != member.topic_names
    context.expect_member(group.group_id, member_id, now)
    job = _to_initialize(context, group, names, now) if may_wait else None
    if job is not None:
        records += _begun(context, group, job, must_rise)
        return [write_of(group.group_id, records, follow_up=ToInitialize(replace(job, why=HeartbeatWaits(call))))]
    target, assignment_epoch = _advance(context, group, members, names, records, now, must_rise)
    made = target if target is not None else group.targets
    after = current
    if member_id in made and assignment_epoch != current.epoch:
        after = ShareCurrent(assignment_epoch, current.epoch, made[member_id])
    elif member_id not in group.current:
        # Its target comes later; until then it is a member that has nothing.
        after = ShareCurrent(assignment_epoch, 0, {})
    if after != current or member_id not in group.current:
        records.append(ShareCurrentRecord(group.group_id, member_id, after))
    response = ShareGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=context.config.heartbeat_interval_of(context.entries(group.group_id)),
    )
    says_topics = request.subscribed_topic_names is not None
    if request.member_epoch == JOIN_EPOCH or says_topics or not may_wait or after.assigned != current.assigned:
        response.assignment = _shown(after.assigned)
    answer = Answer(call, response)
    return [write_of(group.group_id, records, answer)] if records else [answer]


def _group_and_epoch(
    context: ShareContext, call: Call, request: ShareGroupHeartbeatRequest
) -> tuple[ShareGroup | None, Answer | None]:
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = context.find(group_id)
    if group is None:
        if epoch != JOIN_EPOCH:
            return None, told(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id), None
    if member_id not in group.members:
        if epoch != JOIN_EPOCH:
            message = f"Member {member_id} is not a member of group {group_id}."
            return None, told(call, ErrorCode.UNKNOWN_MEMBER_ID, message)
        if len(group.members) >= context.config.max_size:
            message = f"The share group has reached its maximum capacity of {context.config.max_size} members."
            return None, told(call, ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        return group, None
    current = group.current_of(member_id)
    if epoch > current.epoch:
        message = f"The member's epoch {epoch} is above {current.epoch}, which it was given."
        return None, told(call, ErrorCode.FENCED_MEMBER_EPOCH, message)
    if epoch not in (current.epoch, current.previous_epoch, JOIN_EPOCH):
        message = f"The member's epoch {epoch} is below {current.epoch}."
        return None, told(call, ErrorCode.FENCED_MEMBER_EPOCH, message)
    return group, None


def _said(member: ShareMember, call: Call, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member with all that it says; what it does not say has not changed."""
    names = request.subscribed_topic_names
    return ShareMember(
        call.client_id,
        call.client_host,
        member.topic_names if names is None else tuple(sorted(set(names))),
        member.rack_id if request.rack_id is None else request.rack_id,
    )


def _begun(context: ShareContext, group: ShareGroup, job: PersistJob, must_rise: bool) -> list[ShareGroupRecord]:
    """Written before the share coordinator is asked; the group's next target is made when it has answered."""
    records: list[ShareGroupRecord] = []
    if group.epoch == 0:
        records.append(ShareTargetEpochRecord(group.group_id, FIRST_EPOCH))
    if must_rise:
        epoch = max(group.epoch, FIRST_EPOCH) + 1
        records.append(ShareGroupEpochRecord(group.group_id, epoch, group.metadata_hash))
    initializing = dict(group.known.initializing)
    topics = context.world().topics_by_id
    for topic_id in dict.fromkeys(place.topic_id for place in job.places):
        indexes = tuple(place.partition for place in job.places if place.topic_id == topic_id)
        initializing[topic_id] = (topics[topic_id].name, indexes)
    return [*records, KnownStateRecord(group.group_id, replace(group.known, initializing=initializing))]


def _advance(
    context: ShareContext,
    group: ShareGroup,
    members: dict[str, ShareMember],
    names: dict[str, None],
    records: list[ShareGroupRecord],
    now: Moment,
    must_rise: bool,
) -> tuple[dict[str, Target] | None, int]:
    """Let the epoch rise if anything changed, and make the target if its time has come; also the target's epoch."""
    epoch, assignment_epoch = group.epoch, group.assignment_epoch
    if epoch == 0:
        # Epoch 0 says that a member joins, so nothing may have it: a group begins with nothing assigned in epoch 1.
        epoch = assignment_epoch = FIRST_EPOCH
        records.append(ShareTargetEpochRecord(group.group_id, FIRST_EPOCH))
    metadata_hash = hash_of(context.assignable(group, names))
    if must_rise or metadata_hash != group.metadata_hash:
        # One that no target was made for yet does for this, too.
        epoch += must_rise or epoch == assignment_epoch
        records.append(ShareGroupEpochRecord(group.group_id, epoch, metadata_hash))
    if epoch <= assignment_epoch:
        return None, assignment_epoch
    delay_ms = context.wait_ms(group, now)
    if delay_ms:
        context.assign_in(group.group_id, now, delay_ms)
        return None, assignment_epoch
    made, made_records = target_of(context, group, members, epoch, now)
    records += made_records
    return made, epoch


def target_of(
    context: ShareContext, group: ShareGroup, members: dict[str, ShareMember], epoch: int, now: Moment
) -> tuple[dict[str, Target], list[ShareGroupRecord]]:
    """The target of each member, and what of it has to be written."""
    topics = context.world().topics
    names = {name: None for each in members.values() for name in each.topic_names}
    partitions = context.assignable(group, names)
    subscribers = [
        ShareSubscriber(
            member_id,
            frozenset(topics[name].topic_id for name in member.topic_names if name in topics),
            group.targets.get(member_id, {}),
        )
        for member_id, member in members.items()
    ]
    made = assign(subscribers, partitions)
    return made, group.target_records(epoch, made, now.wall_ms)


def assign_due(context: ShareContext, group_id: str, now: Moment) -> list[AnyEffect]:
    """The time for another target has come; nobody needs to ask for it."""
    group = context.find(group_id)
    if group is None or group.is_empty or group.epoch <= group.assignment_epoch:
        return []
    delay_ms = context.wait_ms(group, now)
    if delay_ms:
        context.assign_in(group_id, now, delay_ms)
        return []
    context.assign_in(group_id, now, RETRY_MS)
    _, records = target_of(context, group, group.members, group.epoch, now)
    return [Write(group_id, tuple(records), only_alone=True)]


def _to_initialize(context: ShareContext, group: ShareGroup, names: dict[str, None], now: Moment) -> PersistJob | None:
    """What the share coordinator has to be asked for; None while there is nothing, or it has just been asked."""
    topics, known = context.world().topics, group.known
    places, is_new = [], False
    for name in sorted(names):
        topic = topics.get(name)
        if topic is None or topic.topic_id in known.deleting:
            continue
        done = known.initialized.get(topic.topic_id, ("", ()))[1]
        asked = known.initializing.get(topic.topic_id, ("", ()))[1]
        for index in range(len(topic.partitions)):
            if index not in done:
                places.append(Place(topic.topic_id, index))
                is_new = is_new or index not in asked
    if not places:
        return None
    asked_ms = context.initializing_since_ms.get(group.group_id)
    retry_ms = context.config.initialize_retry_interval_ms
    if not is_new and asked_ms is not None and now.monotonic_ms - asked_ms < retry_ms:
        return None
    context.initializing_since_ms[group.group_id] = now.monotonic_ms
    return PersistJob(group.group_id, tuple(places[:PLACES_MAX]), max(group.epoch, FIRST_EPOCH))


def leave(context: ShareContext, call: Call, request: ShareGroupHeartbeatRequest, now: Moment) -> list[AnyEffect]:
    """Decide a heartbeat that leaves."""
    group = context.find(request.group_id)
    if group is None:
        return [told(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")]
    if request.member_id not in group.members:
        message = f"Member {request.member_id} is not a member of group {request.group_id}."
        return [told(call, ErrorCode.UNKNOWN_MEMBER_ID, message)]
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
    return [_removal(context, group, request.member_id, now, Answer(call, response))]


def session_over(context: ShareContext, event: ShareSessionOver, now: Moment) -> list[AnyEffect]:
    """A member has been silent for too long."""
    group = context.find(event.group_id)
    if group is None or event.member_id not in group.members:
        return []
    # Should something else about the group be on its way just now, we come again.
    context.expect_member(event.group_id, event.member_id, now, RETRY_MS)
    return [_removal(context, group, event.member_id, now, only_alone=True)]


def _removal(
    context: ShareContext, group: ShareGroup, member_id: str, now: Moment, *answers: Answer, only_alone: bool = False
) -> AnyEffect:
    left = {each: member for each, member in group.members.items() if each != member_id}
    names = {name: None for each in left.values() for name in each.topic_names}
    records: list[ShareGroupRecord] = [
        *group.removed(member_id),
        ShareGroupEpochRecord(group.group_id, group.epoch + 1, hash_of(context.assignable(group, names))),
    ]
    context.assign_in(group.group_id, now, RETRY_MS)
    return Write(group.group_id, tuple(records), answers, only_alone=only_alone)


def _shown(assigned: Target) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=list(assigned[topic])) for topic in sorted(assigned)
        ]
    )
