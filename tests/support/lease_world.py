"""A world for leases: two controllers, three brokers with clocks of their own, slow and lossy ways between them.

The metadata log is one variable here (its own simulation is `metadata_log_world`): a controller's commit stands if no
later epoch has been claimed and the controller is not cut off from the store. After each event: whoever holds a valid
firm lease by its own clock is not fenced in what is committed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.broker_actors.controller_line import BrokerIdentity, ControllerLine
from appliance.controller.brokers import fence, unfence
from appliance.controller.decisions import Decision
from appliance.controller.image import MetadataImage
from appliance.controller.liveness import BrokerLiveness, LeaseTimers, Unfence
from appliance.controller.records import ControllerClaimed
from appliance.wire.messages.internal_metadata import BrokerLeaseRequest, BrokerLeaseResponse
from tests.support.metadata import after, cluster, rules

HEARTBEAT_MS = 250
TICK_MS = 50
PROOF_INTERVAL_MS = 1_000
CLOCK_ERROR = 1e-3
RULES = rules()


class Violation(AssertionError):
    """A broker serves under a lease although it is fenced; the message names the seed."""


class DriftingClock:
    """A broker's clock: right but for its rate and its beginning."""

    def __init__(self, world: LeaseWorld) -> None:
        self._world = world
        self._rate = 1 + world.random.uniform(-CLOCK_ERROR, CLOCK_ERROR)
        self._begin_ms = world.random.randrange(10_000_000)

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self._begin_ms + int(self._world.now_ms * self._rate)


class SimulatedController:
    """The deciding parts of a controller, over the world's log."""

    def __init__(self, world: LeaseWorld, controller_id: int) -> None:
        self.world = world
        self.controller_id = controller_id
        self.epoch = -1
        self.image = MetadataImage()
        self.liveness = world.new_liveness()
        self.proven_ms = -1
        self.cut_until_ms = 0
        self.paused_until_ms = 0

    @property
    def active(self) -> bool:
        return self.epoch >= 0

    def claim(self) -> None:
        world = self.world
        if world.now_ms < self.cut_until_ms or self.active:
            return
        self.epoch = world.image.controller_epoch + 1
        world.image = self.image = after(world.image, ControllerClaimed(self.epoch, self.controller_id, "", 0))
        self.proven_ms = world.now_ms
        self.liveness = world.new_liveness()
        world.take_over(self)
        self._tick(self.epoch)
        self._prove(self.epoch)

    def commit(self, decision: Decision, then: Callable[[], None] = lambda: None) -> None:
        """Stands at once, or when the store is there again, or never."""
        world, epoch = self.world, self.epoch
        if not self.active:
            return
        if world.now_ms < self.cut_until_ms:
            world.later(100, lambda: self.commit(decision, then) if self.epoch == epoch else None)
        elif world.image.controller_epoch > self.epoch:
            self.epoch = -1
        else:
            if decision.records:
                world.image = self.image = after(world.image, *decision.records)
            self.proven_ms = world.now_ms
            self.liveness.image_changed(self.image, world.now_ms)
            then()

    def heartbeat(self, request: BrokerLeaseRequest, reply: Callable[[BrokerLeaseResponse], None]) -> None:
        if self.world.now_ms < self.paused_until_ms:
            self.world.at(self.paused_until_ms, lambda: self.heartbeat(request, reply))
            return
        if not self.active:
            reply(BrokerLeaseResponse(error_code=ErrorCode.NOT_CONTROLLER, controller_epoch=0))
            return
        answer = self._beat(request)
        if isinstance(answer, BrokerLeaseResponse):
            reply(answer)
        elif isinstance(answer, Unfence):
            broker = (request.broker_id, request.broker_epoch)
            decision = unfence(*broker, self.image, RULES)
            self.commit(decision, lambda: self._reply_again(request, reply))

    def _reply_again(self, request: BrokerLeaseRequest, reply: Callable[[BrokerLeaseResponse], None]) -> None:
        again = self._beat(request)
        if isinstance(again, BrokerLeaseResponse):
            reply(again)

    def _beat(self, request: BrokerLeaseRequest) -> object:
        proven_ms = self.world.proof_that_counts(self)
        return self.liveness.heartbeat(request, self.image, self.world.now_ms, proven_ms=proven_ms)

    def _tick(self, epoch: int) -> None:
        world = self.world
        if self.epoch != epoch:
            return
        if world.now_ms < self.paused_until_ms:
            world.at(self.paused_until_ms, lambda: self._tick(epoch))
            return
        late = self.liveness.late(world.now_ms)
        if late:
            self.commit(fence(late, self.image, RULES))
        world.later(TICK_MS, lambda: self._tick(epoch))

    def _prove(self, epoch: int) -> None:
        world = self.world
        if self.epoch != epoch:
            return
        if world.now_ms >= max(self.cut_until_ms, self.paused_until_ms):
            if world.image.controller_epoch > self.epoch:
                self.epoch = -1
                return
            self.proven_ms = world.now_ms
        world.later(PROOF_INTERVAL_MS, lambda: self._prove(epoch))


