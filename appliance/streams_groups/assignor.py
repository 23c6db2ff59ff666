"""Which member runs and which keeps copies of which tasks: sticky, then even.

A task stays where it runs, or goes to where a copy of its state is kept, as long as nobody gets more than an even
share; the others go to who has least. Copies (standby tasks) lie in other processes than the task and its other copies,
for members of one process share a state directory and die together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from appliance.streams_groups.stored import NOTHING, Assignment, Task
from appliance.streams_groups.topology import Configured


@dataclass(slots=True)
class _Member:
    member_id: str
    process: _Process
    active: list[Task] = field(default_factory=list)
    standby: list[Task] = field(default_factory=list)


@dataclass(slots=True)
class _Process:
    process_id: str
    members: list[_Member] = field(default_factory=list)
    held: set[Task] = field(default_factory=set)
    """Tasks of all members, in any role."""

    @property
    def load(self) -> tuple[float, str]:
        return len(self.held) / len(self.members), self.process_id

    def least(self) -> _Member:
        return min(self.members, key=lambda member: (len(member.active) + len(member.standby), member.member_id))


def assign(
    configured: Configured,
    members: Mapping[str, str],
    before: Mapping[str, Assignment],
    standby_replicas: int,
) -> dict[str, Assignment]:
    """A target for each member.

    Args:
        members: process id by member id.
        before: the last target.
        standby_replicas: copies of each task that keeps state.
    """
    if not configured.is_ready or not members:
        return dict.fromkeys(members, NOTHING)
    processes: dict[str, _Process] = {}
    known: dict[str, _Member] = {}
    for member_id in sorted(members):
        process = processes.setdefault(members[member_id], _Process(members[member_id]))
        known[member_id] = _Member(member_id, process)
        process.members.append(known[member_id])
    ran: dict[Task, str] = {}
    kept: dict[Task, list[str]] = {}
    for member_id in sorted(before.keys() & members.keys()):
        ran.update(dict.fromkeys(before[member_id].active, member_id))
        for task in sorted(before[member_id].standby):
            kept.setdefault(task, []).append(member_id)
    tasks = configured.all_tasks()
    _assign_active(tasks, known, ran, kept)
    stateful = [task for task in tasks if task[0] in configured.stateful]
    _assign_copies(stateful, standby_replicas, known, processes, ran, kept)
    _even_out(processes)
    return {
        member_id: Assignment(frozenset(member.active), frozenset(member.standby))
        for member_id, member in known.items()
    }


def _assign_active(
    tasks: list[Task],
    members: Mapping[str, _Member],
    ran: Mapping[Task, str],
    kept: Mapping[Task, list[str]],
) -> None:
    share, more = divmod(len(tasks), len(members))
    may_have_more = {"left": more}

    def takes(member: _Member | None, task: Task) -> bool:
        if member is None or len(member.active) > share or (len(member.active) == share and not may_have_more["left"]):
            return False
        if len(member.active) == share:
            may_have_more["left"] -= 1
        member.active.append(task)
        member.process.held.add(task)
        return True

    left = [task for task in tasks if not takes(members.get(ran.get(task, "")), task)]
    moved = [task for task in left if not any(takes(members.get(each), task) for each in kept.get(task, ()))]
    queue = [_place(member) for member in members.values()]
    heapify(queue)
    for task in moved:
        # Whoever has least has no more than the even share.
        member = members[queue[0][-1]]
        member.active.append(task)
        member.process.held.add(task)
        heapreplace(queue, _place(member))


def _place(member: _Member) -> tuple[int, float, str]:
    return len(member.active), member.process.load[0], member.member_id


def _assign_copies(
    tasks: Iterable[Task],
    replicas: int,
    members: Mapping[str, _Member],
    processes: Mapping[str, _Process],
    ran: Mapping[Task, str],
    kept: Mapping[Task, list[str]],
) -> None:
    """Copies of each task stay where they are, or are where it ran; others go to processes that have nothing of it."""
    missing: list[Task] = []
    for task in tasks:
        count = 0
        for each in (*kept.get(task, ()), ran.get(task, "")):
            member = members.get(each)
            if count < replicas and member is not None and task not in member.process.held:
                _keep(member, task)
                count += 1
        missing += [task] * (min(replicas, len(processes) - 1) - count)
    for task in missing:
        free = [process for process in processes.values() if task not in process.held]
        if free:
            _keep(min(free, key=lambda process: process.load).least(), task)


def _keep(member: _Member, task: Task) -> None:
    member.standby.append(task)
    member.process.held.add(task)


def _even_out(processes: Mapping[str, _Process]) -> None:
    """Copies go from the fullest process to the emptiest as long as that one stays the emptier of both."""
    for _ in range(sum(len(member.standby) for process in processes.values() for member in process.members)):
        fullest = max(processes.values(), key=lambda process: process.load)
        emptiest = min(processes.values(), key=lambda process: process.load)
        after = (len(emptiest.held) + 1) / len(emptiest.members)
        if (len(fullest.held) - 1) / len(fullest.members) < after:
            return
        found = next(
            (
                (member, task)
                for member in fullest.members
                for task in sorted(member.standby)
                if task not in emptiest.held
            ),
            None,
        )
        if found is None:
            return
        member, task = found
        member.standby.remove(task)
        fullest.held.remove(task)
        _keep(emptiest.least(), task)
