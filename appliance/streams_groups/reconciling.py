"""A member's next step towards its target: first it gives up, then it gets, and never what somebody else still has.

```
            has to give something up                      all that it waited for is free
 STABLE ───────────────────────────> UNREVOKED ──────────────────────────────────────────> STABLE
   │                                     │  gave it up; others still have what it waits for   ^
   └────────────> UNRELEASED <───────────┘                                                    │
                      └───────────────────────────────────────────────────────────────────────┘
```

Nobody else may run a task that it is to run, and its own process may have nothing of a task that it is to run or to
keep a copy of: members of one process share a state directory.
"""

from __future__ import annotations

from collections.abc import Callable

from appliance.streams_groups.stored import NOTHING, Assignment, Current, MemberState, StreamsGroup, Task, Tasks

Reported = Assignment | None
"""What a member says that it has; None: it did not say."""


def next_step(
    group: StreamsGroup,
    current: Current,
    process_id: str,
    assignment_epoch: int,
    target: Assignment,
    reported: Reported,
) -> Current:
    """The member's next state; the same object if nothing changes."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch == assignment_epoch:
                return current
            return _towards(group, current, current.epoch, process_id, assignment_epoch, target, reported)
        case MemberState.UNREVOKED_TASKS:
            if reported is None or reported.meets(current.pending):
                return current
            return _towards(group, current, current.epoch, process_id, assignment_epoch, target, reported)
        case MemberState.UNRELEASED_TASKS:
            return _towards(group, current, current.epoch, process_id, assignment_epoch, target, reported)
        case MemberState.UNKNOWN:
            return _towards(group, current, assignment_epoch, process_id, assignment_epoch, target, reported)


def _towards(
    group: StreamsGroup,
    current: Current,
    epoch: int,
    process_id: str,
    assignment_epoch: int,
    target: Assignment,
    reported: Reported,
) -> Current:
    has = current.assigned
    kept = Assignment(has.active & target.active, has.standby & target.standby, has.warmup & target.warmup)
    given_up = Assignment(has.active - target.active, has.standby - target.standby, has.warmup - target.warmup)
    if given_up and (reported is None or reported.meets(given_up)):
        return _changed(current, epoch, MemberState.UNREVOKED_TASKS, kept, given_up, assignment_epoch)
    active = _free(target.active - has.active, lambda task: _may_run(group, process_id, task))
    standby = _free(target.standby - has.standby, lambda task: _may_keep(group, process_id, task))
    warmup = _free(target.warmup - has.warmup, lambda task: _may_keep(group, process_id, task))
    added = Assignment(kept.active | active, kept.standby | standby, kept.warmup | warmup)
    state = MemberState.STABLE if added == target else MemberState.UNRELEASED_TASKS
    return _changed(current, assignment_epoch, state, added, NOTHING, assignment_epoch)


def _free(tasks: Tasks, may: Callable[[Task], bool]) -> Tasks:
    return frozenset(task for task in tasks if may(task))


def _may_run(group: StreamsGroup, process_id: str, task: Task) -> bool:
    return group.active_process(task) is None and process_id not in group.copy_processes(task)


def _may_keep(group: StreamsGroup, process_id: str, task: Task) -> bool:
    return group.active_process(task) != process_id and process_id not in group.copy_processes(task)


def _changed(
    current: Current, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment, since: int
) -> Current:
    previous = current.epoch if epoch != current.epoch else current.previous_epoch
    epochs = {task: current.epochs.get(task, since) for task in sorted(assigned.active | pending.active)}
    changed = Current(epoch, previous, state, assigned, pending, epochs)
    return current if changed == current else changed
