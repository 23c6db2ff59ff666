"""The simulated partition with `cleanup.policy=compact`: replicas compact their logs by themselves, the tier follows.

A record's value tells its key, and whether it deletes the key. What compaction takes away stays as a place without a
value. At each change of the list, what a reader of the tier alone would know of every key must be what was tiered of
it last: no newest value may be missing, and no old one may be back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.tiering.events import LogFacts, SegmentUploaded, UploadFailed, UploadSegment
from appliance.tiering.manifest import Manifest, SegmentItem
from appliance.tiering.policy import TieringLeader
from appliance.tiering.sweep import listed_names
from tests.support.tiering_books import Books
from tests.support.tiering_facts import FakeSegment
from tests.support.tiering_sim import MANIFEST, Rules, SimBroker, SimLog
from tests.support.tiering_world import World

COLD_KEYS = 30
GONE = -1
"""In the place of a value that compaction took away."""
LAST_ROUND_MS = 12_000
"""No round begins later: at rest the tier must have followed."""
GROUP_MAX = 3
"""So many neighbours become one segment."""


def key_of(value: int) -> int:
    """Two keys that change all the time, and many that do so now and then."""
    return value % 3 if value % 3 else 10 + value // 3 % COLD_KEYS


def is_tombstone(value: int) -> bool:
    """Every other write of a cold key deletes it."""
    return value % 3 == 0 and value // 3 // COLD_KEYS % 2 == 1


@dataclass(frozen=True)
class CompactedRules(Rules):
    """What is broken on purpose."""

    beyond_the_tier: bool = False
    drops_tombstones_always: bool = False
    deletes_before_the_swap: bool = False


@dataclass
class CompactedLog(SimLog):
    """A log whose closed segments are rewritten now and then."""

    cleaned: int = -1
    is_settled: bool = False
    last_dropped: int = -1
    """The offset of the newest tombstone that is gone."""
    horizons: dict[int, int] = field(default_factory=dict)
    """When tombstones may go, by their value."""
    round: Round | None = None

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        super().truncate(offset)
        self._forget(offset)

    def restart(self, offset: int) -> None:
        super().restart(offset)
        self._forget(-1)
        self.last_dropped = -1

    def _forget(self, offset: int) -> None:
        self.round, self.is_settled, self.cleaned = None, False, min(self.cleaned, offset)

    def copy_of(self, other: CompactedLog) -> None:
        """Everything anew from another replica."""
        self.restart(other.base)
        self.entries = list(other.entries)
        self.last_dropped, self.horizons = other.last_dropped, dict(other.horizons)


@dataclass
class Round:
    """A round of compaction, a group of segments at a time."""

    newest: dict[int, int]
    """Offset by key, below `end`."""
    end: int
    next_base: int
    keep_tombstones: bool


def same(mine: tuple[int, int], his: tuple[int, int]) -> bool:
    """Whether two replicas may have these at one offset."""
    return mine[0] == his[0] and (mine[1] == his[1] or GONE in (mine[1], his[1]))


class CompactedBooks(Books):
    """Everything that was ever true of the partition, and what it says of each key."""

    def forget_lost(self, log: SimLog) -> None:
        lost = [
            o for o, entry in self.committed.items() if o >= log.base and (o >= log.end or not same(log.at(o), entry))
        ]
        for offset in lost:
            del self.committed[offset]
        self.best_stable = min([self.best_stable, log.end, *lost])

    def commit(self, log: SimLog, high_watermark: int) -> None:
        for offset in range(max(log.base, self.best_stable), high_watermark):
            if log.at(offset)[1] != GONE:
                self.committed[offset] = log.at(offset)
        self.best_stable = max(self.best_stable, high_watermark)

    def put(self, name: str, body: Any, before: Any) -> None:
        super().put(name, body, before)
        if name == MANIFEST and isinstance(body, Manifest):
            self.check_keys(body)

    def _check_records(self, item: SegmentItem) -> None:
        start, entries = self.store.objects[item.name][0]
        for offset in range(item.start, item.end):
            entry = entries[offset - start]
            if entry[1] == GONE:
                self.require(offset in self.tier_truth, f"offset {offset} was gone before it was ever in the tier")
                continue
            known = self.tier_truth.setdefault(offset, entry)
            self.require(known == entry, f"I5: offset {offset} is {entry}, was {known}")
            committed = self.committed.get(offset, entry)
            self.require(committed == entry, f"I5: offset {offset} is {entry}, committed was {committed}")

    def check_keys(self, manifest: Manifest) -> None:
        """What the tier alone says of each key is what was tiered of it last."""
        self._compare(manifest, self._in_tier(manifest, manifest.end_offset), "in the tier")

    def check_reader(self, log: SimLog) -> None:
        """Who reads through a leader finds the tier below its log, and its log from there on."""
        manifest = self.manifest
        if manifest is None or log.base > manifest.end_offset:
            return
        present = self._in_tier(manifest, log.base)
        for offset in range(max(log.base, manifest.start_offset), min(log.end, manifest.end_offset)):
            value = log.at(offset)[1]
            if value != GONE:
                present[key_of(value)] = value
        self._compare(manifest, present, "for the leader's readers")

    def _in_tier(self, manifest: Manifest, end: int) -> dict[int, int]:
        """The last value of each key in what is listed below `end`."""
        present: dict[int, int] = {}
        for _, item in listed_names(manifest.items, self._existing_page):
            if isinstance(item, SegmentItem):
                start, entries = self.store.objects[item.name][0]
                for offset in range(item.start, min(item.end, end)):
                    value = entries[offset - start][1]
                    if value != GONE:
                        present[key_of(value)] = value
        return present

    def _compare(self, manifest: Manifest, present: dict[int, int], where: str) -> None:
        truth: dict[int, int] = {}
        for offset in range(manifest.start_offset, manifest.end_offset):
            if offset in self.tier_truth:
                value = self.tier_truth[offset][1]
                truth[key_of(value)] = value
        for key, value in truth.items():
            found = present.get(key)
            allowed = (value, None) if is_tombstone(value) else (value,)
            self.require(found in allowed, f"key {key} is {found} {where}, and was last {value}")

    def check_leader(self, log: SimLog, manifest: Manifest) -> None:
        for offset in range(max(manifest.start_offset, log.base), min(log.end, manifest.end_offset)):
            if offset in self.tier_truth:
                self.require(same(log.at(offset), self.tier_truth[offset]), f"I5: leader differs at {offset}")


class CompactedWorld(World):
    """See the module's text."""

    cleanup_policy = "compact"
    new_log: Callable[[], SimLog] = CompactedLog
    new_books = CompactedBooks

    def __init__(self, seed: int, rules: CompactedRules | None = None) -> None:
        self._compacted_rules = rules or CompactedRules()
        super().__init__(seed, self._compacted_rules)
        self.retention_bytes = self.random.choice([-1, -1, 150])
        self.delete_ms = self.random.choice([0, 0, 100, 600])
        self.paces = [self.random.choice([0.01, 0.05, 0.2]) for _ in self.brokers]
        """How often each replica begins a round."""
        self.compacts_from = self.random.choice([0, 0, 1_500])
        """Until then it is a topic like others, whose local copies go when the tier has them."""
        self.rounds = self.replacements = 0
        self._bodies: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}

    def _mischief(self) -> None:
        super()._mischief()
        # Replicas differ in how far they are compacted, so what matters most is who leads.
        if self.random.random() < 0.02:
            self._new_leader()

    # ------------------------------------------------------------------------------------------------ compaction

    def _live(self, broker: SimBroker, appends: bool) -> None:
        super()._live(broker, appends)
        self._compact(broker)

    def _compact(self, broker: SimBroker) -> None:
        log = broker.log
        assert isinstance(log, CompactedLog)
        if log.round is not None:
            self._clean_group(log, log.round)
            if log.round is None and broker.number == self.leader and broker.serving:
                assert isinstance(self.books, CompactedBooks)
                self.books.check_reader(log)
        elif broker.serving and self.random.random() < self.paces[broker.number]:
            self._begin_round(broker, log)

    def _follow(self, broker: SimBroker, leader: SimBroker) -> None:
        super()._follow(broker, leader)
        log = broker.log
        assert isinstance(log, CompactedLog)
        if log.round is not None:
            self._clean_group(log, log.round)
        elif self.random.random() < self.paces[broker.number]:
            self._begin_round(broker, log)

    def _adopt(self, mine: SimLog, his: SimLog) -> None:
        """What either has lost to compaction is no difference."""
        assert isinstance(mine, CompactedLog) and isinstance(his, CompactedLog)
        if self._common_end(mine, his) <= his.last_dropped:
            # It was away for longer than delete.retention.ms: then it must not go on where it was.
            mine.copy_of(his)
        last = min(mine.end, his.end) - 1
        if last >= max(mine.base, his.base) and mine.at(last)[0] == his.at(last)[0]:
            # The same lineage up to there.
            mine.truncate(last + 1)
            mine.entries += his.entries[last + 1 - his.base :]
            return
        before, base = list(mine.entries), mine.base
        for offset in range(max(base, his.base), min(mine.end, his.end)):
            if same(mine.at(offset), his.at(offset)):
                mine.entries[offset - base] = his.at(offset)
        super()._adopt(mine, his)
        for offset in range(max(base, mine.base), min(base + len(before), mine.end)):
            if same(before[offset - base], mine.at(offset)):
                mine.entries[offset - mine.base] = before[offset - base]

    @staticmethod
    def _common_end(mine: CompactedLog, his: CompactedLog) -> int:
        """Up to where both have the same lineage."""
        last = min(mine.end, his.end) - 1
        first = max(mine.base, his.base)
        while last >= first and mine.at(last)[0] != his.at(last)[0]:
            last -= 1
        return last + 1

    def _begin_round(self, broker: SimBroker, log: CompactedLog) -> None:
        stable = min(broker.high_watermark, log.end)
        if not self._compacted_rules.beyond_the_tier:
            stable = min(stable, broker.tiered_end)
        if not self.compacts_from <= self.now <= LAST_ROUND_MS:
            return
        end = max((segment.next_offset for segment in log.closed if segment.next_offset <= stable), default=-1)
        if end <= max(log.cleaned, log.base):
            return
        newest = {key_of(log.at(offset)[1]): offset for offset in range(log.base, end) if log.at(offset)[1] != GONE}
        keep = log.base > log.log_start and not self._compacted_rules.drops_tombstones_always
        log.round = Round(newest, end, log.base, keep)
        log.is_settled = False

    def _clean_group(self, log: CompactedLog, round_: Round) -> None:
        group = [s for s in log.closed if round_.next_base <= s.base_offset < round_.end]
        if not group:
            log.round, log.cleaned, log.is_settled = None, round_.end, True
            self.rounds += 1
            return
        group = group[: self.random.randint(1, GROUP_MAX)]
        start, end = group[0].base_offset, group[-1].next_offset
        for offset in range(max(start, log.base), min(end, round_.end)):
            epoch, value = log.at(offset)
            if value != GONE and self._goes(log, round_, offset, value):
                log.entries[offset - log.base] = (epoch, GONE)
        place = log.closed.index(group[0])
        log.closed[place : place + len(group)] = [FakeSegment(start, end, end - start, group[-1].max_timestamp)]
        round_.next_base = end

    def _goes(self, log: CompactedLog, round_: Round, offset: int, value: int) -> bool:
        if round_.newest[key_of(value)] > offset:
            return True
        if not is_tombstone(value) or round_.keep_tombstones:
            return False
        if value not in log.horizons:
            log.horizons[value] = self.now + self.delete_ms
            return False
        if log.horizons[value] > self.now:
            return False
        log.last_dropped = max(log.last_dropped, offset)
        return True

    # ---------------------------------------------------------------------------------------------------- the tier

    def _facts(self, broker: SimBroker) -> LogFacts:
        log = broker.log
        assert isinstance(log, CompactedLog)
        compacted_to = log.cleaned if log.is_settled else -1
        return replace(super()._facts(broker), compacted_to=compacted_to, touched_to=log.cleaned)

    def _upload(self, broker: SimBroker, machine: TieringLeader, request: UploadSegment, send: Any) -> None:
        log, name = broker.log, request.name
        assert isinstance(log, CompactedLog)
        here = [s for s in log.closed if (s.base_offset, s.next_offset) == (name.start, name.end)]
        facts = self._facts(broker)
        if not here or (request.cleaned >= 0 and facts.compacted_to != request.cleaned):
            self._answer(broker, machine, UploadFailed("compacted meanwhile"))
            return
        body = (name.start, tuple(log.entries[name.start - log.base : name.end - log.base]))
        if self._bodies.setdefault(str(name), body) != body:
            self._answer(broker, machine, UploadFailed("another file has taken the name"))
            return
        listed = request.listed
        if listed is not None and self.store.objects.get(listed.name, (None,))[0] == body:
            self._answer(broker, machine, SegmentUploaded(listed._replace(cleaned=request.cleaned)))
            return
        if request.cleaned >= 0:
            self.replacements += 1
            if self._compacted_rules.deletes_before_the_swap:
                self._delete_sources(machine.manifest, request)
        item = SegmentItem(
            request.listed_from,
            name.end,
            str(name),
            name.end - name.start,
            0,
            hash(body),
            self.now,
            name.end - request.listed_from,
            request.cleaned,
        )
        send(lambda: self._create(str(name), body, SegmentUploaded(item)))

    def _delete_sources(self, manifest: Manifest, request: UploadSegment) -> None:
        for item in manifest.items:
            if isinstance(item, SegmentItem) and request.listed_from <= item.start < request.name.end:
                self.store.delete(item.name)

    def _delete_local(self, broker: SimBroker) -> None:
        """A compacted log stays whole; only what is gone for readers goes."""
        if self.now < self.compacts_from:
            super()._delete_local(broker)
            return
        log = broker.log
        if self.random.random() < 0.2 and log.closed:
            log.delete_below(log.log_start)
