"""Which replicas should move, and who should lead, so that brokers carry alike. Pure; it only proposes.

Few moves: what lies well stays. First everything leaves brokers that are to be drained; then replicas go from brokers
that have most to those that have least, small ones first; then, where sizes are known, pairs of replicas change places
to even bytes; then the order of replicas decides who leads. Racks are never worse spread than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MOVES_MAX = 100_000
"""Steps of one plan; each makes the cluster more even, so this is never reached but by a mistake of ours."""
BYTES_TOLERANCE = 0.1
"""Bytes may differ from the mean by this share: evening them copies data."""


@dataclass(frozen=True, slots=True)
class BrokerToBalance:
    """A broker that takes replicas."""

    broker_id: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionToBalance:
    """One partition as it is."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The preferred leader first."""
    size_bytes: int = 0
    """Of one replica; 0 where it is not known."""


@dataclass(frozen=True, slots=True)
class Move:
    """One partition as it should be."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int = 0

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(b for b in self.after if b not in self.before)

    @property
    def bytes_to_copy(self) -> int:
        return self.size_bytes * len(self.added)


@dataclass(slots=True)
class Plan:
    """What to change, and what comes of it."""

    moves: list[Move] = field(default_factory=list)
    replicas_before: dict[int, int] = field(default_factory=dict)
    replicas_after: dict[int, int] = field(default_factory=dict)
    leaders_before: dict[int, int] = field(default_factory=dict)
    leaders_after: dict[int, int] = field(default_factory=dict)
    bytes_before: dict[int, int] = field(default_factory=dict)
    bytes_after: dict[int, int] = field(default_factory=dict)

    @property
    def bytes_to_copy(self) -> int:
        return sum(move.bytes_to_copy for move in self.moves)


class CannotDrain(ValueError):
    """Too few brokers would be left for a partition's replicas."""


def plan_balance(
    brokers: Iterable[BrokerToBalance], partitions: Sequence[PartitionToBalance], drained: Iterable[int] = ()
) -> Plan:
    """The moves that even the load.

    Args:
        brokers: those that live.
        partitions: all of the cluster; those that are being reassigned are better left out.
        drained: brokers that shall hold nothing; they need not live.

    Raises:
        CannotDrain: a partition has more replicas than brokers would be left.
    """
    board = _Board(brokers, partitions, frozenset(drained))
    board.drain()
    board.even_replicas()
    board.even_bytes()
    board.even_leaders()
    return board.plan()


