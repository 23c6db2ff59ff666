"""A simulated partition with three replicas, an object store with bad days, and the real tiering machines.

Everything that the protocol fears happens here by chance, from one seed: elections while the old leader goes on,
pauses, kills, lost tails and disks, unclean elections, answers that are lost or late, requests that arrive after their
sender gave up, outages. Invariants (docs/tiering.md) are checked at every change in the store and at each local delete.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from appliance.base.errors import InvariantBroken
from appliance.base.randomness import SeededRandomness
from appliance.tiering.events import (
    DeleteObjects,
    Effect,
    Event,
    Halted,
    LogFacts,
    LogRecovered,
    ManifestRead,
    ObjectsDeleted,
    PageRead,
    PageUploaded,
    ReadFailed,
    ReadManifest,
    ReadPage,
    Recovered,
    RecoverLog,
    RollSegment,
    SegmentUploaded,
    StartAt,
    SweepFailed,
    SweepObjects,
    Swept,
    TieredTo,
    UploadConflict,
    UploadPage,
    UploadSegment,
    UploadUndecided,
    WriteConfirmed,
    WriteManifest,
    WriteRefused,
    failure_of,
)
from appliance.tiering.manifest import Manifest, PageItem, SegmentItem, page_item
from appliance.tiering.names import parse_name
from appliance.tiering.policy import TieringLeader
from appliance.tiering.sweep import is_listed
from tests.support.tier_objects import TOPIC, TOPIC_ID
from tests.support.tiering_books import Books
from tests.support.tiering_sim import LIMITS, MANIFEST, Broken, Rules, SimBroker, SimLog, SimStore

STEP_MS = 10
SETTLE_STEPS_MAX = 2_000
RESTORE_GAP = 7
"""Offsets that a leader leaves out whose log was lost."""


class World:
    """See the module's text. `run` lives through a bad day and the repair behind it."""

    cleanup_policy = "delete"
    limits = LIMITS
    append_chance = 0.5
    new_log: Callable[[], SimLog] = SimLog
    new_books = Books

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        self.random = random.Random(seed)
        self.rules = rules or Rules()
        self.now = 0
        self.store = SimStore(self)
        new_log = type(self).new_log
        self.brokers = [SimBroker(n, new_log(), clock_skew_ms=self.random.randint(-5_000, 5_000)) for n in range(3)]
        self.leader = 0
        self.epoch = 0
        self.in_sync = {0, 1, 2}
        self.books = self.new_books(self.store, self.require)
        self.seed = seed
        self.retention_bytes = self.random.choice([-1, 60, 150])
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._values = itertools.count()

    # ------------------------------------------------------------------------------------------------------ running

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now + delay_ms, next(self._numbers), action))

    def run(self, bad_ms: int = 4_000) -> None:
        """A bad day, then peace; raises `Broken` when an invariant does not hold."""
        try:
            self._elect(0, recovering=False)
            while self.now < bad_ms:
                self._step(mischief=True)
            self._peace()
        except InvariantBroken as error:
            raise Broken(f"seed {self.seed} at {self.now} ms: {error}") from error

    def _step(self, mischief: bool) -> None:
        end = self.now + STEP_MS
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        self.now = end
        if mischief:
            self._mischief()
        for broker in self.brokers:
            if broker.up and broker.paused_until <= self.now:
                inbox, broker.inbox = broker.inbox, []
                for action in inbox:
                    action()
                self._live(broker, mischief)
        self._replicate()

    def _peace(self) -> None:
        """No more trouble: everything under way ends, a last leader claims and sweeps, and the books must balance."""
        self.store.trouble = False
        for broker in self.brokers:
            broker.paused_until = 0
        for _ in range(2):
            for broker in self.brokers:
                if not broker.up:
                    self._restart(broker)
            if not self.brokers[self.leader].up or self.brokers[self.leader].machine is None:
                self._new_leader()
            for _ in range(350):
                self._step(mischief=False)
        clean = [n for n in self.in_sync if self.brokers[n].up]
        self.require(bool(clean), "nobody is in sync in peace")
        self._elect(clean[0], recovering=False)
        leader = self.brokers[clean[0]]
        for _ in range(60):
            self._append(leader, 3)
            leader.log.roll(self.now)
            for _ in range(4):
                self._step(mischief=False)
        for _ in range(SETTLE_STEPS_MAX):
            self._step(mischief=False)
            if leader.machine is not None and leader.machine.tiered_end >= leader.log.active_base:
                break
        for _ in range(SETTLE_STEPS_MAX // 100):
            version = self.books.manifest.version if self.books.manifest else 0
            for _ in range(100):
                self._step(mischief=False)
            if self.books.manifest and self.books.manifest.version == version and not self.store.under_way:
                break
        self.books.check_rest(leader)

    def _mischief(self) -> None:
        chance = self.random
        if chance.random() < 0.010:
            broker = chance.choice(self.brokers)
            broker.paused_until = self.now + chance.choice([50, 300, 1_500])
        if chance.random() < 0.006:
            self._kill(chance.choice(self.brokers))
        if chance.random() < 0.008:
            self._new_leader()
        if chance.random() < 0.004:
            self.store.outage_until = self.now + chance.randint(100, 800)
        leader = self.brokers[self.leader]
        if not leader.up and chance.random() < 0.2:
            self._new_leader()

    def _kill(self, broker: SimBroker) -> None:
        """The process dies; sometimes the host with it, so that the log's tail or all of it is lost."""
        broker.up, broker.machine, broker.serving, broker.inbox = False, None, False, []
        kind = self.random.random()
        if kind < 0.25:
            broker.unclean = True
            if broker.log.end > broker.log.base:
                broker.log.truncate(self.random.randint(broker.log.base, broker.log.end))
        elif kind < 0.32:
            broker.unclean, broker.log = True, type(self).new_log()
        if broker.unclean and self.in_sync != {broker.number}:
            self.in_sync.discard(broker.number)
        self.later(self.random.randint(50, 600), lambda: self._restart(broker))

    def _restart(self, broker: SimBroker) -> None:
        if broker.up:
            return
        broker.up = True
        broker.high_watermark = min(broker.high_watermark, broker.log.end)
        if broker.number == self.leader:
            if self.rules.epoch_reused:
                self.epoch -= 1
            self._elect(broker.number, recovering=broker.unclean)

    # -------------------------------------------------------------------------------------------------- the cluster

    def _new_leader(self) -> None:
        clean = [n for n in sorted(self.in_sync) if self.brokers[n].up and not self.brokers[n].unclean]
        if clean:
            self._elect(self.random.choice(clean), recovering=False)
            return
        alive = [b.number for b in self.brokers if b.up]
        if alive:
            self._elect(self.random.choice(alive), recovering=True)

    def _elect(self, number: int, *, recovering: bool) -> None:
        """A new leader epoch. The leader hears it now; the one before maybe much later."""
        old = self.brokers[self.leader]
        if old.number != number and old.machine is not None:
            machine = old.machine
            hears = self.random.choice([5, 100, 1_000]) if self.store.trouble else 5
            self.later(hears, lambda: self._told(old, lambda: self._depose(old, machine)))
        self.epoch += 1
        self.leader = number
        broker = self.brokers[number]
        # What was elected uncleanly and has not recovered stays that way at the next election.
        unfinished = old.number == number and old.machine is not None and not old.serving
        recovering = recovering or broker.unclean or unfinished
        if recovering:
            self.in_sync = {number}
            broker.unclean = True
        if self.rules.unclean_serves_at_once and recovering:
            recovering, broker.unclean = False, False
            self.books.forget_lost(broker.log)
        broker.machine = self.rules.machine(
            TOPIC,
            TOPIC_ID,
            0,
            self.cleanup_policy,
            self.epoch,
            self.limits,
            SeededRandomness(self.random.randrange(1 << 30)),
            recovering=recovering,
        )
        broker.serving = not recovering

    def _told(self, broker: SimBroker, action: Callable[[], None]) -> None:
        """A paused process hears of things when it goes on."""
        if broker.paused_until > self.now:
            broker.inbox.append(action)
        elif broker.up:
            action()

    def _depose(self, broker: SimBroker, machine: TieringLeader) -> None:
        if broker.machine is machine:
            broker.machine, broker.serving = None, False

    def _replicate(self) -> None:
        leader = self.brokers[self.leader]
        if not (leader.up and leader.serving and leader.paused_until <= self.now) or leader.machine is None:
            return
        synced = {leader.number}
        for broker in self.brokers:
            if broker is leader or not broker.up or broker.paused_until > self.now or broker.machine is not None:
                continue
            self._follow(broker, leader)
            synced.add(broker.number)
        self.in_sync = synced
        leader.high_watermark = max(leader.high_watermark, min(self.brokers[n].log.end for n in synced))
        self.books.commit(leader.log, leader.high_watermark)

    def _follow(self, broker: SimBroker, leader: SimBroker) -> None:
        mine, his = broker.log, leader.log
        self._adopt(mine, his)
        mine.log_start = max(mine.log_start, his.log_start)
        broker.tiered_end = max(broker.tiered_end, leader.tiered_end)
        broker.high_watermark = min(leader.high_watermark, mine.end)
        broker.unclean = False
        if self.random.random() < 0.15:
            mine.roll(self.now)
        self._delete_local(broker)

    def _adopt(self, mine: SimLog, his: SimLog) -> None:
        """A follower's log becomes as the leader's."""
        if mine.end < his.base or mine.base > his.end:
            mine.restart(his.base)
        common = max(mine.base, his.base)
        end = min(mine.end, his.end)
        if mine.entries[common - mine.base : end - mine.base] == his.entries[common - his.base : end - his.base]:
            common = max(common, end)
        while common < end and mine.at(common) == his.at(common):
            common += 1
        if mine.base < his.base and his.log_start < his.base and self._differs_below(mine, his.base):
            mine.restart(his.base)
            common = his.base
        if common < mine.end:
            mine.truncate(common)
        if mine.base > his.base and mine.end < his.base:
            mine.restart(his.base)
        mine.entries += his.entries[mine.end - his.base :]

    def _differs_below(self, log: SimLog, offset: int) -> bool:
        """Whether a follower kept a dead lineage below the leader's local start: the epoch history tells it."""
        return any(
            o in self.books.tier_truth and log.at(o)[0] != self.books.tier_truth[o][0]
            for o in range(log.base, min(offset, log.end))
        )

    def _append(self, broker: SimBroker, count: int) -> None:
        assert broker.machine is not None
        broker.log.entries += [(broker.machine.leader_epoch, next(self._values)) for _ in range(count)]

    # ------------------------------------------------------------------------------------------------------ leaders

    def _live(self, broker: SimBroker, appends: bool) -> None:
        machine = broker.machine
        if machine is None:
            return
        if broker.serving and appends and self.random.random() < self.append_chance:
            self._append(broker, self.random.randint(1, 4))
            if self.random.random() < 0.3:
                broker.log.roll(self.now)
        if machine.is_idle:
            self._act(broker, machine, machine.tick(self._facts(broker), self.now))
        self._delete_local(broker)

    def _facts(self, broker: SimBroker) -> LogFacts:
        log = broker.log
        stable = log.end if self.rules.stable_is_end else min(broker.high_watermark, log.end)
        return LogFacts(
            wall_ms=1_000_000 + self.now + broker.clock_skew_ms,
            log_start_offset=log.log_start,
            local_log_start_offset=max(log.base, log.log_start),
            log_end_offset=log.end,
            last_stable_offset=stable,
            closed=log.closed,
            active_base_offset=log.active_base,
            active_bytes=log.end - log.active_base,
            active_first_append_ms=None,
            retention_ms=-1,
            retention_bytes=self.retention_bytes,
            max_lag_ms=1_000,
        )

    def _act(self, broker: SimBroker, machine: TieringLeader, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case TieredTo(offset):
                    broker.tiered_end = max(broker.tiered_end, offset)
                case StartAt(offset):
                    broker.log.log_start = max(broker.log.log_start, offset)
                case RollSegment():
                    broker.log.roll(self.now)
                case Halted(reason, is_fault):
                    self.require(not is_fault or machine.leader_epoch < self.epoch, f"the leader stopped: {reason}")
                case Recovered():
                    # R4: the controller's yes is for this epoch only.
                    if machine.leader_epoch == self.epoch:
                        broker.serving, broker.unclean = True, False
                        broker.high_watermark = broker.log.end
                        self.books.forget_lost(broker.log)
                case _:
                    self._ask(broker, machine, effect)

    def _answer(self, broker: SimBroker, machine: TieringLeader, event: Event) -> None:
        def action() -> None:
            if broker.machine is machine:
                self._act(broker, machine, machine.handle(event, self.now))

        self._told(broker, action)

    def _ask(self, broker: SimBroker, machine: TieringLeader, request: Any) -> None:
        """Send a request; its answer becomes an event."""
        store = self.store

        def unanswered() -> None:
            if self.rules.timeout_is_success and isinstance(request, WriteManifest):
                manifest = request.manifest
                self._answer(broker, machine, WriteConfirmed(f"{manifest.version}-{manifest.leader_epoch}"))
                return
            self._answer(broker, machine, failure_of(request, "time-out"))

        def send(apply: Callable[[], Event]) -> None:
            store.request(apply, lambda event: self._answer(broker, machine, event), unanswered)

        match request:
            case ReadManifest():
                send(lambda: ManifestRead(*store.objects.get(MANIFEST, (None, None))))
            case WriteManifest(manifest, etag):
                send(lambda: self._write(manifest, etag))
            case UploadSegment():
                self._upload(broker, machine, request, send)
            case UploadPage(name, items):
                page = page_item(str(name), b"", items)
                send(lambda: self._create(str(name), items, PageUploaded(page)))
            case ReadPage(item):
                send(lambda: self._read_page(item))
            case DeleteObjects(names):
                self._delete_all(broker, machine, list(names), lambda: ObjectsDeleted(names), unanswered)
            case SweepObjects(manifest, epoch):

                def sweep(names: list[str] | None) -> None:
                    if names is None:
                        self._answer(broker, machine, SweepFailed("a page is gone"))
                        return
                    self._delete_all(broker, machine, names, lambda: Swept(len(names)), unanswered)

                store.request(lambda: self._dead(manifest, epoch), sweep, unanswered)
            case RecoverLog(manifest):
                store.request(lambda: None, lambda _: self._recover(broker, machine, manifest), unanswered)

    def _upload(
        self, broker: SimBroker, machine: TieringLeader, request: UploadSegment, send: Callable[[Any], None]
    ) -> None:
        log, name, listed_from = broker.log, request.name, request.listed_from
        if name.start < log.base or name.end > log.end:
            self._answer(broker, machine, UploadUndecided("its file is gone"))
            return
        body = (name.start, tuple(log.entries[name.start - log.base : name.end - log.base]))
        if self.rules.told_when_uploaded:
            broker.tiered_end = max(broker.tiered_end, name.end)
        size = name.end - name.start
        item = SegmentItem(listed_from, name.end, str(name), size, 0, hash(body), self.now, name.end - listed_from)
        send(lambda: self._create(str(name), body, SegmentUploaded(item)))

    def _write(self, manifest: Manifest, etag: str | None) -> Event:
        new = self.store.create(MANIFEST, manifest) if etag is None else self.store.swap(MANIFEST, manifest, etag)
        return WriteRefused() if new is None else WriteConfirmed(new)

    def _create(self, name: str, body: Any, done: Event) -> Event:
        if self.store.create(name, body) is None and self.store.objects[name][0] != body:
            return UploadConflict(name)
        return done

    def _read_page(self, item: PageItem) -> Event:
        return PageRead(item, self.books.page(item)) if item.name in self.store.objects else ReadFailed("gone")

    def _dead(self, manifest: Manifest, epoch: int) -> list[str] | None:
        """None: the list is so old that a page of it is not there any more."""
        dead = []
        for text in sorted(self.store.objects):
            name = parse_name(text)
            old_enough = name is not None and (self.rules.sweep_everything or name.epoch <= epoch)
            try:
                if name is not None and old_enough and not is_listed(manifest, name, self.books.page):
                    dead.append(text)
            except KeyError:
                return None
        return dead

    def _delete_all(
        self,
        broker: SimBroker,
        machine: TieringLeader,
        names: list[str],
        done: Callable[[], Event],
        unanswered: Callable[[], None],
    ) -> None:
        """One DELETE after the other, as long as the leadership stands."""
        if not names:
            self._answer(broker, machine, done())
            return
        first, rest = names[0], names[1:]

        def go_on(_: None) -> None:
            def action() -> None:
                if broker.machine is machine:
                    self._delete_all(broker, machine, rest, done, unanswered)

            self._told(broker, action)

        self.store.request(lambda: self.store.delete(first), go_on, unanswered)

    def _recover(self, broker: SimBroker, machine: TieringLeader, manifest: Manifest) -> None:
        def action() -> None:
            if broker.machine is not machine:
                return
            log, end = broker.log, manifest.end_offset
            last = end - 1
            lineage = self.books.tier_truth.get(last)
            keeps = log.base <= end <= log.end
            if keeps and lineage is not None and log.base < end:
                keeps = log.at(last)[0] == lineage[0]
            was_lost = log.end == 0
            if not keeps:
                log.restart(end)
            if was_lost and end:
                self._append(broker, RESTORE_GAP)
            log.log_start = max(log.log_start, manifest.start_offset)
            self._act(broker, machine, machine.handle(LogRecovered(), self.now))

        self._told(broker, action)

    def _delete_local(self, broker: SimBroker) -> None:
        """D1, with a local retention of chance; I4."""
        log = broker.log
        if self.random.random() < 0.2:
            log.delete_below(max(broker.tiered_end, log.log_start) if log.closed else 0)
        tier_end = max(self.books.manifest.end_offset if self.books.manifest else 0, log.log_start)
        self.require(log.base <= tier_end, f"I4: local start {log.base} of {broker.number} above {tier_end}")

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            raise Broken(f"seed {self.seed} at {self.now} ms: {message}")
