"""StreamsGroupHeartbeat, version 0 (KIP-1071).

- Epoch 0 joins: a member that is new, or comes back; it brings the topology and says who it is. -1 leaves.
- Any other epoch has to be the member's own, or its previous one if it has no task that it was not given: the answer
  with the new one may have been lost. Whoever is behind is fenced and joins anew.
- The first member's topology is the group's. Others have to bring the same; one with an older epoch is told so.
- One heartbeat does everything there is to do: the member is written down, the group's epoch rises if members, topics
  or standby replicas changed, a new target follows if its time has come, and the member goes a step towards it. All of
  that is one write.
- A status says what the group waits for: topics, more members, or the end that a member has asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.heartbeat import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Refused
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.expiry import deletion_of
from appliance.groups.stored import OffsetRecord
from appliance.streams_groups import topology as topologies
from appliance.streams_groups.context import EveryEffect, StreamsContext, told
from appliance.streams_groups.reconciling import Reported, next_step
from appliance.streams_groups.records import rows_of, tasks_of
from appliance.streams_groups.showing import endpoints
from appliance.streams_groups.stored import (
    NOTHING,
    Assignment,
    Current,
    CurrentRecord,
    EveryRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    StreamsGroup,
    TopologyRecord,
)
from appliance.streams_groups.targets import job_of, send_to_helper
from appliance.streams_groups.topology import Configured, InvalidTopology
from appliance.wire.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

DELAYED = "Assignment delayed due to the configured initial rebalance delay."
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


@dataclass(slots=True)
class Step:
    """One member's request on its way through: what is ahead of the log until it is written."""

    group: StreamsGroup
    member_id: str
    member: MemberInfo
    current: Current
    records: list[EveryRecord]
    topology: Topology
    configured: Configured
    status: list[Status] = field(default_factory=list)
    target: Assignment = NOTHING
    epoch: int = 0
    assignment_epoch: int = 0

    @property
    def members(self) -> dict[str, MemberInfo]:
        """All members, with what this request changes."""
        return {**self.group.members, self.member_id: self.member}


def heartbeat(
    context: StreamsContext, call: Call, request: StreamsGroupHeartbeatRequest, now: Moment
) -> list[EveryEffect]:
    """Decide a heartbeat that joins or stays."""
    try:
        return _heartbeat(context, call, request, now)
    except Refused as refused:
        return [told(call, refused.error, refused.message)]
    except InvalidTopology as error:
        return [told(call, ErrorCode.STREAMS_INVALID_TOPOLOGY, str(error))]


def check(request: StreamsGroupHeartbeatRequest) -> tuple[ErrorCode, str]:
    """What is wrong with the request by itself."""
    invalid = ErrorCode.INVALID_REQUEST
    joins = request.member_epoch == JOIN_EPOCH
    if not request.group_id.strip():
        return invalid, "GroupId can't be empty."
    if not request.member_id.strip():
        return invalid, "MemberId can't be empty."
    if request.instance_id is not None:
        return invalid, "Static membership is not yet supported."
    if request.rack_id == "":
        return invalid, "RackId can't be empty."
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        return invalid, f"MemberEpoch is {request.member_epoch}, less than {LEAVE_STATIC_EPOCH}."
    if request.member_epoch == LEAVE_STATIC_EPOCH:
        return invalid, "Only a member with an InstanceId can leave for a while."
    if request.member_epoch == LEAVE_EPOCH:
        return ErrorCode.NONE, ""
    told_roles = [getattr(request, name) for name in ROLES]
    if joins:
        if request.rebalance_timeout_ms == -1:
            return invalid, "RebalanceTimeoutMs must be provided in first request."
        if request.topology is None:
            return invalid, "Topology must be non-null when (re-)joining."
        if any(tasks is None or tasks for tasks in told_roles):
            return invalid, "ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining."
    else:
        if request.topology is not None:
            return invalid, "Topology can only be provided when (re-)joining."
        if any(tasks is None for tasks in told_roles) and not all(tasks is None for tasks in told_roles):
            return invalid, "If one task-type is non-null, all must be non-null."
    if request.task_offsets is not None:
        return invalid, "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        return invalid, "TaskEndOffsets are not supported yet."
    if request.topology is not None:
        if any(each.source_topic_regex for each in request.topology.subtopologies):
            return invalid, "Regular expressions for source topics are not supported yet."
        if request.topology.epoch < 0:
            return invalid, "The epoch of a topology can't be negative."
        try:
            topologies.check(request.topology)
        except InvalidTopology as error:
            return ErrorCode.STREAMS_INVALID_TOPOLOGY, str(error)
    return ErrorCode.NONE, ""


