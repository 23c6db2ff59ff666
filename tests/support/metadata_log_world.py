"""A world for the metadata log: a simulated object store with bad days, and controllers that crash, pause and race.

Everything happens at virtual milliseconds out of one heap and one seed. `World.run` checks after each event what must
never break: one content for each commit number among all who act on it, controller epochs that never fall, broker
epochs and producer-id blocks given out once.
"""

from __future__ import annotations

import heapq
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from appliance.base.randomness import SeededRandomness
from appliance.controller.commits import Commit, LogCorrupt
from appliance.controller.metadata_log import MetadataLog, SteppedDown
from appliance.controller.records import BrokerRegistered, Listener, ProducerIdsAllocated, Record
from appliance.controller.store_calls import (
    Absent,
    Create,
    Delete,
    Done,
    Exists,
    Found,
    Get,
    ListNames,
    Mismatch,
    Names,
    NoAnswer,
    Pause,
    StoreAnswer,
    StoreRequest,
    StoreResult,
    StoreSteps,
    Swap,
    Written,
)

REQUEST_TIMEOUT_MS = 2_000
BLOCK = 1_000


class Violation(AssertionError):
    """An invariant does not hold; the message names it and the seed."""


@dataclass
class SimulatedStore:
    """Bodies by name; `apply` does one request at once and whole."""

    bodies: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    writes: int = 0

    def apply(self, request: StoreRequest) -> StoreResult:
        match request:
            case Get(name):
                return Found(*self.bodies[name]) if name in self.bodies else Absent()
            case Create(name, data):
                return Exists() if name in self.bodies else self._write(name, data)
            case Swap(name, data, etag):
                if name not in self.bodies:
                    return Absent()
                return self._write(name, data) if self.bodies[name][1] == etag else Mismatch()
            case Delete(name):
                self.bodies.pop(name, None)
                return Done()
            case ListNames(prefix, limit):
                return Names(tuple(sorted(name for name in self.bodies if name.startswith(prefix))[:limit]))
            case Pause():
                return Done()

    def _write(self, name: str, data: bytes) -> Written:
        self.writes += 1
        # S3's ETag depends on the body alone; so does this one.
        self.bodies[name] = (data, f"{hash(data):x}")
        return Written(self.bodies[name][1])


@dataclass
class Faults:
    """How bad the days are; all zero is a good day."""

    lost: float = 0.02
    """The request never arrives."""
    answer_lost: float = 0.02
    late: float = 0.03
    """The request lands up to six seconds later, when its sender has given up on it."""
    unavailable: float = 0.03
    """503 at once."""
    pause: float = 0.01
    """A controller stands still for up to eight seconds, with its answers waiting."""
    crash: float = 0.003


QUIET = Faults(0, 0, 0, 0, 0, 0)


