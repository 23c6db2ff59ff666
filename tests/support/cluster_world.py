"""A whole cluster from a seed: controllers, brokers, the object store, clients, and bad days.

Everything that decides is the real code; what it stands on is played (`cluster_wire`, `cluster_log`, `cluster_store`).
`World(seed).run()` lives through one bad day, heals, and raises `Violated`, with seed and history, if a promise is
broken.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from appliance.base.config import BrokerConfig
from appliance.broker_actors.controller_probes import broker_is_gone
from appliance.controller.commits import Commit
from appliance.controller.metadata_log import MetadataLog
from appliance.controller.records import LogState
from tests.support.cluster_brokers import FIRST_BROKER_PORT, BrokerProcess
from tests.support.cluster_checks import Checks
from tests.support.cluster_clients import Clients
from tests.support.cluster_controllers import FIRST_PORT, ControllerProcess
from tests.support.cluster_faults import FAULTS_MS, Faults
from tests.support.cluster_log import MemoryLogs
from tests.support.cluster_store import MemoryStore
from tests.support.cluster_wire import Address, Clock, Process

HEAL_MS = 7_500
QUIET_MS = 1_500
"""At the end of the healing nothing new is sent, so that all can be settled."""
HISTORY = 60
PROPERTIES = {
    "broker.lease.ms": "2000",
    "leader.imbalance.check.interval.seconds": "3",
    "log.retention.ms": "-1",
    "metadata.snapshot.interval.commits": "12",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.socket.timeout.ms": "1500",
}


class Violated(AssertionError):
    """A promise is broken; the message has the seed and what happened before."""


class _Alarm(logging.Handler):
    """A handler's exception is logged and answered, and the day would go on: here it ends the day."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.told = f"{record.getMessage()}: {record.exc_info[1]!r}"


