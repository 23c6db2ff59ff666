"""The `simple` assignor of share groups: every partition has a member, and every member a partition if there is one.

Among members that read the same topics: with no more members than partitions each partition has one member, and members
have equally many. Where there are more members they share partitions, evenly. Members keep what they have as long as
that holds. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from appliance.share_groups.stored import Target

NAME = "simple"


@dataclass(frozen=True, slots=True)
class ShareSubscriber:
    """A member, as far as it matters here."""

    member_id: str
    topics: frozenset[uuid.UUID]
    before: Target = field(default_factory=dict)


_Place = tuple[uuid.UUID, int]
K = TypeVar("K")


def assign(
    subscribers: Sequence[ShareSubscriber], partitions: Mapping[uuid.UUID, Collection[int]]
) -> dict[str, Target]:
    """The target of each member. `partitions` are those that may be given out."""
    given: dict[str, dict[_Place, None]] = {each.member_id: {} for each in subscribers}
    alike: dict[frozenset[uuid.UUID], list[ShareSubscriber]] = {}
    for each in sorted(subscribers, key=lambda one: one.member_id):
        alike.setdefault(each.topics, []).append(each)
    for topics, members in alike.items():
        places = [(topic, index) for topic in sorted(topics) for index in sorted(partitions.get(topic, ()))]
        if places:
            _deal(members, places, given)
    return {member_id: _by_topic(places) for member_id, places in given.items()}


def _deal(members: list[ShareSubscriber], places: list[_Place], given: dict[str, dict[_Place, None]]) -> None:
    """Members who read the same topics share these places as if there were nobody else."""
    if len(members) > len(places):
        most, with_most = divmod(len(members), len(places))
        taken = dict.fromkeys(places, 0)
        homeless = []
        for member in members:
            for place in _before(member):
                if place in taken and _has_room(taken, place, most, with_most):
                    taken[place] += 1
                    given[member.member_id][place] = None
                    break
            else:
                homeless.append(member)
        for member in homeless:
            place = min(places, key=lambda each: taken[each])
            taken[place] += 1
            given[member.member_id][place] = None
        return
    most, with_most = divmod(len(places), len(members))
    loads = {member.member_id: 0 for member in members}
    free = dict.fromkeys(places)
    for member in members:
        for place in _before(member):
            if place in free and _has_room(loads, member.member_id, most, with_most):
                loads[member.member_id] += 1
                given[member.member_id][place] = None
                del free[place]
    by_load = sorted(loads, key=lambda member_id: loads[member_id])
    waiting = list(free)
    for member_id in by_load:
        while waiting and _has_room(loads, member_id, most, with_most):
            place = waiting.pop()
            loads[member_id] += 1
            given[member_id][place] = None


def _has_room(loads: Mapping[K, int], key: K, even: int, one_more: int) -> bool:
    """Whether `key` may take one more, where all take `even` and `one_more` of them another one."""
    load = loads[key]
    return load < even or (load == even and sum(each > even for each in loads.values()) < one_more)


def _before(member: ShareSubscriber) -> list[_Place]:
    return [(topic, index) for topic in sorted(member.before) for index in member.before[topic]]


def _by_topic(places: Collection[_Place]) -> Target:
    made: dict[uuid.UUID, list[int]] = {}
    for topic, index in sorted(places):
        made.setdefault(topic, []).append(index)
    return {topic: tuple(indexes) for topic, indexes in made.items()}