class Controller:
    """One life of a controller: opens the log, claims, commits until it steps down or dies; then the next starts."""

    def __init__(self, world: World, controller_id: int) -> None:
        self.world = world
        self.controller_id = controller_id
        self.alive = True
        self.paused_until = 0
        self.active = False
        self.log = world.log_class(controller_id, SeededRandomness(world.random.getrandbits(64)))

    def start(self) -> None:
        self._perform(self.log.open(None, f"cluster-{self.controller_id}"), lambda _: self._wait_to_claim())

    def die(self, reason: str, restart_ms: int | None = None) -> None:
        if not self.alive:
            return
        self.alive = self.active = False
        self.world.notes.append(f"{self.world.now_ms} controller {self.controller_id}: {reason}")
        delay = self.world.random.randrange(50, 1_500) if restart_ms is None else restart_ms
        self.world.start_controller(self.controller_id, delay)

    def _wait_to_claim(self) -> None:
        """A standby reads on for a while, then claims: the worst standby that there is."""

        def read(left: int) -> None:
            if left:
                self._perform(self.log.read_round(), lambda _: self._later(300, lambda: read(left - 1)))
            elif self.world.may_claim(self):
                self._perform(self.log.claim(self.world.wall_ms), self._claimed)
            else:
                self._later(500, lambda: read(1))

        read(0 if self.world.faults is QUIET else self.world.random.randrange(0, 12))

    def _claimed(self, commit: Commit) -> None:
        self.active = True
        self.world.committed(self, commit)
        self._commit_next()
        self._prove()

    def _commit_next(self) -> None:
        log, world = self.log, self.world
        if world.random.random() < 0.3:
            self._perform(log.snapshot_and_trim(world.wall_ms, retention_ms=0), lambda _: None)
        records: list[Record] = []
        if world.random.random() < 0.7:
            records.append(ProducerIdsAllocated(self.controller_id, 0, log.image.next_producer_id + BLOCK))
        else:
            for _ in range(world.random.randrange(1, 3)):
                listener = Listener("PLAINTEXT", "broker", 9092)
                incarnation = uuid.UUID(int=world.random.getrandbits(128))
                records.append(BrokerRegistered(world.random.randrange(3), incarnation, (listener,)))

        def done(commit: Commit) -> None:
            world.committed(self, commit)
            self._later(world.random.randrange(1, 100), self._commit_next)

        self._perform(log.commit(records, world.wall_ms), done)

    def _prove(self) -> None:
        self._perform(self.log.prove(), lambda _: self._later(1_000, self._prove))

    # Running steps

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        def unless_dead() -> None:
            if not self.alive:
                return
            if self.world.now_ms < self.paused_until:
                self.world.at(self.paused_until, unless_dead)
            else:
                action()

        self.world.at(self.world.now_ms + delay_ms, unless_dead)

    def _perform(self, steps: StoreSteps[Any], done: Callable[[Any], None]) -> None:
        """Run steps until they end; each request goes through the world's bad network."""
        if self.alive:
            self._resume(steps, None, done)

    def _resume(self, steps: StoreSteps[Any], answer: StoreAnswer | None, done: Callable[[Any], None]) -> None:
        try:
            request = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            self.world.acted(self)
            done(stop.value)
        except SteppedDown as error:
            self.die(str(error))
        except LogCorrupt as error:
            self.world.violated(f"controller {self.controller_id} reads a broken log: {error}")
        else:
            self.world.acted(self)
            sent_ms = self.world.now_ms

            def resume(result: StoreResult) -> None:
                self._resume(steps, StoreAnswer(result, sent_ms), done)

            if isinstance(request, Pause):
                self._later(request.delay_ms, lambda: resume(Done()))
            else:
                self._send(request, resume)

    def _send(self, request: StoreRequest, resume: Callable[[StoreResult], None]) -> None:
        world, faults = self.world, self.world.faults
        chance, delay = world.random.random(), world.random.randrange(1, 30)
        if world.random.random() < faults.pause:
            self.paused_until = world.now_ms + world.random.randrange(500, 8_000)
        if world.random.random() < faults.crash:
            world.at(world.now_ms + delay, lambda: world.apply(request))
            self.die("died with a request on its way")
            return

        def give_up() -> None:
            resume(NoAnswer("no answer in time"))

        def land() -> None:
            # Whether its sender is paused or dead by then, or not.
            result = world.apply(request)
            if not chance < unavailable + lost + late + answer_lost:
                self._later(delay, lambda: resume(result))

        unavailable, lost, late, answer_lost = faults.unavailable, faults.lost, faults.late, faults.answer_lost
        if world.store_is_away(self) or chance < unavailable:
            self._later(delay, lambda: resume(NoAnswer("503")))
        elif chance < unavailable + lost:
            self._later(REQUEST_TIMEOUT_MS, give_up)
        elif chance < unavailable + lost + late:
            world.at(world.now_ms + world.random.randrange(REQUEST_TIMEOUT_MS, 8_000), land)
            self._later(REQUEST_TIMEOUT_MS, give_up)
        else:
            world.at(world.now_ms + delay, land)
            if chance < unavailable + lost + late + answer_lost:
                self._later(REQUEST_TIMEOUT_MS, give_up)


