"""One partition on three brokers under bad days, from a seed: the real leader and follower machines, a tiny controller.

Messages are lost, doubled and late; processes die and keep their logs; one host at a time loses what was not flushed.
After every event the invariants 4 to 7 of the protocol are looked at. Broken rules come in by the constructor, as tests
of the test.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.partition.events import (
    Appended,
    AppendFetched,
    FetchAnswer,
    FetchLater,
    FollowerFetched,
    IsrDecided,
    IsrRefused,
    ProposeIsr,
    ReplicasFenced,
    StartAnew,
    Tick,
    TruncateTo,
)
from appliance.partition.fetch_position import MATCHES, judge
from appliance.partition.follower import PartitionFollower
from appliance.partition.leader import PartitionLeader

REPLICAS = (1, 2, 3)
MIN_INSYNC_REPLICAS = 2
LAG_MS = 1_500
FAULTS_MS = 8_000
HEAL_MS = 7_000
QUIET_MS = 2_000
"""At the end nothing is appended, so that all can be committed everywhere."""
FETCH_TIMEOUT_MS = 600
RECORDS_MAX = 400
TROUBLE_WITH_PROPOSALS = 0.3
"""Of those on the way to the controller and back, so many are lost, doubled, late."""


class Violated(AssertionError):
    """An invariant does not hold."""


class OnlyCommittedIsr(PartitionLeader):
    """Broken: the high watermark does not count who may already be in sync."""

    @property
    def max_isr(self) -> tuple[int, ...]:
        return self.isr


class ForgetsProposals(PartitionLeader):
    """Broken: a refused proposal, or one without an answer, is taken for one that will never be committed."""

    def handle(self, event: Any, now_ms: int) -> Any:
        if isinstance(event, IsrRefused):
            self.proposed_isr = ()
            self._others_changed()
        return super().handle(event, now_ms)


@dataclass(frozen=True)
class Broken:
    """Which rules do not hold."""

    leader: type[PartitionLeader] = PartitionLeader
    truncates_to_high_watermark: bool = False
    checks_partition_epoch: bool = True


@dataclass(frozen=True)
class Committed:
    """The partition as the controller has it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    fenced: tuple[int, ...]


@dataclass
class Node:
    broker_id: int
    log: list[tuple[int, str]] = field(default_factory=list)
    """(leader epoch, value) by offset."""
    flushed: int = 0
    high_watermark: int = 0
    alive: bool = True
    torn: bool = False
    """Lost its tail, and the controller has not heard of it yet."""
    life: int = 0
    known: Committed | None = None
    leader: PartitionLeader | None = None
    follower: PartitionFollower | None = None
    epochs: LeaderEpochCache = field(init=False)
    fetching: int = 0
    """Number of the fetch that is under way, 0 when none."""

    def __post_init__(self) -> None:
        self.read_epochs()

    def read_epochs(self) -> None:
        self.epochs = LeaderEpochCache(lambda: len(self.log))
        for offset, (epoch, _) in enumerate(self.log):
            self.epochs.assign(epoch, offset)

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.flushed = min(self.flushed, offset)
        self.epochs.truncate_from_end(offset)

    @property
    def mark(self) -> int:
        if self.leader is not None:
            return self.leader.high_watermark
        return self.follower.high_watermark if self.follower is not None else self.high_watermark


