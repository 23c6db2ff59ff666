"""The simulated partition with small objects that become larger ones, while everything else goes wrong as ever.

A merge takes two requests: its sources are read, and the new object is created. Between them the leadership may end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from appliance.tiering.events import LogFacts, MergeObjects, SegmentUploaded, UploadFailed, failure_of
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.merge import next_merge, object_of
from appliance.tiering.policy import TieringLeader
from tests.support.tiering_sim import LIMITS, Entry, Rules, SimBroker
from tests.support.tiering_world import World


@dataclass(frozen=True)
class MergingRules(Rules):
    """What is broken on purpose."""

    deletes_before_the_swap: bool = False
    lacks_the_last: bool = False
    keeps_what_lies_twice: bool = False
    cuts_the_first: bool = False


class MergingWorld(World):
    """See the module's text."""

    limits = replace(LIMITS, merge_min_age_ms=0, merge_min_objects=3)

    def __init__(self, seed: int, rules: MergingRules | None = None) -> None:
        self._merging_rules = rules or MergingRules()
        super().__init__(seed, self._merging_rules)
        self.segment_bytes = self.random.choice([60, 150, 400])
        self.retention_bytes = self.random.choice([-1, -1, 150, 300])
        self.append_chance = self.random.choice([0.1, 0.2, 0.3])
        """Merges come last, so there must be quiet moments."""
        self.merges = 0

    def run(self, bad_ms: int = 10_000) -> None:
        super().run(bad_ms)
        leader, manifest = self.brokers[self.leader], self.books.manifest
        assert manifest is not None
        left = next_merge(manifest, self._facts(leader), self.limits)
        self.require(not left, f"at rest these could be one object: {[item.name for item in left]}")

    def _facts(self, broker: SimBroker) -> LogFacts:
        return replace(super()._facts(broker), segment_bytes=self.segment_bytes)

    def _ask(self, broker: SimBroker, machine: TieringLeader, request: Any) -> None:
        if not isinstance(request, MergeObjects):
            super()._ask(broker, machine, request)
            return

        def unanswered() -> None:
            self._answer(broker, machine, failure_of(request, "time-out"))

        def gathered(body: tuple[int, tuple[Entry, ...]] | None) -> None:
            if body is None:
                self._answer(broker, machine, UploadFailed("an object is gone"))
                return

            def action() -> None:
                if broker.machine is machine:
                    self._send(broker, machine, request, body)

            self._told(broker, action)

        self.store.request(lambda: self._gather(request), gathered, unanswered)

    def _gather(self, request: MergeObjects) -> tuple[int, tuple[Entry, ...]] | None:
        entries: list[Entry] = []
        for number, item in enumerate(request.items):
            if item.name not in self.store.objects:
                return None
            start, held = self.store.objects[item.name][0]
            cut = item.start - start if number or self._merging_rules.cuts_the_first else 0
            entries += held[0 if self._merging_rules.keeps_what_lies_twice else cut :]
        if self._merging_rules.lacks_the_last:
            del entries[-1:]
        return request.name.start, tuple(entries)

    def _send(
        self, broker: SimBroker, machine: TieringLeader, request: MergeObjects, body: tuple[int, tuple[Entry, ...]]
    ) -> None:
        items, name = request.items, request.name
        assert name.start == object_of(items[0]).start
        if self._merging_rules.deletes_before_the_swap:
            for item in items:
                self.store.delete(item.name)
        merged = SegmentItem(
            items[0].start,
            name.end,
            str(name),
            len(body[1]),
            0,
            hash(body),
            max(item.max_timestamp for item in items),
            sum(item.records for item in items),
        )
        self.merges += 1

        def answered(event: Any) -> None:
            self._answer(broker, machine, event)

        def unanswered() -> None:
            self._answer(broker, machine, failure_of(request, "time-out"))

        self.store.request(lambda: self._create(str(name), body, SegmentUploaded(merged)), answered, unanswered)
