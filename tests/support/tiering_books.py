"""What must hold at every change in the simulated store (docs/tiering.md, invariants), and at rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.tiering.manifest import Item, Manifest, PageItem, SegmentItem, cut_items
from appliance.tiering.policy import State
from appliance.tiering.sweep import listed_names
from tests.support.tiering_sim import MANIFEST, Entry, SimBroker, SimLog, SimStore


class Books:
    """Everything that was ever true of the partition."""

    def __init__(self, store: SimStore, require: Callable[[bool, str], None]) -> None:
        self.store = store
        self.require = require
        self.committed: dict[int, Entry] = {}
        self.tier_truth: dict[int, Entry] = {}
        self.manifest: Manifest | None = None
        self.best_stable = 0

    def commit(self, log: SimLog, high_watermark: int) -> None:
        """Every replica in sync has the log up to here."""
        for offset in range(max(log.base, self.best_stable), high_watermark):
            self.committed[offset] = log.at(offset)
        self.best_stable = max(self.best_stable, high_watermark)

    def forget_lost(self, log: SimLog) -> None:
        """An unclean leader begins with this log: what was committed and is not in it is lost.

        That is allowed above the tiered end, and nowhere else.
        """
        lost = [o for o, entry in self.committed.items() if o >= log.base and (o >= log.end or log.at(o) != entry)]
        for offset in lost:
            del self.committed[offset]
        self.best_stable = min([self.best_stable, log.end, *lost])

    def page(self, item: PageItem) -> tuple[Item, ...]:
        return cut_items(self.store.objects[item.name][0], item.start)

    def put(self, name: str, body: Any, before: Any) -> None:
        """Something was written to the store."""
        if name != MANIFEST:
            return
        assert isinstance(body, Manifest)
        if isinstance(before, Manifest):
            self.require(body.version == before.version + 1, f"I1: version {body.version} after {before.version}")
            self.require(body.leader_epoch >= before.leader_epoch, "I1: the epoch went back")
            self.require(body.start_offset >= before.start_offset, "I3: the start went back")
            self.require(body.end_offset >= before.end_offset, "I3: the end went back")
        body.check()
        self.require(body.end_offset <= self.best_stable or not body.items, "I8: tiered above the last stable offset")
        self.manifest = body
        self.check_listed()
        known = set(before.items) if isinstance(before, Manifest) else set()
        for item in body.items:
            if isinstance(item, SegmentItem) and item not in known:
                self._check_records(item)

    def check_listed(self) -> None:
        """I2: each listed name exists and covers its item."""
        if self.manifest is None:
            return
        for name, item in listed_names(self.manifest.items, self._existing_page):
            self.require(name in self.store.objects, f"I2: {name} is listed and not there")
            if isinstance(item, SegmentItem):
                start, entries = self.store.objects[name][0]
                self.require(
                    start <= item.start and item.end <= start + len(entries), f"I2: {name} does not cover {item}"
                )

    def _existing_page(self, item: PageItem) -> tuple[Item, ...]:
        self.require(item.name in self.store.objects, f"I2: {item.name} is listed and not there")
        return self.page(item)

    def _check_records(self, item: SegmentItem) -> None:
        """I5: a tiered record never changes and equals what was committed."""
        start, entries = self.store.objects[item.name][0]
        for offset in range(item.start, item.end):
            entry = entries[offset - start]
            known = self.tier_truth.setdefault(offset, entry)
            self.require(known == entry, f"I5: offset {offset} is {entry}, was {known}")
            committed = self.committed.get(offset, entry)
            self.require(committed == entry, f"I5: offset {offset} is {entry}, committed was {committed}")

    def check_rest(self, leader: SimBroker) -> None:
        """At rest: no orphan, no hole, and every record once."""
        machine = leader.machine
        self.require(self.store.under_way == 0, "requests are under way in peace")
        self.require(
            machine is not None and machine.state is State.CLAIMED, f"the last leader is {machine and machine.state}"
        )
        manifest = self.manifest
        assert manifest is not None and machine is not None
        self.require(machine.reason == "", f"the last leader waits: {machine.reason}")
        closed_end = leader.log.active_base
        self.require(
            manifest.end_offset >= closed_end, f"tiered up to {manifest.end_offset}, closed up to {closed_end}"
        )
        listed = {name for name, _ in listed_names(manifest.items, self._existing_page)}
        garbage = {entry.name for entry in manifest.garbage}
        orphans = set(self.store.objects) - listed - garbage - {MANIFEST}
        self.require(not orphans, f"I7: orphans {sorted(orphans)}")
        self.require(leader.log.base <= manifest.end_offset, "hole between the tier and the local log")
        self.require(leader.log.log_start == manifest.start_offset, "log start and the tier's start differ")
        self.check_leader(leader.log, manifest)
        for offset, entry in self.committed.items():
            if manifest.start_offset <= offset < manifest.end_offset:
                self.require(self.tier_truth.get(offset) == entry, f"committed {entry} at {offset} is not in the tier")

    def check_leader(self, log: SimLog, manifest: Manifest) -> None:
        for offset in range(max(manifest.start_offset, log.base), min(log.end, manifest.end_offset)):
            if offset in self.tier_truth:
                self.require(log.at(offset) == self.tier_truth[offset], f"I5: leader differs at {offset}")