def _heartbeat(
    context: StreamsContext, call: Call, request: StreamsGroupHeartbeatRequest, now: Moment
) -> list[EveryEffect]:
    joins = request.member_epoch == JOIN_EPOCH
    group, first_records = _found(context, request.group_id, joins=joins)
    memory = context.memory(group.group_id)
    before, before_current = _member(context, group, request)
    topology, topology_records = _topology(group, request)
    records = [*first_records, *topology_records]
    member = _said(before, call, request)
    if member != before or request.member_id not in group.members:
        records.append(MemberRecord(group.group_id, request.member_id, member))
    configured = context.configured(group.group_id, topology)
    step = Step(group, request.member_id, member, before_current, records, topology, configured)
    if topology.epoch > member.topology_epoch >= 0:
        detail = f"The member's topology has epoch {member.topology_epoch}, the group's has {topology.epoch}."
        step.status.append(Status(status_code=topologies.STALE_TOPOLOGY, status_detail=detail))
    if group.is_empty:
        _begin_to_wait(context, step, now)
    _advance(context, step, now, must_rise=_is_another(before, member) or request.member_id not in group.members)
    _reconcile(context, step, now, _reported(request))
    context.expect_member(group.group_id, request.member_id, now)
    if request.shutdown_application:
        memory.shutdown_by = request.member_id
    is_shown = joins or before_current.assigned != step.current.assigned
    if is_shown and member.user_endpoint is not None and context.find(group.group_id) is not None:
        memory.endpoint_epoch += 1
    answer = Answer(call, _response(context, step, request, is_shown=is_shown))
    if not step.records:
        return [answer]
    return [Write(group.group_id, tuple(step.records), (answer,))]


def _found(context: StreamsContext, group_id: str, *, joins: bool) -> tuple[StreamsGroup, list[EveryRecord]]:
    """The group, new if need be, and what ends an empty one of another kind. Raises: Refused."""
    group = context.find(group_id)
    if group is not None:
        return group, []
    missing = Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    if not joins:
        raise missing
    if group_id in context.stored.consumer_groups:
        raise missing
    classic = context.classic.find(group_id)
    if classic is None:
        return StreamsGroup(group_id), []
    if not classic.forgettable:
        raise missing
    # For one that nobody is in the log says everything. Its offsets stay.
    context.classic.groups.pop(group_id, None)
    ends = [each for each in deletion_of(context.classic, group_id) if not isinstance(each, OffsetRecord)]
    return StreamsGroup(group_id), list(ends)


def _member(
    context: StreamsContext, group: StreamsGroup, request: StreamsGroupHeartbeatRequest
) -> tuple[MemberInfo, Current]:
    """Who asks, as it was until now. Raises: Refused."""
    joins = request.member_epoch == JOIN_EPOCH
    known = group.members.get(request.member_id)
    if known is None:
        if not joins:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}."
            )
        if len(group.members) >= context.config.max_size:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group has reached its maximum size.")
        return MemberInfo(), Current()
    current = group.current_of(request.member_id)
    epoch = request.member_epoch
    if epoch > current.epoch:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch {epoch} is above {current.epoch}, which it was given."
        )
    if joins:
        return known, current
    if epoch < current.epoch:
        reported = _reported(request)
        is_lost_answer = epoch == current.previous_epoch and reported is not None
        if not is_lost_answer or reported is None or not reported.is_part_of(current.assigned):
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch {epoch} is below {current.epoch}.")
    if current.state is MemberState.UNKNOWN:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "The member's state is not known here.")
    return known, current


def _topology(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> tuple[Topology, list[EveryRecord]]:
    """The group's topology, which its first member brings. Raises: Refused."""
    said = request.topology
    if group.topology is None:
        if said is None:
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "The group has no topology; a member has to bring it anew.")
        return said, [TopologyRecord(group.group_id, said)]
    if said is not None and said.epoch >= group.topology.epoch and said != group.topology:
        raise Refused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return group.topology, []


def _said(member: MemberInfo, call: Call, request: StreamsGroupHeartbeatRequest) -> MemberInfo:
    """The member as it is now; what it does not say has not changed."""
    changed = replace(member, client_id=call.client_id, client_host=call.client_host)
    if request.rack_id is not None:
        changed = replace(changed, rack_id=request.rack_id)
    if request.rebalance_timeout_ms != -1:
        changed = replace(changed, rebalance_timeout_ms=request.rebalance_timeout_ms)
    if request.topology is not None:
        changed = replace(changed, topology_epoch=request.topology.epoch)
    if request.process_id is not None:
        changed = replace(changed, process_id=request.process_id)
    if request.user_endpoint is not None:
        changed = replace(changed, user_endpoint=(request.user_endpoint.host, request.user_endpoint.port))
    if request.client_tags is not None:
        changed = replace(changed, client_tags=tuple((each.key, each.value) for each in request.client_tags))
    return changed


def _is_another(before: MemberInfo, after: MemberInfo) -> bool:
    """Whether the change may matter to a target."""
    return (before.topology_epoch, before.process_id, before.user_endpoint, before.client_tags, before.rack_id) != (
        after.topology_epoch, after.process_id, after.user_endpoint, after.client_tags, after.rack_id
    )  # fmt: skip


