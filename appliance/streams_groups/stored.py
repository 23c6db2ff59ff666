"""What the log says about groups of Kafka Streams; `replay` is the only method that writes.

A group is its epoch, its topology, its members, a target of tasks for each member under an assignment epoch, and what
each member has at present on its way there. A task is a partition of a subtopology, run (active), or kept as a copy of
its state (standby, warm-up).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast, get_args

from appliance.consumer_groups.stored import AnyRecord, StoredAllGroups
from appliance.groups.epoch_groups import (
    CurrentRecordOf,
    EpochGroup,
    EpochRecordOf,
    MemberRecordOf,
    OfGroup,
    RecordTypes,
    TargetEpochRecordOf,
    TargetRecordOf,
    replay,
)
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
class GroupEpochRecord(EpochRecordOf):
    """A group's epoch and what it was made with; None ends the group."""

    validated_topology_epoch: int = -1
    standby_replicas: int = 0


@dataclass(frozen=True, slots=True)
class TopologyRecord(OfGroup):
    topology: Topology | None


class MemberRecord(MemberRecordOf[MemberInfo]):
    __slots__ = ()


class TargetEpochRecord(TargetEpochRecordOf):
    __slots__ = ()


class TargetRecord(TargetRecordOf[Assignment]):
    __slots__ = ()


class CurrentRecord(CurrentRecordOf[Current]):
    __slots__ = ()


StreamsGroupRecord = GroupEpochRecord | TopologyRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord
EveryRecord = AnyRecord | StreamsGroupRecord


class StreamsGroup(EpochGroup[MemberInfo, Assignment, Current]):
    """One group, as the log has it."""

    RECORDS = RecordTypes(GroupEpochRecord, MemberRecord, TargetEpochRecord, TargetRecord, CurrentRecord)
    FIRST_EPOCH = 1

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, Current)
        self.validated_topology_epoch = -1
        self.standby_replicas = 0
        self.topology: Topology | None = None
        self._active: dict[Task, str] = {}
        """Who has a task or has not said yet that it gave it up."""
        self._copies: dict[Task, dict[str, None]] = {}
        """The same of standby and warm-up tasks, of which a task may have several."""

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
    def is_ready(self) -> bool:
        """Whether the topics were as the topology wants them when the group got its epoch."""
        return self.topology is not None and self.validated_topology_epoch == self.topology.epoch

    @property
    def state_name(self) -> str:
        """As it is shown to clients."""
        return "NotReady" if self.members and not self.is_ready else super().state_name

    def is_reconciled(self, member_id: str) -> bool:
        return self.current_of(member_id).is_reconciled_to(self.assignment_epoch)

    def _other_tombstones(self) -> list[StreamsGroupRecord]:
        return [TopologyRecord(self.group_id, None)]

    # What `replay` does

    def replay(self, record: OfGroup) -> None:
        """Take over what does not end the group."""
        if isinstance(record, TopologyRecord):
            self.topology = record.topology
        else:
            super().replay(record)

    def put_epoch(self, record: GroupEpochRecord) -> None:
        super().put_epoch(record)
        self.validated_topology_epoch, self.standby_replicas = record.validated_topology_epoch, record.standby_replicas

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
            for task in sorted(held.standby | held.warmup):
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

    def _facts(self) -> tuple[object, ...]:
        return (
            *super()._facts(), self.validated_topology_epoch, self.standby_replicas, self.topology, self._active,
            self._copies,
        )  # fmt: skip


_REPLAYED = frozenset(get_args(StreamsGroupRecord))


class StoredEveryGroup(StoredAllGroups):
    """Groups of all protocols, and their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.streams_groups: dict[str, StreamsGroup] = {}

    def replay(self, record: EveryRecord) -> None:
        """Take over a committed record."""
        if type(record) in _REPLAYED:
            replay(self.streams_groups, StreamsGroup, cast(OfGroup, record))
        else:
            super().replay(cast(AnyRecord, record))

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
