"""A broker that holds a firm lease by its own clock is not fenced, whatever clocks, links and controllers do."""

from __future__ import annotations

import pytest

from appliance.controller.liveness import BrokerLiveness, LeaseTimers
from tests.support.lease_world import LeaseWorld, SimulatedController, Violation
from tests.support.seeds import seeds

DAYS_MS = 40_000


@pytest.mark.parametrize("seed", seeds(40))
def test_a_firm_lease_ends_before_its_holder_is_fenced(seed: int) -> None:
    LeaseWorld(seed).run(DAYS_MS)


def test_the_bad_days_fence_brokers_and_good_hours_give_leases() -> None:
    worlds = [LeaseWorld(seed) for seed in range(10)]
    for world in worlds:
        world.run(DAYS_MS)
    assert sum(world.fencings for world in worlds) > 20
    assert all(broker.leases > 10 for world in worlds for broker in world.brokers)


class ImpatientWorld(LeaseWorld):
    """The controller's bound is far below the lease that the broker counts."""

    def new_liveness(self) -> BrokerLiveness:
        return BrokerLiveness(LeaseTimers(lease_ms=333))


class WithoutWaitAfterTakeOver(LeaseWorld):
    """C4 broken: a new controller believes that nobody holds a lease of the old one."""

    def take_over(self, controller: SimulatedController) -> None:
        controller.liveness.took_over(controller.image, self.now_ms - 5_500)


class FirmWithoutProof(LeaseWorld):
    """C3 broken: a controller without the store grants firm leases all the same."""

    def proof_that_counts(self, controller: SimulatedController) -> int:
        return self.now_ms


class JudgedByAnyHeartbeat(LeaseWorld):
    """A new controller shortens its wait for a broker by a heartbeat that was sent before the broker knew of it."""

    def epoch_that_counts(self, seen: int) -> int:
        return 1 << 30


@pytest.mark.parametrize("world", [ImpatientWorld, WithoutWaitAfterTakeOver, FirmWithoutProof, JudgedByAnyHeartbeat])
def test_a_rule_broken_on_purpose_is_caught(world: type[LeaseWorld]) -> None:
    caught = 0
    for seed in range(100):
        try:
            world(seed).run(DAYS_MS)
        except Violation:
            caught += 1
    assert caught > 0
