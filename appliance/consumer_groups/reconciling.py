"""A member's next step towards its target: first it gives up, then it gets, and never what somebody else still has.

```
            has to give something up                      all that it waited for is free
 STABLE ───────────────────────────> UNREVOKED ──────────────────────────────────────────> STABLE
   │                                     │  gave it up; others still have what it waits for   ^
   └────────────> UNRELEASED <───────────┘                                                    │
                      └───────────────────────────────────────────────────────────────────────┘
```

Until it has given up what it must, a member stays in its epoch; then it goes to the target's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping

from appliance.consumer_groups.assignors import Target
from appliance.consumer_groups.stored import Current, MemberState, Owned

Reported = Mapping[uuid.UUID, Collection[int]] | None
"""What a member says that it has; None: it did not say."""


def next_step(
    current: Current,
    assignment_epoch: int,
    target: Target,
    is_owned: Callable[[uuid.UUID, int], bool],
    reported: Reported,
    subscribed: Collection[uuid.UUID] | None = None,
) -> Current:
    """The member's next state; the same object if nothing changes.

    Args:
        is_owned: whether anybody has a partition, the member itself included.
        subscribed: topics that the member reads now, if the target may not know; it keeps and gets no others.
    """
    match current.state:
        case MemberState.STABLE:
            if current.epoch == assignment_epoch and subscribed is None:
                return current
            return _towards(current, current.epoch, assignment_epoch, target, is_owned, reported, subscribed)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(reported, current.pending_revocation):
                return current
            epoch = min(current.epoch + 1, max(current.epoch, assignment_epoch))
            return _towards(current, epoch, assignment_epoch, target, is_owned, reported, subscribed)
        case MemberState.UNRELEASED_PARTITIONS:
            return _towards(current, current.epoch, assignment_epoch, target, is_owned, reported, subscribed)
        case MemberState.UNKNOWN:
            return _towards(current, assignment_epoch, assignment_epoch, target, is_owned, reported, subscribed)


def _towards(
    current: Current,
    epoch: int,
    assignment_epoch: int,
    target: Target,
    is_owned: Callable[[uuid.UUID, int], bool],
    reported: Reported,
    subscribed: Collection[uuid.UUID] | None,
) -> Current:
    kept: dict[uuid.UUID, dict[int, int]] = {}
    given_up: dict[uuid.UUID, dict[int, int]] = {}
    added: dict[uuid.UUID, list[int]] = {}
    is_waiting = False
    if subscribed is not None:
        target = {topic: partitions for topic, partitions in target.items() if topic in subscribed}
    for topic in sorted({*target, *current.assigned}):
        wanted = frozenset(target.get(topic, ()))
        has = current.assigned.get(topic, {})
        for partition, since in has.items():
            (kept if partition in wanted else given_up).setdefault(topic, {})[partition] = since
        for partition in target.get(topic, ()):
            if partition in has:
                continue
            if is_owned(topic, partition):
                is_waiting = True
            else:
                added.setdefault(topic, []).append(partition)
    if given_up and _still_has(reported, given_up):
        return _changed(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, given_up)
    for topic, partitions in added.items():
        kept.setdefault(topic, {}).update(dict.fromkeys(partitions, assignment_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _changed(current, assignment_epoch, state, kept, {})


def _changed(current: Current, epoch: int, state: MemberState, assigned: Owned, pending: Owned) -> Current:
    previous = current.epoch if epoch != current.epoch else current.previous_epoch
    changed = Current(epoch, previous, state, assigned, pending)
    return current if changed == current else changed


def _still_has(reported: Reported, partitions: Owned) -> bool:
    if reported is None:
        return True
    return any(each in partitions[topic] for topic in partitions for each in reported.get(topic, ()))


def is_part_of(reported: Reported, assigned: Owned) -> bool:
    """Whether a member has only what it was given, and says so."""
    if reported is None:
        return False
    return all(partition in assigned.get(topic, {}) for topic in reported for partition in reported[topic])