def _begin_to_wait(context: StreamsContext, step: Step, now: Moment) -> None:
    """The first member of an empty group: others may follow within the delay, so that tasks move less."""
    delay_ms = context.config.initial_delay_of(context.entries(step.group.group_id))
    memory = context.memory(step.group.group_id)
    memory.waits_for_members = delay_ms > 0
    if delay_ms:
        context.assign_in(step.group.group_id, now, delay_ms)


def _advance(context: StreamsContext, step: Step, now: Moment, *, must_rise: bool) -> None:
    """Let the group's epoch rise if anything changed, and make the next target if its time has come."""
    group = step.group
    epoch_record = epoch_of(context, group, step.topology, step.configured, must_rise=must_rise)
    if epoch_record is not None:
        step.records.append(epoch_record)
    step.epoch = group.epoch if epoch_record is None or epoch_record.epoch is None else epoch_record.epoch
    step.assignment_epoch = group.assignment_epoch
    step.target = group.targets.get(step.member_id, NOTHING)
    if step.epoch <= group.assignment_epoch:
        return
    if context.memory(group.group_id).waits_for_members:
        step.status.append(Status(status_code=topologies.ASSIGNMENT_DELAYED, status_detail=DELAYED))
        return
    delay_ms = context.wait_ms(group, now)
    if delay_ms:
        context.assign_in(group.group_id, now, delay_ms)
        return
    job = job_of(context, group, step.epoch, step.configured, step.members)
    if not job.is_small:
        if step.epoch == group.epoch:
            send_to_helper(context, job)
        else:
            # First the epoch has to be in the log.
            context.assign_in(group.group_id, now, 0)
        return
    made = job.run()
    step.records += group.target_records(step.epoch, made, now.wall_ms)
    step.target, step.assignment_epoch = made[step.member_id], step.epoch


def epoch_of(
    context: StreamsContext, group: StreamsGroup, topology: Topology, configured: Configured, *, must_rise: bool
) -> GroupEpochRecord | None:
    """The group's next epoch, if anything has changed that a target depends on."""
    metadata_hash = context.memory(group.group_id).metadata_hash
    validated = topology.epoch if configured.is_ready else -1
    replicas = context.config.standby_replicas_of(context.entries(group.group_id))
    is_same = (metadata_hash, validated, replicas) == (
        group.metadata_hash, group.validated_topology_epoch, group.standby_replicas
    )  # fmt: skip
    if is_same and not must_rise:
        return None
    return GroupEpochRecord(group.group_id, group.epoch + 1, metadata_hash, validated, replicas)


def _reconcile(context: StreamsContext, step: Step, now: Moment, reported: Reported) -> None:
    """The member's next step towards its target."""
    group, before = step.group, step.current
    step.current = next_step(group, before, step.member.process_id, step.assignment_epoch, step.target, reported)
    if step.current is not before or step.member_id not in group.current:
        step.records.append(CurrentRecord(group.group_id, step.member_id, step.current))
    if step.current.state is not MemberState.UNREVOKED_TASKS:
        context.expect_no_revocation(group.group_id, step.member_id)
    elif step.current is not before:
        context.expect_revocation(
            group.group_id, step.member_id, step.current.epoch, now, step.member.rebalance_timeout_ms
        )


def _reported(request: StreamsGroupHeartbeatRequest) -> Reported:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Assignment(tasks_of(request.active_tasks), tasks_of(request.standby_tasks), tasks_of(request.warmup_tasks))


def _response(
    context: StreamsContext, step: Step, request: StreamsGroupHeartbeatRequest, *, is_shown: bool
) -> StreamsGroupHeartbeatResponse:
    group, memory = step.group, context.memory(step.group.group_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=step.member_id,
        member_epoch=step.current.epoch,
        heartbeat_interval_ms=context.config.heartbeat_interval_of(context.entries(group.group_id)),
        status=step.status,
        endpoint_information_epoch=memory.endpoint_epoch,
    )
    if is_shown:
        assigned = step.current.assigned
        response.active_tasks = rows_of(assigned.active)
        response.standby_tasks = rows_of(assigned.standby)
        response.warmup_tasks = rows_of(assigned.warmup)
    if step.configured.status is not None:
        code, detail = step.configured.status
        step.status.append(Status(status_code=code, status_detail=detail))
    if memory.shutdown_by is not None:
        detail = f"Member {memory.shutdown_by} has asked the whole application to end."
        step.status.append(Status(status_code=topologies.SHUTDOWN_APPLICATION, status_detail=detail))
    joins = request.member_epoch == JOIN_EPOCH and step.member.user_endpoint is not None
    if joins or memory.endpoint_epoch != request.endpoint_information_epoch:
        held: Iterable[tuple[str, Current]] = {**group.current, step.member_id: step.current}.items()
        response.partitions_by_user_endpoint = endpoints(step.topology, context.world().topics, step.members, held)
    return response
