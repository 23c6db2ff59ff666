"""What the log says about groups of Kafka Streams; `replay` is the only method that writes.

A group is its epoch, its topology, its members, a target of tasks for each member under an assignment epoch, and what
each member has at present on its way there. A task is a partition of a subtopology, run (active), or kept as a copy of
its state (standby, warm-up).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from appliance.consumer_groups.stored import AnyRecord, StoredAllGroups
from appliance.wire.messages.streams_group_heartbeat import Topology

Task = tuple[str, int]
"""Subtopology and partition."""
Tasks = frozenset[Task]
NO_TASKS: Tasks = frozenset()


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers stand in records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has tasks that it is to give up, and has not said yet that it did."""
    UNRELEASED_TASKS = 3
    """It has given up all that it had to; others have tasks that it is to get."""
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class Assignment:
    """Tasks of a member, by their role."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    @property
    def all(self) -> Tasks:
        return self.active | self.standby | self.warmup

    def meets(self, other: Assignment) -> bool:
        """Whether any task has the same role in both."""
        return bool(self.active & other.active or self.standby & other.standby or self.warmup & other.warmup)

    def is_part_of(self, other: Assignment) -> bool:
        """Whether each task has its role there, too."""
        return self.active <= other.active and self.standby <= other.standby and self.warmup <= other.warmup


NOTHING = Assignment()


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """Who a member is. Members of one process share its state directory."""

    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: tuple[str, int] | None = None
    """Where other members ask for what its stores hold."""
    client_tags: tuple[tuple[str, str], ...] = ()
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """What a member has, and its epoch."""

    epoch: int = 0
    previous_epoch: int = 0
    """A member may not have heard of its present epoch yet."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending: Assignment = NOTHING
    """What it has still to give up."""
    epochs: Mapping[Task, int] = field(default_factory=dict)
    """In which member epoch each active task was given, also those that are still to be given up."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class GroupEpochRecord:
    """A group's epoch and what it was made with; None ends the group."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    standby_replicas: int = 0


@dataclass(frozen=True, slots=True)
class TopologyRecord:
    group_id: str
    topology: Topology | None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    group_id: str
    member_id: str
    member: MemberInfo | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    group_id: str
    epoch: int | None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetRecord:
    group_id: str
    member_id: str
    target: Assignment | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    group_id: str
    member_id: str
    current: Current | None


StreamsGroupRecord = GroupEpochRecord | TopologyRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord
EveryRecord = AnyRecord | StreamsGroupRecord