class SimulatedBroker:
    """The real `ControllerLine`, and a heartbeat that is answered or not."""

    def __init__(self, world: LeaseWorld, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.clock = DriftingClock(world)
        identity = BrokerIdentity(broker_id, ())
        self.line = ControllerLine(["0:0", "1:1"], identity, self.clock, SeededRandomness(broker_id))
        self.line.registered(world.image.brokers[broker_id].broker_epoch)
        self.leases = 0
        self._sent = 0

    def holds_firm_lease(self) -> bool:
        return self.line.lease_firm(self.clock.monotonic_ms())

    def beat(self) -> None:
        world = self.world
        address = self.line.address()
        sent_ms = self.clock.monotonic_ms()
        self._sent += 1
        number = self._sent
        request = BrokerLeaseRequest(
            broker_id=self.broker_id,
            broker_epoch=self.line.broker_epoch,
            position=world.image.position,
            controller_epoch=world.epoch_that_counts(self.line.controller_epoch),
        )

        def answered(response: BrokerLeaseResponse) -> None:
            if number == self._sent:
                self._take(response, sent_ms, address)
                self._sent += 1
                world.later(HEARTBEAT_MS, self.beat)

        def timed_out() -> None:
            if number == self._sent:
                self.line.try_next(address)
                self.beat()

        controller = world.controllers[address[1]]
        world.send(lambda: controller.heartbeat(request, lambda response: world.send(lambda: answered(response))))
        world.later(world.lease_ms, timed_out)

    def _take(self, response: BrokerLeaseResponse, sent_ms: int, address: tuple[str, int]) -> None:
        if response.error_code or not self.line.accept_epoch(response.controller_epoch):
            self.line.try_next(address)
        elif response.is_fenced or response.lease_ms <= 0:
            self.line.lease_refused("fenced")
        else:
            self.leases += 1
            self.line.lease_granted(self.line.broker_epoch, sent_ms + self.world.lease_ms, firm=response.is_firm)


class LeaseWorld:
    """One seed's worth of bad days."""

    lease_ms = 2_000

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 0
        self.image = cluster(1, 2, 3)
        self.fencings = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.controllers = [SimulatedController(self, number) for number in range(2)]
        self.brokers = [SimulatedBroker(self, broker_id) for broker_id in (1, 2, 3)]
        self._cut_brokers_until: dict[int, int] = {}
        self.controllers[0].claim()
        for broker in self.brokers:
            self.later(self.random.randrange(HEARTBEAT_MS), broker.beat)
        for _ in range(12):
            self.at(self.random.randrange(30_000), self._trouble)

    # Variants that tests break

    def new_liveness(self) -> BrokerLiveness:
        return BrokerLiveness(LeaseTimers())

    def take_over(self, controller: SimulatedController) -> None:
        controller.liveness.took_over(controller.image, self.now_ms)

    def proof_that_counts(self, controller: SimulatedController) -> int:
        return controller.proven_ms

    def epoch_that_counts(self, seen: int) -> int:
        return seen

    # Events

    def run(self, until_ms: int) -> None:
        fenced: set[int] = set()
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
            now_fenced = {broker_id for broker_id, broker in self.image.brokers.items() if broker.fenced}
            self.fencings += len(now_fenced - fenced)
            fenced = now_fenced
            for broker in self.brokers:
                if broker.broker_id in fenced and broker.holds_firm_lease():
                    raise Violation(f"seed {self.seed}, at {self.now_ms} ms: broker {broker.broker_id} is fenced")

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (time_ms, self._number, action))

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    def send(self, action: Callable[[], None]) -> None:
        """A message: mostly quick, sometimes slow, sometimes lost."""
        chance = self.random.random()
        if chance < 0.03:
            return
        slow = chance < 0.13
        self.later(self.random.randrange(5_000) if slow else self.random.randrange(1, 40), action)

    def _trouble(self) -> None:
        """A controller is cut off from the store, or stands still, or the other one claims."""
        controller = self.random.choice(self.controllers)
        match self.random.randrange(3):
            case 0:
                controller.cut_until_ms = self.now_ms + self.random.randrange(500, 9_000)
            case 1:
                controller.paused_until_ms = self.now_ms + self.random.randrange(300, 6_000)
            case _:
                controller.claim()