class World:
    """One seed."""

    def __init__(self, seed: int, *, troubles: bool = True, brokers: int = 0, **properties: str) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.history: deque[str] = deque(maxlen=HISTORY)
        self._digest = hashlib.sha256()
        self._broken: Violated | None = None
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        own = {name.replace("_", "."): value for name, value in properties.items()}
        self.config = BrokerConfig({**PROPERTIES, **own})
        self.store = MemoryStore()
        self.checks = Checks(self)
        self.store.on_create = self.checks.landed
        self.controller_ids = (0, 1, 2)
        self.broker_ids = tuple(range(1, 1 + (brokers or self.random.choice((3, 3, 4, 5)))))
        self.clocks = {name: Clock(self) for name in self._names()}
        self.logs = {broker_id: MemoryLogs() for broker_id in self.broker_ids}
        for broker_id, logs in self.logs.items():
            logs.replace_disk(self.random, broker_id)
        self.controllers: dict[int, ControllerProcess] = {}
        self.brokers: dict[int, BrokerProcess] = {}
        self.faults = Faults(self, troubles=troubles)
        self.clients = Clients(self)

    def _names(self) -> list[str]:
        return [f"c{number}" for number in self.controller_ids] + [f"b{number}" for number in self.broker_ids] + ["x"]

    # The day

    def begin(self) -> None:
        """Start everything; nothing has happened yet."""
        for controller_id in self.controller_ids:
            self.restart_controller(controller_id, self.random.randrange(300))
        for broker_id in self.broker_ids:
            self.start_broker(broker_id, LogState.EMPTY, 300 + self.random.randrange(300))
        self.clients.start()
        self.faults.start()

    def run(self) -> None:
        """One bad day, and what comes after it."""
        self.begin()
        self.run_until(FAULTS_MS)
        self.faults.heal()
        self.run_until(FAULTS_MS + HEAL_MS - QUIET_MS)
        self.clients.stop()
        self.run_until(FAULTS_MS + HEAL_MS)
        self.checks.healed()

    def run_until(self, end_ms: int) -> None:
        agenda, alarm, product = self._agenda, _Alarm(), logging.getLogger("appliance")
        product.addHandler(alarm)
        try:
            while agenda and agenda[0][0] <= end_ms:
                self.now, _, action = heapq.heappop(agenda)
                action()
                self.events += 1
                if alarm.told:
                    self.violated(alarm.told)
                if self._broken is not None:
                    # Whoever called what noticed it may have taken it for a failure of its own.
                    raise self._broken
        finally:
            product.removeHandler(alarm)
        self.now = end_ms

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (time_ms, self._number, action))

    def note(self, what: str) -> None:
        """Something that belongs into the history, and into the digest."""
        line = f"{self.now} {what}"
        self.history.append(line)
        self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """The same for the same seed."""
        return hashlib.sha256(self._digest.digest() + f"{self.events} {self.now}".encode()).hexdigest()

    def violated(self, what: str) -> None:
        history = "\n".join(self.history)
        self._broken = Violated(f"seed {self.seed} at {self.now} ms: {what}\n{history}")
        raise self._broken

    # Processes

    def restart_controller(self, controller_id: int, delay_ms: int) -> None:
        def start() -> None:
            old = self.controllers.get(controller_id)
            if old is None or not old.alive:
                self.controllers[controller_id] = ControllerProcess(
                    self, controller_id, self.clocks[f"c{controller_id}"]
                )

        self.at(self.now + delay_ms, start)

    def start_broker(self, broker_id: int, log_state: LogState, delay_ms: int) -> None:
        def start() -> None:
            old = self.brokers.get(broker_id)
            if old is None or not old.alive:
                clock, logs = self.clocks[f"b{broker_id}"], self.logs[broker_id]
                # The process before this one may have ended before it could tell.
                state = max(log_state, LogState.UNCLEAN) if logs.may_lack else log_state
                self.note(f"b{broker_id} starts, its log is {state.name}")
                self.faults.host_is_up(f"b{broker_id}")
                self.brokers[broker_id] = BrokerProcess(self, broker_id, clock, logs, state)

        self.at(self.now + delay_ms, start)

    def stopped(self, process: BrokerProcess) -> None:
        """A broker has ended in order; it comes again."""
        process.die()
        process.logs.flush()
        self.counts["orderly ends"] += 1
        self.start_broker(process.broker_id, LogState.CLEAN, self.random.randrange(50, 1_500))

    def listener_at(self, address: Address) -> Any:
        """The process that listens there; None: refused, or nobody answers (`latency` tells)."""
        port = address[1]
        found: Process | None
        if port >= FIRST_BROKER_PORT:
            found = self.brokers.get(port - FIRST_BROKER_PORT)
        else:
            found = self.controllers.get(port - FIRST_PORT)
        return found if found is not None and found.alive else None

    def name_at(self, address: Address) -> str:
        port = address[1]
        return f"b{port - FIRST_BROKER_PORT}" if port >= FIRST_BROKER_PORT else f"c{port - FIRST_PORT}"

    def probe(self, process: Process, work: Any, done: Callable[[Any], None]) -> None:
        """What a look at a port finds (`controller_probes`)."""
        host, port, *rest = work.args
        name = self.name_at((host, port))
        timeout_ms, broker_probe = rest[-1], work.func is broker_is_gone
        nothing: Any = False if broker_probe else -1
        if self.faults.is_cut(process.name, name) or self.faults.is_cut(name, process.name):
            process.later(timeout_ms, lambda: done(nothing))
            return
        if self.listener_at((host, port)) is None:
            process.later(3, lambda: done(True if broker_probe else ConnectionRefusedError(name)))
            return

        def looked() -> None:
            found = self.listener_at((host, port))
            if found is None or found.paused_until > self.now or found.stalled_until > self.now:
                process.later(timeout_ms, lambda: done(nothing))
            elif broker_probe:
                done(found.broker.broker_epoch != rest[1])
            else:
                done(found.controller.image.position if found.controller.active else -1)

        process.later(self.faults.latency_ms(), looked)

    # The network and the store, as wires see them

    def latency(self, source: str, target: str) -> int:
        """Of a refusal."""
        return 3_000 if self.faults.is_cut(source, target) else self.faults.latency_ms()

    def arrival_ms(self, source: str, target: str) -> int | None:
        return self.faults.arrival_ms(source, target)

    def doubles(self) -> bool:
        return self.faults.chance(0.15)

    def store_fate(self, process: Process) -> str:
        return self.faults.store_fate(process.name)

    def store_delay_ms(self) -> int:
        return self.faults.store_delay_ms()

    # What processes tell

    def settled(self, log: MetadataLog, commit: Commit | None) -> None:
        self.checks.settled(log, commit)

    def claim(self, context: Any, request: Any) -> Any:
        return self.checks.claim(context, request)

    def answer_leaves(self, process: Any, frame: bytes, claim: Any) -> None:
        self.checks.answer_leaves(process, frame, claim)
