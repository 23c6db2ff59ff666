"""Compacted topics in the tier through thousands of bad days; each broken variant must be found out.

What the tier alone says of every key is compared at each change of its list (`tests/support/tiering_compaction.py`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.tiering import manifest as manifest_module
from appliance.tiering.events import Effect, LogFacts
from appliance.tiering.manifest import HoleItem, SegmentItem
from appliance.tiering.policy import TieringLeader
from tests.support.seeds import seeds
from tests.support.tiering_compaction import CompactedRules, CompactedWorld
from tests.support.tiering_sim import is_found_out


@pytest.mark.parametrize("seed", seeds(25))
def test_a_compacted_tier_says_what_was_written_last_after_every_bad_day(seed: int) -> None:
    world = CompactedWorld(seed)
    world.run()
    assert world.rounds


@pytest.mark.parametrize("seed", seeds(8))
def test_pages_change_nothing_for_compacted_topics(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "ITEMS_MAX", 6)
    monkeypatch.setattr(manifest_module, "PAGE_ITEMS", 3)
    CompactedWorld(seed).run()


class NamesOneHalf(TieringLeader):
    """The swap names the first half of what was compacted, and lets all sources go."""

    def _uploaded(self, item: SegmentItem) -> list[Effect]:
        if item.start < self.tiered_end and item.cleaned >= 0 and item.end - item.start > 1:
            item = item._replace(end=(item.start + item.end) // 2)
        return super()._uploaded(item)


class NamesTheUpperHalf(TieringLeader):
    """The swap names only the second half of what was compacted, and leaves the first as it was."""

    def _uploaded(self, item: SegmentItem) -> list[Effect]:
        starts = [each.start for each in self.manifest.items if item.start < each.start < item.end]
        if item.cleaned >= 0 and starts:
            item = item._replace(start=starts[len(starts) // 2])
        return super()._uploaded(item)


class GoesBack(TieringLeader):
    """What another replica has compacted less far takes the place of what was compacted further."""

    def _replace(self, facts: LogFacts) -> list[Effect]:
        if facts.compacted_to >= 0 and self._last != facts.compacted_to:
            self._last = facts.compacted_to
            items = self.manifest.items
            unlabelled = tuple(each if isinstance(each, HoleItem) else each._replace(cleaned=-1) for each in items)
            self.manifest = replace(self.manifest, items=unlabelled)
        return super()._replace(facts)

    _last = -1


class LooksAtNoEnd(TieringLeader):
    """What was compacted beyond the tier goes up all the same."""

    def _upload(self, facts: LogFacts, now_ms: int) -> list[Effect]:
        return super()._upload(replace(facts, touched_to=-1), now_ms)


BROKEN = {
    "the swap names the first half and lets all go": CompactedRules(machine=NamesOneHalf),
    "the swap names only the second half": CompactedRules(machine=NamesTheUpperHalf),
    "sources are deleted before the swap": CompactedRules(deletes_before_the_swap=True),
    "an older compaction takes the place of a newer one": CompactedRules(machine=GoesBack),
    "logs are compacted beyond the tier": CompactedRules(machine=LooksAtNoEnd, beyond_the_tier=True),
    "tombstones go though only the tier has older records": CompactedRules(drops_tombstones_always=True),
}


SHOWN_BY = {"an older compaction takes the place of a newer one": 44}
"""A seed that shows it, where it is a rare one."""


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_variant_of_compaction_is_found_out(name: str) -> None:
    assert is_found_out(lambda seed: CompactedWorld(seed, BROKEN[name]).run(), SHOWN_BY.get(name, 0)), name