class _Board:
    """Replicas that are moved about until nothing gets better."""

    def __init__(
        self, brokers: Iterable[BrokerToBalance], partitions: Sequence[PartitionToBalance], drained: frozenset[int]
    ) -> None:
        self.rack_of: Mapping[int, str | None] = {broker.broker_id: broker.rack for broker in brokers}
        self.targets = sorted(b for b in self.rack_of if b not in drained)
        self.drained = drained
        self.partitions = sorted(partitions, key=lambda p: (p.topic, p.partition))
        self.replicas = [list(p.replicas) for p in self.partitions]
        self.steps = 0

    # What brokers carry

    def counts(self) -> dict[int, int]:
        found = Counter(b for replicas in self.replicas for b in replicas)
        return {b: found[b] for b in self.targets}

    def leads(self) -> dict[int, int]:
        found = Counter(replicas[0] for replicas in self.replicas)
        return {b: found[b] for b in self.targets}

    def sizes(self) -> dict[int, int]:
        found: Counter[int] = Counter()
        for partition, replicas in zip(self.partitions, self.replicas, strict=True):
            for b in replicas:
                found[b] += partition.size_bytes
        return {b: found[b] for b in self.targets}

    # Steps

    def drain(self) -> None:
        counts, sizes = self.counts(), self.sizes()
        for at, replicas in enumerate(self.replicas):
            for b in [b for b in replicas if b in self.drained]:
                free = [target for target in self.targets if target not in replicas]
                if not free:
                    name = f"{self.partitions[at].topic}-{self.partitions[at].partition}"
                    raise CannotDrain(f"{name} has {len(replicas)} replicas: too few brokers would be left")
                chosen = min(free, key=lambda t: (-self._racks_with(replicas, b, t), counts[t], sizes[t], t))
                replicas[replicas.index(b)] = chosen
                counts[chosen] += 1
                sizes[chosen] += self.partitions[at].size_bytes

    def even_replicas(self) -> None:
        counts = self.counts()
        while self._may_go_on() and counts:
            for most, least in _pairs(counts):
                at = self._movable(most, least)
                if at is not None:
                    self.replicas[at][self.replicas[at].index(most)] = least
                    counts[most] -= 1
                    counts[least] += 1
                    break
            else:
                return

    def even_bytes(self) -> None:
        """Two brokers exchange a large replica for a small one: their counts stay."""
        if not any(partition.size_bytes for partition in self.partitions) or len(self.targets) < 2:
            return
        while self._may_go_on():
            sizes = self.sizes()
            mean = sum(sizes.values()) / len(sizes)
            heavy, light = max(sizes, key=lambda b: (sizes[b], b)), min(sizes, key=lambda b: (sizes[b], b))
            gap = sizes[heavy] - sizes[light]
            if sizes[heavy] - mean <= BYTES_TOLERANCE * mean and mean - sizes[light] <= BYTES_TOLERANCE * mean:
                return
            exchange = self._exchange(heavy, light, gap)
            if exchange is None:
                return
            for at, giver, taker in exchange:
                self.replicas[at][self.replicas[at].index(giver)] = taker

    def even_leaders(self) -> None:
        """Only the order of replicas changes; where no single exchange helps, one over a third broker may."""
        leads = self.leads()
        while self._may_go_on() and leads:
            path = self._leader_path(leads)
            if path is None:
                return
            for at, taker in path:
                replicas = self.replicas[at]
                leads[replicas[0]] -= 1
                leads[taker] += 1
                position = replicas.index(taker)
                replicas[0], replicas[position] = replicas[position], replicas[0]

    def plan(self) -> Plan:
        before = _Board([], self.partitions, frozenset())
        before.targets = sorted({*self.targets, *(b for p in self.partitions for b in p.replicas)})
        after = [
            Move(p.topic, p.partition, p.replicas, tuple(replicas), p.size_bytes)
            for p, replicas in zip(self.partitions, self.replicas, strict=True)
            if tuple(replicas) != p.replicas
        ]
        mine, self.targets = self.targets, before.targets
        plan = Plan(after, before.counts(), self.counts(), before.leads(), self.leads(), before.sizes(), self.sizes())
        self.targets = mine
        return plan

    # Looking for steps

    def _may_go_on(self) -> bool:
        self.steps += 1
        return self.steps < MOVES_MAX

    def _movable(self, most: int, least: int) -> int | None:
        """The smallest partition whose replica may go from one to the other; followers rather than leaders."""
        able = [
            at
            for at, replicas in enumerate(self.replicas)
            if most in replicas and least not in replicas and self._keeps_racks(replicas, most, least)
        ]
        return min(
            able, key=lambda at: (self.partitions[at].size_bytes, self.replicas[at][0] == most, at), default=None
        )

    def _exchange(self, heavy: int, light: int, gap: int) -> list[tuple[int, int, int]] | None:
        """(partition, who gives it, who takes it) of two replicas whose exchange halves the gap best."""
        giving = self._only_at(heavy, light)
        taking = self._only_at(light, heavy)
        best: tuple[int, int, int] | None = None
        for first in giving:
            for second in taking:
                shifted = self.partitions[first].size_bytes - self.partitions[second].size_bytes
                if 0 < shifted < gap and (best is None or abs(gap - 2 * shifted) < best[0]):
                    best = (abs(gap - 2 * shifted), first, second)
        if best is None:
            return None
        return [(best[1], heavy, light), (best[2], light, heavy)]

    def _only_at(self, giver: int, taker: int) -> list[int]:
        """The largest few partitions that one has, the other has not, and that may change places."""
        able = [
            at
            for at, replicas in enumerate(self.replicas)
            if giver in replicas and taker not in replicas and self._keeps_racks(replicas, giver, taker)
        ]
        able.sort(key=lambda at: (-self.partitions[at].size_bytes, at))
        return able[:_CANDIDATES] + able[_CANDIDATES:][-_CANDIDATES:]

    def _leader_path(self, leads: Mapping[int, int]) -> list[tuple[int, int]] | None:
        """(partition, new leader) of a chain of exchanges from who leads most to one that leads less by two."""
        by_leader: dict[int, list[int]] = {}
        for at, replicas in enumerate(self.replicas):
            by_leader.setdefault(replicas[0], []).append(at)
        for start in sorted(leads, key=lambda b: (-leads[b], b)):
            came: dict[int, tuple[int, int]] = {}
            queue, seen = [start], {start}
            for broker_id in queue:
                for at in by_leader.get(broker_id, ()):
                    for taker in self.replicas[at][1:]:
                        if taker in seen or taker not in leads:
                            continue
                        seen.add(taker)
                        came[taker] = (broker_id, at)
                        if leads[start] - leads[taker] >= 2:
                            return _walked(came, start, taker)
                        queue.append(taker)
        return None

    def _keeps_racks(self, replicas: Sequence[int], leaves: int, comes: int) -> bool:
        return self._racks_with(replicas, leaves, comes) >= len({self.rack_of.get(b) for b in replicas})

    def _racks_with(self, replicas: Sequence[int], leaves: int, comes: int) -> int:
        return len({self.rack_of.get(comes if b == leaves else b) for b in replicas})


_CANDIDATES = 100
"""Replicas that an exchange looks at on each side, of the largest and of the smallest."""


def _pairs(counts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """(most, least) whose counts differ by two and more, the most uneven first."""
    ordered = sorted(counts, key=lambda b: (counts[b], b))
    for most in reversed(ordered):
        for least in ordered:
            if counts[most] - counts[least] < 2:
                break
            yield most, least


def _walked(came: Mapping[int, tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    path = []
    while end != start:
        giver, at = came[end]
        path.append((at, end))
        end = giver
    return list(reversed(path))