class World:
    """The heap, the store, the controllers and what must hold."""

    def __init__(
        self,
        seed: int,
        *,
        controllers: int = 3,
        faults: Faults | None = None,
        log_class: type[MetadataLog] = MetadataLog,
        conditional: bool = True,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.log_class = log_class
        self.conditional = conditional
        self.now_ms = 0
        self.store = SimulatedStore()
        self.notes: list[str] = []
        self.commits = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._contents: dict[int, bytes] = {}
        self._epochs: dict[int, int] = {}
        self._incarnations: dict[int, uuid.UUID] = {}
        self._blocks: dict[int, int] = {}
        self._away_until: dict[int, int] = {}
        self._sole_claimant: int | None = None
        self.controllers: dict[int, Controller] = {}
        """The present life of each."""
        for number in range(controllers):
            self.start_controller(number, self.random.randrange(0, 500))
        for _ in range(8):
            self.at(self.random.randrange(1_000, 36_000), self._store_goes_away)

    @property
    def wall_ms(self) -> int:
        """Runs so fast that each commit is worth a mark in the log's table of times, and may be trimmed at once."""
        return self.now_ms * 600_000

    def run(self, until_ms: int) -> None:
        """Let everything happen that is due before `until_ms`."""
        while self._heap and self._heap[0][0] < until_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            self.events += 1
            action()
        self.now_ms = until_ms

    def heal(self) -> None:
        """From now on the days are good, and one controller alone may claim."""
        self.faults = QUIET
        self._away_until.clear()
        self._sole_claimant = 0
        for controller in list(self.controllers.values()):
            controller.die("restarted to heal", restart_ms=100)

    def start_controller(self, controller_id: int, delay_ms: int) -> None:
        controller = self.controllers[controller_id] = Controller(self, controller_id)
        self.at(self.now_ms + delay_ms, controller.start)

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time_ms, self.random.getrandbits(32), action))

    def may_claim(self, controller: Controller) -> bool:
        return self._sole_claimant in (None, controller.controller_id)

    def store_is_away(self, controller: Controller) -> bool:
        until = max(self._away_until.get(controller.controller_id, 0), self._away_until.get(-1, 0))
        return self.now_ms < until

    def apply(self, request: StoreRequest) -> StoreResult:
        if isinstance(request, Create) and not self.conditional:
            # The variant without fencing: a plain PUT.
            self.store.bodies.pop(request.name, None)
        return self.store.apply(request)

    def _store_goes_away(self) -> None:
        who = self.random.choice([-1, *self.controllers])
        self._away_until[who] = self.now_ms + self.random.randrange(200, 5_000)

    # What must hold

    def violated(self, message: str) -> None:
        raise Violation(f"seed {self.seed}, at {self.now_ms} ms: {message}\n" + "\n".join(self.notes[-12:]))

    def acted(self, controller: Controller) -> None:
        """Invariant 1: whoever acts on commit n acts on the same content."""
        position = controller.log.position
        number, nonce = position.image.position, position.nonce
        if number < 0:
            return
        if self._contents.setdefault(number, nonce) != nonce:
            self.violated(f"controller {controller.controller_id} acts on another commit {number} than others did")

    def committed(self, controller: Controller, commit: Commit) -> None:
        """Invariants 1 and 9, at the moment at which answers would leave."""
        self.commits += 1
        self.acted(controller)
        before = max((number for number in self._epochs if number < commit.number), default=-1)
        if self._epochs.get(before, 0) > commit.controller_epoch:
            self.violated(f"controller epoch falls at commit {commit.number}")
        self._epochs[commit.number] = commit.controller_epoch
        later = [number for number in self._epochs if number > commit.number]
        if any(self._epochs[number] < commit.controller_epoch for number in later):
            self.violated(f"controller epoch falls after commit {commit.number}")
        for index, record in enumerate(commit.records):
            if isinstance(record, ProducerIdsAllocated):
                # A writer may learn late that its commit stands, when others have gone on from it long since.
                if self._blocks.setdefault(record.next_producer_id, commit.number) != commit.number:
                    self.violated(f"producer ids up to {record.next_producer_id} are given out twice")
            elif isinstance(record, BrokerRegistered):
                epoch = commit.number << 20 | index
                if self._incarnations.setdefault(epoch, record.incarnation_id) != record.incarnation_id:
                    self.violated(f"broker epoch {epoch} is given to two incarnations")