class World:
    def __init__(self, seed: int, broken: Broken | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.broken = broken or Broken()
        self.now = 0
        self.faults = True
        self.events = 0
        self.nodes = {broker_id: Node(broker_id) for broker_id in REPLICAS}
        self.committed = Committed(1, 0, 0, REPLICAS, (), (0, 0, 0), ())
        self.acknowledged: dict[int, tuple[str, int]] = {}
        """Offset -> (value, leader epoch in which it was acknowledged)."""
        self.appended = 0
        self.counts: dict[str, int] = {}
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._fetch_number = 0
        self._cut_off_by: dict[int, int] = {}
        self._unclean: int | None = None
        """The one host that may lack what it had: the next waits until it is in sync again."""

    # Time and messages

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (self.now + delay_ms, self._number, action))

    def send(self, action: Callable[[], None], trouble: float = 0.06) -> None:
        """Lost, doubled or late while there are faults."""
        chance = self.random.random()
        if self.faults and chance < trouble:
            return
        copies = 2 if self.faults and chance > 1 - trouble else 1
        for _ in range(copies):
            slow = self.faults and self.random.random() < trouble
            self.at(self.random.randint(200, 3_000) if slow else self.random.randint(1, 20), action)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self) -> None:
        for node in self.nodes.values():
            self._learn(node, self.committed)
            self._every(node.broker_id, 20, self._fetch)
            self._every(node.broker_id, 200, self._tick)
            self._every(node.broker_id, 300, self._flush)
        self._clients()
        self._trouble()
        while self._agenda and self.now < FAULTS_MS + HEAL_MS:
            self.now, _, action = heapq.heappop(self._agenda)
            if self.faults and self.now >= FAULTS_MS:
                self._heal()
            action()
            self.events += 1
            self.check()
        self.check_healed()

    def _every(self, broker_id: int, interval_ms: int, action: Callable[[Node], None]) -> None:
        def again() -> None:
            self.at(interval_ms + self.random.randint(0, interval_ms // 2), again)
            node = self.nodes[broker_id]
            if node.alive:
                action(node)

        self.at(self.random.randint(0, interval_ms), again)

    # Trouble

    def _trouble(self) -> None:
        if self.faults:
            self.at(self.random.randint(300, 1_500), self._trouble)
            node = self.nodes[self.random.choice(REPLICAS)]
            if self.random.random() < 0.5:
                self._cut_off(node)
            elif node.alive:
                self._kill(node, torn=self._unclean is None and self.random.random() < 0.4)

    def _cut_off(self, node: Node) -> None:
        """It reaches no other broker, nor they it; the controller it does."""
        self._number += 1
        number = self._cut_off_by[node.broker_id] = self._number

        def over() -> None:
            if self._cut_off_by.get(node.broker_id) == number:
                del self._cut_off_by[node.broker_id]

        self.at(self.random.randint(300, 4_000), over)

    def _reaches(self, one: Node, two: Node) -> bool:
        return one.broker_id not in self._cut_off_by and two.broker_id not in self._cut_off_by

    def _kill(self, node: Node, *, torn: bool) -> None:
        node.high_watermark = 0
        node.alive, node.leader, node.follower, node.fetching = False, None, None, 0
        node.life += 1
        if torn and node.flushed < len(node.log):
            self.count("torn")
            node.torn, self._unclean = True, node.broker_id
            node.cut(self.random.randint(node.flushed, len(node.log)))
        node.read_epochs()
        noticed = self.random.randint(50, 800)
        self.at(noticed, lambda: self._fence(node.broker_id))
        self.at(noticed + self.random.randint(10, 1_500), lambda: self._register(node))

    def _heal(self) -> None:
        self.faults = False
        self._cut_off_by.clear()

    # The controller

    def _commit(self, **changes: Any) -> None:
        self.committed = self._elected(replace(self.committed, **changes))
        for node in self.nodes.values():
            if node.alive:
                self._push(node)

    def _push(self, node: Node) -> None:
        """Metadata is followed by asking again until it comes: late, never lost."""
        state, life = self.committed, node.life
        delay = self.random.randint(200, 2_000) if self.faults and self.random.random() < 0.1 else 10
        self.at(self.random.randint(1, delay), lambda: self._learn(node, state) if node.life == life else None)

    def _elected(self, state: Committed) -> Committed:
        if state.leader != -1 and state.leader not in state.fenced:
            return state
        chosen = next((b for b in (*state.isr, *state.elr) if b not in state.fenced), -1)
        isr, elr = state.isr, state.elr
        if chosen in elr:
            self.count("from the ELR")
            isr, elr = (chosen,), tuple(b for b in (*isr, *elr) if b != chosen)
        if chosen == state.leader:
            return state
        self.count("elections")
        return Committed(
            chosen, state.leader_epoch + 1, state.partition_epoch + 1, isr, elr, state.broker_epochs, state.fenced
        )

    @staticmethod
    def _with_isr(state: Committed, isr: tuple[int, ...]) -> dict[str, Any]:
        elr: tuple[int, ...] = ()
        if len(isr) < MIN_INSYNC_REPLICAS:
            elr = tuple(b for b in dict.fromkeys((*state.elr, *state.isr)) if b not in isr)
        return {"isr": isr, "elr": elr, "partition_epoch": state.partition_epoch + 1}

    def _fence(self, broker_id: int) -> None:
        state = self.committed
        if broker_id in state.fenced or self.nodes[broker_id].alive:
            return
        left = tuple(b for b in state.isr if b != broker_id)
        changes = self._with_isr(state, left) if left and broker_id in state.isr else {}
        leader = -1 if state.leader == broker_id else state.leader
        self._commit(fenced=(*state.fenced, broker_id), leader=leader, **changes)

    def _register(self, node: Node) -> None:
        """B3: a new broker epoch; who lost its tail is believed nothing."""
        self._fence(node.broker_id)
        state, me = self.committed, node.broker_id
        isr, elr = state.isr, state.elr
        if node.torn:
            elr = tuple(b for b in elr if b != me)
            if me in isr and len(isr) > 1:
                isr = tuple(b for b in isr if b != me)
            elif isr == (me,) and elr:
                isr, elr = elr, ()
            node.torn = False
            if isr == (me,) or me not in (*isr, *elr):
                self._unclean = me
        epochs = tuple(epoch + (b == me) for b, epoch in zip(REPLICAS, state.broker_epochs, strict=True))
        node.alive = True
        node.known = None
        self._commit(
            isr=isr,
            elr=elr,
            partition_epoch=state.partition_epoch + 1,
            broker_epochs=epochs,
            fenced=tuple(b for b in state.fenced if b != me),
        )

    def _alter_partition(self, proposal: ProposeIsr, sender: int, leader_epoch: int, epochs: dict[int, int]) -> bool:
        state = self.committed
        if sender != state.leader or leader_epoch != state.leader_epoch:
            return False
        if self.broken.checks_partition_epoch and proposal.partition_epoch != state.partition_epoch:
            return False
        for member in proposal.isr:
            if member in state.fenced or epochs.get(member, -1) not in (-1, state.broker_epochs[member - 1]):
                return False
        self._commit(**self._with_isr(state, proposal.isr))
        if self._unclean in self.committed.isr and len(self.committed.isr) > 1:
            self._unclean = None
        return True

    # Brokers

    def _learn(self, node: Node, state: Committed) -> None:
        known = node.known
        if not node.alive or (known is not None and state.partition_epoch < known.partition_epoch):
            return
        node.known = state
        if known is None or state.leader_epoch > known.leader_epoch:
            self._take_role(node, state)
        elif node.leader is not None:
            self._do(node, node.leader.handle(IsrDecided(state.isr, state.partition_epoch, REPLICAS), self.now))
        if node.leader is not None:
            fenced = tuple(b for b in state.fenced if b != node.broker_id)
            self._do(node, node.leader.handle(ReplicasFenced(fenced), self.now))

    def _take_role(self, node: Node, state: Committed) -> None:
        mark = node.mark
        node.leader = node.follower = None
        node.fetching = 0
        if state.leader == node.broker_id:
            node.epochs.assign(state.leader_epoch, len(node.log))
            node.leader = self.broken.leader(
                broker_id=node.broker_id,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                isr=state.isr,
                replicas=REPLICAS,
                log_end_offset=len(node.log),
                high_watermark=min(mark, len(node.log)),
                min_insync_replicas=MIN_INSYNC_REPLICAS,
                replica_lag_time_max_ms=LAG_MS,
                started_ms=self.now,
            )
            return
        node.high_watermark = mark
        if state.leader == -1:
            return
        if self.broken.truncates_to_high_watermark:
            node.cut(mark)
        node.epochs.truncate_from_end(len(node.log))
        node.follower = PartitionFollower(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            epochs=node.epochs,
            log_start_offset=0,
            log_end_offset=len(node.log),
            high_watermark=min(mark, len(node.log)),
            backoff_max_ms=100,
        )

    def _flush(self, node: Node) -> None:
        node.flushed = len(node.log)

    def _tick(self, node: Node) -> None:
        if node.leader is not None:
            self._do(node, node.leader.handle(Tick(), self.now))

    def _do(self, node: Node, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, ProposeIsr) and node.leader is not None:
                self._propose(node, node.leader, effect)
        self._acknowledge(node)

    def _propose(self, node: Node, leader: PartitionLeader, proposal: ProposeIsr) -> None:
        life, answered = node.life, [False]
        epochs = {b: follower.broker_epoch for b, follower in leader.followers.items()}

        def decided(accepted: bool, state: Committed) -> None:
            if answered[0] or node.life != life or node.leader is not leader:
                return
            answered[0] = True
            if accepted:
                self._do(node, leader.handle(IsrDecided(state.isr, state.partition_epoch, REPLICAS), self.now))
            else:
                self._do(node, leader.handle(IsrRefused(), self.now))

        def arrives() -> None:
            accepted = self._alter_partition(proposal, node.broker_id, leader.leader_epoch, epochs)
            state = self.committed
            self.send(lambda: decided(accepted, state), TROUBLE_WITH_PROPOSALS)

        self.send(arrives, TROUBLE_WITH_PROPOSALS)
        self.at(1_000, lambda: decided(False, self.committed))

    def _clients(self) -> None:
        self.at(self.random.randint(5, 60), self._clients)
        node = self.nodes[self.random.choice(REPLICAS)]
        leader = node.leader
        if not node.alive or leader is None or not leader.enough_in_sync or self.appended >= RECORDS_MAX:
            return
        if self.now > FAULTS_MS + HEAL_MS - QUIET_MS:
            return
        self.appended += 1
        node.log.append((leader.leader_epoch, f"{self.appended}"))
        self._do(node, leader.handle(Appended(len(node.log)), self.now))

    def _acknowledge(self, node: Node) -> None:
        """acks=all: what the high watermark has passed in the epoch in which it was appended."""
        leader = node.leader
        if leader is None:
            return
        for offset in range(leader.epoch_start_offset, leader.high_watermark):
            if offset not in self.acknowledged:
                self.acknowledged[offset] = (node.log[offset][1], leader.leader_epoch)

    # Fetching

    def _fetch(self, node: Node) -> None:
        follower = node.follower
        if follower is None or node.fetching:
            return
        self._fetch_number += 1
        number = node.fetching = self._fetch_number
        position, life = follower.position, node.life
        broker_epoch = self.committed.broker_epochs[node.broker_id - 1]

        def over() -> None:
            if node.fetching == number:
                node.fetching = 0

        def arrives() -> None:
            leader_node = self.nodes[follower.leader_id]
            if leader_node.alive and self._reaches(node, leader_node):
                self._serve(leader_node, node, life, number, position, broker_epoch)

        self.send(arrives)
        self.at(FETCH_TIMEOUT_MS, over)

    def _serve(self, node: Node, asker: Node, life: int, number: int, position: Any, broker_epoch: int) -> None:
        leader = node.leader
        error, verdict, records = ErrorCode.NONE, MATCHES, []
        known = node.known
        if known is None or known.broker_epochs[asker.broker_id - 1] != broker_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        elif leader is None or leader.leader_epoch != position.leader_epoch:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            last_epoch = -1 if self.broken.truncates_to_high_watermark else position.last_fetched_epoch
            verdict = judge(
                node.epochs,
                last_epoch,
                position.offset,
                log_start_offset=0,
                local_log_start_offset=0,
                log_end_offset=len(node.log),
            )
            if verdict.matches:
                fetched = FollowerFetched(asker.broker_id, broker_epoch, position.offset, position.leader_epoch)
                self._do(node, leader.handle(fetched, self.now))
                records = node.log[position.offset : position.offset + self.random.randint(1, 30)]
            error = verdict.error
        answer = FetchAnswer(
            leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            error=error,
            high_watermark=node.mark,
            log_start_offset=0,
            diverging_epoch=verdict.diverging_epoch,
            diverging_end_offset=verdict.diverging_end_offset,
            has_records=bool(records),
        )
        if self._reaches(node, asker):
            self.send(lambda: self._answered(asker, life, number, answer, list(records)))

    def _answered(self, node: Node, life: int, number: int, answer: FetchAnswer, records: list[Any]) -> None:
        follower = node.follower
        if node.life != life or follower is None or node.fetching != number:
            return
        node.fetching = 0
        for effect in follower.answered(answer):
            match effect:
                case AppendFetched():
                    for epoch, value in records:
                        node.epochs.assign(epoch, len(node.log))
                        node.log.append((epoch, value))
                    follower.appended(len(node.log))
                case TruncateTo(offset) | StartAnew(offset):
                    self.count("truncations")
                    node.cut(offset)
                    follower.cut(0, len(node.log))
                case FetchLater(delay_ms, _):
                    self._pause(node, delay_ms)

    def _pause(self, node: Node, delay_ms: int) -> None:
        self._fetch_number += 1
        pause = node.fetching = self._fetch_number

        def over() -> None:
            if node.fetching == pause:
                node.fetching = 0

        self.at(delay_ms, over)

    # What must hold

    def check(self) -> None:
        state = self.committed
        nodes = [node for node in self.nodes.values() if not node.torn]
        for node in nodes:
            mark = node.mark
            self._must(mark <= len(node.log), f"6: the high watermark {mark} of {node.broker_id} is above its end")
            if node.leader is not None:
                for member in (*state.isr, *state.elr):
                    other = self.nodes[member]
                    if not other.torn and other is not node:
                        same = node.log[:mark] == other.log[:mark]
                        self._must(same, f"4: {member} lacks what {node.broker_id} has committed below {mark}")
                if node.leader.leader_epoch == state.leader_epoch:
                    inside = set(state.isr) <= {*node.leader.isr, *node.leader.proposed_isr} or node.known != state
                    self._must(inside, f"3: ISR {state.isr} outside of what the leader counts")
                    self._check_acknowledged(node)
        for one in nodes:
            for two in nodes:
                if one.broker_id < two.broker_id:
                    low = min(one.mark, two.mark)
                    same = one.log[:low] == two.log[:low]
                    self._must(same, f"5: {one.broker_id} and {two.broker_id} differ below {low}")

    def _check_acknowledged(self, node: Node) -> None:
        for offset, (value, _) in self.acknowledged.items():
            kept = offset < len(node.log) and node.log[offset][1] == value
            self._must(kept, f"7: {value} was acknowledged at {offset}, and the leader {node.broker_id} lacks it")

    def check_healed(self) -> None:
        state = self.committed
        self._must(sorted(state.isr) == list(REPLICAS), f"at the end the ISR is {state.isr}")
        logs = [node.log for node in self.nodes.values()]
        self._must(len(self.acknowledged) > 0, "nothing was acknowledged")
        newest = self.nodes[state.leader]
        self._must(newest.mark == len(newest.log), "at the end not all is committed")
        self._must(logs[0] == logs[1] == logs[2], "at the end the logs differ")

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violated(f"seed {self.seed} at {self.now} ms: {what}; {self.committed}")
