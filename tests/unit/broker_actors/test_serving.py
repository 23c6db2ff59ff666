from __future__ import annotations

from typing import Any

from appliance.broker_actors.serving import HOLD_MAX_MS, RECHECK_MS, ServingGate
from tests.support.hand_loop import HandBackground, HandClock


class Lease:
    def __init__(self) -> None:
        self.end_ms = 0
        self.firm = True
        self.ticks = 0

    def lease_valid(self, now_ms: int) -> bool:
        return now_ms < self.end_ms

    def lease_firm(self, now_ms: int) -> bool:
        return self.firm and now_ms < self.end_ms

    def loop_ticked(self) -> None:
        self.ticks += 1


class Server:
    def __init__(self) -> None:
        self.holding = False
        self.dropped = 0
        self.ticks = 0

    def begin_tick(self) -> None:
        self.ticks += 1

    def drop_held(self, reason: str) -> None:
        self.dropped += 1


class Partitions:
    def __init__(self) -> None:
        self.serving = False
        self.soft = False

    def set_serving(self, serving: bool) -> None:
        self.serving = serving

    def set_soft_lease(self, soft: bool) -> None:
        self.soft = soft


class World:
    def __init__(self) -> None:
        self.clock = HandClock(1_000_000)
        self.background = HandBackground(self.clock)
        self.lease, self.server, self.partitions = Lease(), Server(), Partitions()
        parts: Any = (self.lease, self.server, self.partitions)
        self.gate = ServingGate(*parts, self.background, self.clock)

    def grant(self, duration_ms: int) -> None:
        self.lease.end_ms = self.clock.time_ms + duration_ms


def serving() -> World:
    world = World()
    world.grant(2_000)
    world.gate.fenced(False)
    assert world.partitions.serving
    return world


def test_it_serves_with_a_lease_and_unfenced_and_not_before() -> None:
    world = World()
    world.gate.fenced(False)
    assert not world.partitions.serving
    world.grant(2_000)
    world.background.advance(RECHECK_MS)
    assert world.partitions.serving
    fenced = World()
    fenced.grant(2_000)
    fenced.background.advance(RECHECK_MS)
    assert not fenced.partitions.serving


def test_without_a_lease_answers_are_held_and_leave_when_it_is_back() -> None:
    world = serving()
    world.background.advance(2_000 + RECHECK_MS)
    assert world.server.holding
    assert world.partitions.serving, "it may be back soon"
    world.grant(2_000)
    world.background.advance(RECHECK_MS)
    assert not world.server.holding
    assert world.server.dropped == 0
    assert world.server.ticks > 0, "somebody has to send what was held"


def test_after_a_second_it_stops_serving_and_drops_what_it_held() -> None:
    world = serving()
    world.background.advance(2_000 + HOLD_MAX_MS - 5 * RECHECK_MS)
    assert world.partitions.serving
    world.background.advance(10 * RECHECK_MS)
    assert not world.partitions.serving
    assert world.server.dropped == 1
    assert not world.server.holding, "refusals may leave"
    world.grant(2_000)
    world.background.advance(RECHECK_MS)
    assert world.partitions.serving


def test_fenced_it_stops_at_once() -> None:
    world = serving()
    world.gate.fenced(True)
    world.gate.check()
    assert not world.partitions.serving
    assert world.server.dropped == 1


def test_the_lease_hears_that_the_loop_lives_also_when_nothing_happens() -> None:
    world = serving()
    before = world.lease.ticks
    world.background.advance(500)
    assert world.lease.ticks >= before + 500 // RECHECK_MS
