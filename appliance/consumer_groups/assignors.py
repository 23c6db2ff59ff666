"""Who is to have which partitions: the assignors `uniform` and `range`. Pure functions of all that they see.

- uniform: nobody who could take over a partition has two fewer than who has it, and as few as possible move.
- range: of each topic a member gets neighbouring partitions, the first ones the members whose names come first; so
  equal partitions of topics of equal size meet at the same member.
"""

from __future__ import annotations

import heapq
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

Target = dict[uuid.UUID, tuple[int, ...]]
"""Partitions by topic, in order; without topics that have none."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it."""

    member_id: str
    topics: frozenset[uuid.UUID]
    instance_id: str | None = None
    target: Mapping[uuid.UUID, tuple[int, ...]] = field(default_factory=dict)
    """What it was to have until now."""


def uniform(subscribers: list[Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Target]:
    """Balanced and sticky. `partitions`: how many each topic has; what is not in it does not exist."""
    first = subscribers[0].topics if subscribers else frozenset()
    if all(each.topics == first for each in subscribers):
        return _all_alike(subscribers, partitions)
    return _Balance(subscribers, partitions).run()


def in_ranges(subscribers: list[Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Target]:
    """Topic by topic."""
    targets: dict[str, Target] = {each.member_id: {} for each in subscribers}
    readers_of: dict[uuid.UUID, list[str]] = {}
    for each in sorted(subscribers, key=_place):
        for topic in each.topics:
            readers_of.setdefault(topic, []).append(each.member_id)
    for topic in sorted(readers_of):
        readers = readers_of[topic]
        share, larger = divmod(partitions.get(topic, 0), len(readers))
        start = 0
        for number, member_id in enumerate(readers):
            end = start + share + (number < larger)
            if end > start:
                targets[member_id][topic] = tuple(range(start, end))
            start = end
    return targets


Assignor = Callable[[list[Subscriber], Mapping[uuid.UUID, int]], dict[str, Target]]
ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": in_ranges}


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first: their names outlive them."""
    if subscriber.instance_id is not None:
        return False, subscriber.instance_id
    return True, subscriber.member_id


def _all_alike(subscribers: list[Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Target]:
    """Everybody reads the same topics: each has its share, and keeps what it had up to that.

    Partitions are numbered through all topics meanwhile: hashing a topic's id for each of them would cost most of it.
    This is done again for each member that comes, so single partitions are left to sets and slices, and whoever keeps
    what it had is hardly looked at.
    """
    if not subscribers:
        return {}
    topics = sorted(topic for topic in subscribers[0].topics if partitions.get(topic))
    begins = [0, *accumulate(partitions[topic] for topic in topics)]
    spans = dict(zip(topics, pairwise(begins), strict=True))
    share, larger = divmod(begins[-1], len(subscribers))
    before = {each.member_id: each.target for each in sorted(subscribers, key=lambda each: each.member_id)}
    had = _each_once({member_id: _places(target, spans) for member_id, target in before.items()})
    kept: dict[str, Sequence[int]] = {}
    for member_id, places in had.items():
        if len(places) > share:
            # Some have one more than their share: rather those who had one more before.
            places = places[: share + (larger > 0)]
            larger -= len(places) - share
        kept[member_id] = places
    taken = set().union(*kept.values())
    free = [place for place in range(begins[-1]) if place not in taken]
    at = 0
    for member_id, places in kept.items():
        missing = share - len(places)
        if missing > 0:
            kept[member_id] = [*places, *free[at : at + missing]]
            at += missing
    for member_id, places in kept.items():
        if larger > 0 and len(places) == share:
            kept[member_id] = [*places, free[at]]
            at += 1
            larger -= 1
    return {
        member_id: dict(target)
        if kept[member_id] is had[member_id] and len(kept[member_id]) == sum(map(len, target.values()))
        else _as_target(sorted(kept[member_id]), topics, begins)
        for member_id, target in before.items()
    }


def _places(target: Mapping[uuid.UUID, tuple[int, ...]], spans: Mapping[uuid.UUID, tuple[int, int]]) -> Sequence[int]:
    """What there is still of a target, numbered through all topics."""
    places: list[int] = []
    for topic, numbers in sorted(target.items()) if len(target) > 1 else target.items():
        begin, end = spans.get(topic, (0, 0))
        if numbers and max(numbers) >= end - begin:
            numbers = tuple([number for number in numbers if number < end - begin])
        if begin == 0 and len(target) == 1:
            return numbers
        places += [begin + number for number in numbers]
    return places


def _each_once(had: dict[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Nobody has what somebody before has, too: two members of a group that was upgraded may."""
    if len(set().union(*had.values())) == sum(map(len, had.values())):
        return had
    taken: set[int] = set()
    once: dict[str, Sequence[int]] = {}
    for member_id, places in had.items():
        once[member_id] = [place for place in dict.fromkeys(places) if place not in taken]
        taken.update(once[member_id])
    return once


def _as_target(mine: list[int], topics: list[uuid.UUID], begins: list[int]) -> Target:
    """What a member has, by topic; topics and partitions in their order."""
    if len(topics) == 1:
        return {topics[0]: tuple(mine)} if mine else {}
    target: dict[uuid.UUID, tuple[int, ...]] = {}
    at = 0
    while at < len(mine):
        topic = bisect_right(begins, mine[at]) - 1
        begin, end = begins[topic], begins[topic + 1]
        following = bisect_left(mine, end, at)
        target[topics[topic]] = tuple([place - begin for place in mine[at:following]])
        at = following
    return target


class _Balance:
    """Members read different topics: partitions move one by one from who has more to who has fewer."""

    def __init__(self, subscribers: list[Subscriber], partitions: Mapping[uuid.UUID, int]) -> None:
        self.partitions = partitions
        self.readers: dict[uuid.UUID, list[str]] = {}
        self.owned: dict[str, dict[uuid.UUID, list[int]]] = {}
        self.load: dict[str, int] = {}
        self._free: list[tuple[uuid.UUID, int]] = []
        taken: dict[uuid.UUID, bytearray] = {}
        for each in sorted(subscribers, key=lambda each: each.member_id):
            mine: dict[uuid.UUID, list[int]] = {}
            self.owned[each.member_id], self.load[each.member_id] = mine, 0
            for topic in sorted(each.topics):
                if not partitions.get(topic):
                    continue
                self.readers.setdefault(topic, []).append(each.member_id)
                flags = taken.setdefault(topic, bytearray(partitions[topic]))
                kept = [number for number in each.target.get(topic, ()) if number < len(flags) and not flags[number]]
                for number in kept:
                    flags[number] = 1
                mine[topic] = kept
                self.load[each.member_id] += len(kept)
        # Those that few may read come first: the others can still make up for them.
        for topic in sorted(self.readers, key=lambda topic: (len(self.readers[topic]), topic)):
            self._free += [(topic, number) for number, is_taken in enumerate(taken[topic]) if not is_taken]

    def run(self) -> dict[str, Target]:
        heaps: dict[uuid.UUID, list[tuple[int, str]]] = {}
        for topic, number in self._free:
            member_id = self._least_loaded(topic, heaps)
            self.owned[member_id][topic].append(number)
            self.load[member_id] += 1
        # Every move makes the sum of squares smaller, so this comes to an end.
        is_moving = True
        while is_moving:
            moved = [self._level(topic) for topic in sorted(self.readers)]
            is_moving = any(moved)
        return {
            member_id: {topic: tuple(sorted(mine[topic])) for topic in sorted(mine) if mine[topic]}
            for member_id, mine in self.owned.items()
        }

    def _least_loaded(self, topic: uuid.UUID, heaps: dict[uuid.UUID, list[tuple[int, str]]]) -> str:
        heap = heaps.get(topic)
        if heap is None:
            heap = heaps[topic] = [(self.load[member_id], member_id) for member_id in self.readers[topic]]
            heapq.heapify(heap)
        while True:
            load, member_id = heap[0]
            if load == self.load[member_id]:
                heapq.heapreplace(heap, (load + 1, member_id))
                return member_id
            heapq.heapreplace(heap, (self.load[member_id], member_id))

    def _level(self, topic: uuid.UUID) -> bool:
        """Move partitions of one topic until no reader has two fewer than an owner."""
        readers = self.readers[topic]
        least = [(self.load[member_id], member_id) for member_id in readers]
        most = [(-self.load[member_id], member_id) for member_id in readers if self.owned[member_id][topic]]
        heapq.heapify(least)
        heapq.heapify(most)
        has_moved = False
        while most:
            high, owner = most[0]
            if -high != self.load[owner] or not self.owned[owner][topic]:
                self._again(most, owner, -1, bool(self.owned[owner][topic]))
                continue
            low, reader = least[0]
            if low != self.load[reader]:
                heapq.heapreplace(least, (self.load[reader], reader))
                continue
            if -high - low < 2:
                break
            self.owned[reader][topic].append(self.owned[owner][topic].pop())
            self.load[owner] -= 1
            self.load[reader] += 1
            heapq.heapreplace(least, (low + 1, reader))
            heapq.heappush(least, (self.load[owner], owner))
            heapq.heappush(most, (-self.load[reader], reader))
            has_moved = True
        return has_moved

    def _again(self, heap: list[tuple[int, str]], member_id: str, sign: int, is_owner: bool) -> None:
        if is_owner:
            heapq.heapreplace(heap, (sign * self.load[member_id], member_id))
        else:
            heapq.heappop(heap)
