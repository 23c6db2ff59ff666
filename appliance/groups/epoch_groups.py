"""What all kinds of groups have in common that go from epoch to epoch towards a target (KIP-848, KIP-932, KIP-1071).

A group is its epoch, its members, a target for each under an assignment epoch, and what each has at present. A kind
says what a member, a target and what a member has are to it, and has records of its own types, by which kinds are told
apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

M = TypeVar("M")
T = TypeVar("T")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class OfGroup:
    """A record about a group: its names, then what it says; None there takes that away."""

    NAMES: ClassVar[int] = 1
    """How many of the fields are names."""

    group_id: str

    @property
    def is_end(self) -> bool:
        """Whether it only takes something away."""
        return getattr(self, type(self).__match_args__[self.NAMES]) is None


@dataclass(frozen=True, slots=True)
class OfMember(OfGroup):
    """A record about a member."""

    NAMES: ClassVar[int] = 2

    member_id: str


@dataclass(frozen=True, slots=True)
class EpochRecordOf(OfGroup):
    """A group's epoch and the hash of its topics; None ends the group."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecordOf(OfMember, Generic[M]):
    member: M | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecordOf(OfGroup):
    epoch: int | None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetRecordOf(OfMember, Generic[T]):
    target: T | None


@dataclass(frozen=True, slots=True)
class CurrentRecordOf(OfMember, Generic[C]):
    current: C | None


class RecordTypes(NamedTuple):
    """The types of one kind's records."""

    epoch: type[EpochRecordOf]
    member: type[MemberRecordOf[Any]]
    target_epoch: type[TargetEpochRecordOf]
    target: type[TargetRecordOf[Any]]
    current: type[CurrentRecordOf[Any]]


class EpochGroup(ABC, Generic[M, T, C]):
    """One group, as the log has it."""

    RECORDS: ClassVar[RecordTypes]
    FIRST_EPOCH: ClassVar[int] = 0
    """Of a group of which nothing is in the log yet."""

    def __init__(self, group_id: str, nothing: Callable[[], C]) -> None:
        self.group_id = group_id
        self.epoch = self.FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = self.FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        self.current: dict[str, C] = {}
        self._nothing = nothing

    def current_of(self, member_id: str) -> C:
        """What the member has; nothing for one that is about to come."""
        return self.current.get(member_id) or self._nothing()

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        """As it is shown to clients."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if all(map(self.is_reconciled, self.members)) else "Reconciling"

    @abstractmethod
    def is_reconciled(self, member_id: str) -> bool:
        """Whether the member has what it is to have."""

    # Records

    def tombstones(self) -> list[Any]:
        """The records that end the group."""
        group_id, types = self.group_id, self.RECORDS
        return [
            *(types.current(group_id, each, None) for each in self.current),
            *(types.target(group_id, each, None) for each in self.targets),
            types.target_epoch(group_id, None),
            *(types.member(group_id, each, None) for each in self.members),
            *self._other_tombstones(),
            types.epoch(group_id, None),
        ]

    @abstractmethod
    def _other_tombstones(self) -> list[Any]:
        """Of what this kind of group has beside that."""

    def removed(self, member_id: str) -> list[Any]:
        """The records that end one member."""
        types = self.RECORDS
        return [
            types.current(self.group_id, member_id, None),
            types.target(self.group_id, member_id, None),
            types.member(self.group_id, member_id, None),
        ]

    def target_records(
        self, epoch: int, made: Mapping[str, T], wall_ms: int, before: Mapping[str, T] | None = None
    ) -> list[Any]:
        """What differs from the target that was there, and the new epoch."""
        types = self.RECORDS
        known = self.targets if before is None else before
        changed = (each for each, target in made.items() if known.get(each) != target)
        records: list[Any] = [types.target(self.group_id, each, made[each]) for each in changed]
        return [*records, types.target_epoch(self.group_id, epoch, wall_ms)]

    # What `replay` does

    def replay(self, record: OfGroup) -> None:
        """Take over what does not end the group."""
        match record:
            case EpochRecordOf():
                self.put_epoch(record)
            case MemberRecordOf(_, member_id, member):
                self.put_member(member_id, member)
            case TargetEpochRecordOf(_, epoch, timestamp_ms):
                self.assignment_epoch, self.assignment_timestamp_ms = epoch or self.FIRST_EPOCH, timestamp_ms
            case TargetRecordOf(_, member_id, target):
                _put(self.targets, member_id, target)
            case CurrentRecordOf(_, member_id, current):
                self.put_current(member_id, current)

    def put_epoch(self, record: Any) -> None:
        self.epoch, self.metadata_hash = record.epoch, record.metadata_hash

    def put_member(self, member_id: str, member: M | None) -> None:
        _put(self.members, member_id, member)

    def put_current(self, member_id: str, current: C | None) -> None:
        _put(self.current, member_id, current)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            self.group_id, self.epoch, self.metadata_hash, self.assignment_epoch, self.members, self.targets,
            self.current,
        )  # fmt: skip


G = TypeVar("G", bound=EpochGroup[Any, Any, Any])


def replay(groups: dict[str, G], new: Callable[[str], G], record: OfGroup) -> None:
    """Take over a committed record about one kind of groups. What takes something away makes no group."""
    group_id = record.group_id
    if isinstance(record, EpochRecordOf) and record.epoch is None:
        groups.pop(group_id, None)
        return
    group = groups.get(group_id)
    if group is None:
        if record.is_end:
            return
        group = groups[group_id] = new(group_id)
    group.replay(record)


def _put(there: dict[str, M], name: str, value: M | None) -> None:
    if value is None:
        there.pop(name, None)
    else:
        there[name] = value