class StreamsGroup:
    """One group, as the log has it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.validated_topology_epoch = -1
        self.standby_replicas = 0
        self.topology: Topology | None = None
        self.assignment_epoch = 1
        self.assignment_timestamp_ms = 0
        self.members: dict[str, MemberInfo] = {}
        self.targets: dict[str, Assignment] = {}
        self.current: dict[str, Current] = {}
        self._active: dict[Task, str] = {}
        """Who has a task or has not said yet that it gave it up."""
        self._copies: dict[Task, dict[str, None]] = {}
        """The same of standby and warm-up tasks, of which a task may have several."""

    def current_of(self, member_id: str) -> Current:
        """What the member has; nothing for one that is about to come."""
        return self.current.get(member_id) or Current()

    def active_process(self, task: Task) -> str | None:
        """The process in which a task runs."""
        member_id = self._active.get(task)
        member = self.members.get(member_id) if member_id is not None else None
        return None if member is None else member.process_id

    def copy_processes(self, task: Task) -> Iterator[str]:
        """Processes that keep a copy of the task's state."""
        for member_id in self._copies.get(task, ()):
            member = self.members.get(member_id)
            if member is not None:
                yield member.process_id

    @property
    def source_topics(self) -> frozenset[str]:
        """Topics that the group reads, with those that it writes to itself."""
        if self.topology is None:
            return frozenset()
        return frozenset(
            name
            for each in self.topology.subtopologies
            for name in [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        )

    def may_read(self, topic: str) -> bool:
        return bool(self.members) and topic in self.source_topics

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_ready(self) -> bool:
        """Whether the topics were as the topology wants them when the group got its epoch."""
        return self.topology is not None and self.validated_topology_epoch == self.topology.epoch

    @property
    def state_name(self) -> str:
        """As it is shown to clients."""
        if not self.members:
            return "Empty"
        if not self.is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(self.current_of(member_id).is_reconciled_to(self.assignment_epoch) for member_id in self.members):
            return "Stable"
        return "Reconciling"

    def tombstones(self) -> list[StreamsGroupRecord]:
        """The records that end the group."""
        records: list[StreamsGroupRecord] = [CurrentRecord(self.group_id, each, None) for each in self.current]
        records += [TargetRecord(self.group_id, each, None) for each in self.targets]
        records.append(TargetEpochRecord(self.group_id, None))
        records += [MemberRecord(self.group_id, each, None) for each in self.members]
        records.append(TopologyRecord(self.group_id, None))
        return [*records, GroupEpochRecord(self.group_id, None)]

    # What `replay` does

    def put_member(self, member_id: str, member: MemberInfo | None) -> None:
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member

    def put_current(self, member_id: str, current: Current | None) -> None:
        before = self.current.pop(member_id, None)
        if before is not None:
            for held in (before.assigned, before.pending):
                self._release(member_id, held)
        if current is None:
            return
        self.current[member_id] = current
        for held in (current.assigned, current.pending):
            self._active.update(dict.fromkeys(held.active, member_id))
            for task in _in_order(held.standby | held.warmup):
                self._copies.setdefault(task, {})[member_id] = None

    def _release(self, member_id: str, held: Assignment) -> None:
        for task in held.active:
            if self._active.get(task) == member_id:
                del self._active[task]
        for task in held.standby | held.warmup:
            copies = self._copies.get(task, {})
            copies.pop(member_id, None)
            if not copies:
                self._copies.pop(task, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamsGroup):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            self.group_id, self.epoch, self.metadata_hash, self.validated_topology_epoch, self.standby_replicas,
            self.topology, self.assignment_epoch, self.members, self.targets, self.current, self._active, self._copies,
        )  # fmt: skip


def _in_order(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks)


class StoredEveryGroup(StoredAllGroups):
    """Groups of all protocols, and their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.streams_groups: dict[str, StreamsGroup] = {}

    def replay(self, record: EveryRecord) -> None:
        """Take over a committed record."""
        match record:
            case GroupEpochRecord(group_id, epoch):
                if epoch is None:
                    self.streams_groups.pop(group_id, None)
                    return
                group = self._streams_group(group_id)
                group.epoch, group.metadata_hash = epoch, record.metadata_hash
                group.validated_topology_epoch = record.validated_topology_epoch
                group.standby_replicas = record.standby_replicas
            case TopologyRecord(group_id, topology):
                if topology is not None or group_id in self.streams_groups:
                    self._streams_group(group_id).topology = topology
            case MemberRecord(group_id, member_id, member):
                if member is not None or group_id in self.streams_groups:
                    self._streams_group(group_id).put_member(member_id, member)
            case TargetEpochRecord(group_id, epoch, timestamp_ms):
                if epoch is not None or group_id in self.streams_groups:
                    group = self._streams_group(group_id)
                    group.assignment_epoch, group.assignment_timestamp_ms = epoch or 1, timestamp_ms
            case TargetRecord(group_id, member_id, target):
                if target is not None:
                    self._streams_group(group_id).targets[member_id] = target
                elif group_id in self.streams_groups:
                    self.streams_groups[group_id].targets.pop(member_id, None)
            case CurrentRecord(group_id, member_id, current):
                if current is not None or group_id in self.streams_groups:
                    self._streams_group(group_id).put_current(member_id, current)
            case _:
                super().replay(record)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.streams_groups or super().__contains__(group_id)

    def group_ids(self) -> list[str]:
        """Every group that the log knows."""
        return list({**dict.fromkeys(super().group_ids()), **dict.fromkeys(self.streams_groups)})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredEveryGroup):
            return NotImplemented
        return self.streams_groups == other.streams_groups and super().__eq__(other)

    __hash__ = None

    def _streams_group(self, group_id: str) -> StreamsGroup:
        group = self.streams_groups.get(group_id)
        if group is None:
            group = self.streams_groups[group_id] = StreamsGroup(group_id)
        return group
