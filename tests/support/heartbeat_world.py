"""Members that beat, their network and their coordinator, on days on which much goes wrong.

A member has one request on its way at a time; it, or its answer, may be lost, late, or arrive twice. Coordinators move,
writes fail or take long, helper threads take their time. What members say and are given, and what must never break, is
a subclass's to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from appliance.share_groups.refusals import refuse
from tests.support.consumer_group_bench import BenchWorld
from tests.support.coordinator_world import CoordinatorWorld, Violation

GROUP = "g"
HEARTBEAT_MS = 1_000
SESSION_MS = 10_000
REBALANCE_MS = 8_000
GONE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)

BAD_MS = GOOD_MS = 60_000

CONFIG = ConsumerGroupConfig(
    session_timeout_ms=SESSION_MS,
    min_session_timeout_ms=1,
    heartbeat_interval_ms=HEARTBEAT_MS,
    min_heartbeat_interval_ms=1,
    regex_refresh_interval_ms=10_000,
)


class Member(ABC):
    """A client, as far as it matters here."""

    def __init__(self, world: HeartbeatWorld, name: str) -> None:
        self.world, self.name = world, name
        self.life = 0
        self.member_id = ""
        self.epoch = 0
        self.held: set[Any] = set()
        self.said: set[Any] | None = None
        self.is_alive = False
        self.paused_until_ms = 0
        self.round = 0

    @abstractmethod
    def heartbeat(self) -> Any:
        """The next request: what has changed, and more when it joins."""

    @abstractmethod
    def farewell(self) -> Any:
        """The request with which it leaves."""

    @abstractmethod
    def given(self, response: Any) -> set[Any] | None:
        """What it is to hold from now on, if the answer says so."""

    def start(self) -> None:
        self.life += 1
        self.member_id = f"{self.name}.{self.life}"
        self.is_alive = True
        self._forget()
        self.beat()

    def crash(self) -> None:
        self.is_alive = False
        self._forget()

    def leave(self) -> None:
        if self.epoch <= 0:
            return
        request = self.farewell()
        self.crash()
        self.world.send(request, lambda _: None)

    def _forget(self) -> None:
        self.round += 1
        self.epoch, self.held, self.said = 0, set(), None

    def beat(self) -> None:
        world = self.world
        if not self.is_alive:
            return
        if world.now_ms < self.paused_until_ms:
            world.after(self.paused_until_ms - world.now_ms, partial(self._beat_in, self.round))
            return
        self.round += 1
        world.send(self.heartbeat(), partial(self._answered, self.round, set(self.held)))

    def _beat_in(self, round_: int) -> None:
        if round_ == self.round:
            self.beat()

    def _answered(self, round_: int, said: set[Any], response: Any) -> None:
        if round_ != self.round or not self.is_alive:
            return
        delay_ms = HEARTBEAT_MS
        if response is None:
            # Nobody knows whether it was heard: say it again.
            self.said, delay_ms = None, 100
        elif response.error_code in GONE:
            self._forget()
            delay_ms = 100
        elif response.error_code:
            self.said, delay_ms = None, 300
        else:
            self.epoch, self.said = response.member_epoch, said
            target = self.given(response)
            if target is not None and self._goes_for(target):
                delay_ms = 50
        self.world.after(delay_ms, partial(self._beat_in, self.round))

    def _goes_for(self, target: set[Any]) -> bool:
        """Give up what is not its own any longer, which may take a while, and take what is."""
        world = self.world
        if self.held - target and world.random.random() < world.slow:
            self.paused_until_ms = world.now_ms + world.random.randrange(2 * REBALANCE_MS)
        changed = self.held != target
        self.held = target
        return changed


class HeartbeatWorld(CoordinatorWorld):
    """One group, from one seed."""

    request_timeout_ms = 3_000
    shard_class: type[CoordinatorShard[Any]] = CoordinatorShard

    def __init__(self, seed: int, machine_class: type[Any]) -> None:
        super().__init__(seed)
        self.machine_class = machine_class
        self.lost, self.late, self.doubled, self.failed_writes, self.slow = 0.05, 0.05, 0.1, 0.04, 0.1
        self.is_bad = True
        self.metadata = BenchWorld()
        self.machine: Any = None
        self.members = self.prepare()
        for member in self.members:
            self.after(self.random.randrange(3_000), member.start)
        self._begin()
        self.after(self.random.randrange(8_000), self._move)
        self.after(0, self._mishap)

    @abstractmethod
    def prepare(self) -> Sequence[Any]:
        """Make the topics, and the members, who have not begun."""

    @abstractmethod
    def load_machine(self) -> Any:
        """A machine with what is in the log."""

    @abstractmethod
    def find_group(self) -> Any:
        """What the machine, which is there, has stored of the group; None before it has any."""

    @abstractmethod
    def widen(self) -> None:
        """A topic gets a partition more."""

    @abstractmethod
    def reconfigure(self) -> None:
        """Something else happens to what the group is about."""

    @abstractmethod
    def check_group(self, where: str, group: Any) -> None:
        """What must never break."""

    @abstractmethod
    def check_shares(self, where: str, group: Any) -> None:
        """Everybody has what it is to have, and together they have everything."""

    def live_through_bad_days(self) -> None:
        self.run(BAD_MS)

    def heal(self) -> None:
        """From now on everything works, and everybody is there."""
        self.is_bad = False
        self.lost = self.late = self.doubled = self.failed_writes = self.slow = 0.0
        for member in self.members:
            member.paused_until_ms = 0
            if not member.is_alive:
                member.start()

    def settle(self) -> None:
        """Good days, at whose end everything is as it should be."""
        self.heal()
        self.run(GOOD_MS)
        self.check_settled()

    # The coordinator

    def _begin(self) -> None:
        machine = self.machine = self.load_machine()
        self.shard = self.shard_class(machine, ShardLimits())
        self.shard.decide(lambda: machine.loaded(self.now), self.now)
        self.pump()

    def _move(self) -> None:
        if not self.is_bad:
            return
        self.after(self.random.randrange(1_000, 12_000), self._move)
        if self.shard is None:
            return
        self.lose_coordinator()
        self.machine = None
        self.after(self.random.randrange(10, 2_000), self._begin)

    def take_jobs(self) -> None:
        machine = self.machine
        for job in machine.take_jobs() if machine is not None else ():
            self.after(self.random.randrange(500), partial(self._job_done, machine, job))

    def _job_done(self, machine: Any, job: Any) -> None:
        if machine is self.machine and self.shard is not None:
            result = RuntimeError("full") if self.is_bad and self.random.random() < 0.1 else job.run()
            self.shard.decide(lambda: machine.job_done(job, result, self.now), self.now)
            self.pump()

    def fate_of_a_write(self) -> tuple[bool, int]:
        succeeds = self.random.random() >= self.failed_writes
        is_late = self.random.random() < self.late
        return succeeds, self.random.randrange(4_000, 9_000) if is_late else self.random.randrange(20)

    # The network

    def send(self, request: Any, done: Callable[[Any], None]) -> None:
        """`done` gets the answer, or None when none came in time; by then the request is gone, too."""
        outcome, once = self.answered_in_time(done)

        def arrive() -> None:
            if outcome:
                return
            self._arrive(request, once)
            if self.random.random() < self.doubled:
                self._arrive(request, lambda _: None)

        if self.random.random() >= self.lost:
            self.after(self._latency(), arrive)

    def _arrive(self, request: Any, done: Callable[[Any], None]) -> None:
        call = Call(request, 1, "client", "/127.0.0.1")
        self.waiting[call] = done
        if self.shard is None or self.machine is None:
            self.deliver(Answer(call, refuse(call, ErrorCode.NOT_COORDINATOR)))
            return
        self.shard.submit(call, self.now, after_writes_of=self.machine.must_wait(call))
        self.pump()

    def _latency(self) -> int:
        return self.random.randrange(4_000) if self.random.random() < self.late else self.random.randrange(1, 30)

    def deliver(self, answer: Answer) -> None:
        response: Any = answer.response
        done = self.waiting.pop(answer.call, None)
        if done is None:
            raise Violation(f"seed {self.seed}: answered twice")
        if response.error_code in GONE:
            self.notes.append("fenced")
        if self.random.random() >= self.lost:
            self.after(self._latency(), lambda: done(response))

    def _mishap(self) -> None:
        if not self.is_bad:
            return
        self.after(self.random.randrange(4_000), self._mishap)
        member = self.random.choice(self.members)
        if not member.is_alive:
            member.start()
            return
        match self.random.randrange(6):
            case 0:
                member.crash()
            case 1:
                member.leave()
            case 2:
                member.paused_until_ms = self.now_ms + self.random.randrange(2 * SESSION_MS)
            case 3:
                member.crash()
                member.start()
            case 4:
                self.widen()
            case _:
                self.reconfigure()

    # What must hold

    def check(self) -> None:
        group = self.find_group() if self.machine is not None else None
        if group is not None:
            self.check_group(f"seed {self.seed} at {self.now_ms}", group)

    def check_settled(self) -> None:
        group, where = self.find_group(), f"seed {self.seed}"
        if group is None or group.state_name != "Stable":
            raise Violation(f"{where}: the group is {group and group.state_name}")
        living = {member.member_id for member in self.members}
        if set(group.members) != living:
            raise Violation(f"{where}: members are {sorted(group.members)}, not {sorted(living)}")
        self.check_shares(where, group)


class AnswersBeforeItIsWritten:
    """Broken, whatever machine it is mixed into: an assignment is given out while its record is still under way."""

    def handle(self, call: Call, now: Moment) -> list[Any]:
        told: list[Any] = []
        for effect in super().handle(call, now):  # type: ignore[misc]
            if isinstance(effect, Write):
                told += [*effect.answers, replace(effect, answers=())]
            else:
                told.append(effect)
        return told
