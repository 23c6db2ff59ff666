"""The parts of the simulated partition: replicas' logs and processes, and an object store with bad days."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from appliance.tiering.limits import TieringLimits
from appliance.tiering.manifest import Manifest
from appliance.tiering.policy import TieringLeader
from tests.support.tiering_facts import FakeSegment

if TYPE_CHECKING:
    from tests.support.tiering_world import World

TIMEOUT_MS = 200
"""After so long a sender takes its request to the store for undecided."""
MANIFEST = "manifest.json"
BAD_DAYS = 400
"""So many show that a variant is broken, or it counts as whole."""
LIMITS = TieringLimits(
    upload_timeout_ms=TIMEOUT_MS,
    backoff_ms=20,
    backoff_max_ms=200,
    delete_delay_ms=0,
    sweep_interval_ms=600,
    retention_interval_ms=100,
    merge_min_age_ms=-1,
)
Entry = tuple[int, int]
"""Leader epoch and value of a record; every value is appended once."""


@dataclass(frozen=True)
class Rules:
    """What is broken on purpose."""

    machine: type[TieringLeader] = TieringLeader
    timeout_is_success: bool = False
    sweep_everything: bool = False
    stable_is_end: bool = False
    told_when_uploaded: bool = False
    epoch_reused: bool = False
    unclean_serves_at_once: bool = False


class Broken(AssertionError):
    """An invariant does not hold."""


def is_found_out(live: Callable[[int], None], first_seed: int = 0) -> bool:
    """Whether one of 400 bad days, each lived through by `live(seed)`, shows that something is broken."""
    for seed in range(first_seed, first_seed + BAD_DAYS):
        try:
            live(seed)
        except Broken:
            return True
    return False


@dataclass
class SimLog:
    """A replica's log: records from `base` on, cut into closed segments and an active one."""

    base: int = 0
    entries: list[Entry] = field(default_factory=list)
    closed: list[FakeSegment] = field(default_factory=list)
    log_start: int = 0

    @property
    def end(self) -> int:
        return self.base + len(self.entries)

    @property
    def active_base(self) -> int:
        return self.closed[-1].next_offset if self.closed else self.base

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.base]

    def roll(self, now_ms: int) -> None:
        if self.end > self.active_base:
            self.closed.append(FakeSegment(self.active_base, self.end, self.end - self.active_base, now_ms))

    def truncate(self, offset: int) -> None:
        if offset <= self.base:
            self.restart(offset)
            return
        del self.entries[offset - self.base :]
        while self.closed and self.closed[-1].next_offset > offset:
            self.closed.pop()

    def restart(self, offset: int) -> None:
        self.base, self.entries, self.closed = offset, [], []

    def delete_below(self, offset: int) -> None:
        while self.closed and self.closed[0].next_offset <= offset:
            segment = self.closed.pop(0)
            del self.entries[: segment.next_offset - self.base]
            self.base = segment.next_offset


@dataclass
class SimBroker:
    """A replica's process; `machine` while it believes to lead."""

    number: int
    log: SimLog = field(default_factory=SimLog)
    up: bool = True
    paused_until: int = 0
    unclean: bool = False
    machine: TieringLeader | None = None
    serving: bool = False
    high_watermark: int = 0
    tiered_end: int = 0
    clock_skew_ms: int = 0
    inbox: list[Callable[[], None]] = field(default_factory=list)
    """What happened while it was paused."""


class SimStore:
    """Objects with ETags; requests arrive late or never, answers get lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[str, tuple[Any, str]] = {}
        self._etags = itertools.count()
        self.trouble = True
        self.outage_until = 0
        self.under_way = 0

    def request(self, apply: Callable[[], Any], answer: Callable[[Any], None], unanswered: Callable[[], None]) -> None:
        """Send `apply` on its way; exactly one of the two others is called."""
        world, chance = self.world, self.world.random
        answered = False

        def once(action: Callable[[], None]) -> None:
            nonlocal answered
            if not answered:
                answered = True
                action()

        def arrive(answer_arrives: bool) -> None:
            self.under_way -= 1
            result = apply()
            if answer_arrives:
                world.later(chance.randint(1, 15), lambda: once(lambda: answer(result)))

        fate = chance.random() if self.trouble else 1.0
        delay = chance.randint(1, 15)
        if self.trouble and world.now < self.outage_until:
            fate *= 0.2
        world.later(TIMEOUT_MS, lambda: once(unanswered))
        if fate < 0.04:
            return
        self.under_way += 1
        if fate < 0.08:
            world.later(delay, lambda: arrive(False))
        elif fate < 0.13:
            world.later(chance.randint(TIMEOUT_MS, 2_500), lambda: arrive(True))
        elif fate < 0.15:
            self.under_way -= 1
            world.later(delay, lambda: once(unanswered))
        else:
            world.later(delay, lambda: arrive(True))

    def create(self, name: str, body: Any) -> str | None:
        if name in self.objects:
            return None
        return self._put(name, body)

    def swap(self, name: str, body: Any, etag: str) -> str | None:
        if name not in self.objects or self.objects[name][1] != etag:
            return None
        return self._put(name, body)

    def _put(self, name: str, body: Any) -> str:
        # The ETag follows from the body, as with a real store; bodies of manifests differ by their version.
        etag = f"{body.version}-{body.leader_epoch}" if isinstance(body, Manifest) else str(next(self._etags))
        before = self.objects.get(name)
        self.objects[name] = (body, etag)
        self.world.books.put(name, body, before[0] if before else None)
        return etag

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)
        self.world.books.check_listed()
