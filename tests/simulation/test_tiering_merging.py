"""Small objects become larger ones through thousands of bad days; each broken variant must be found out."""

from __future__ import annotations

import pytest

from appliance.tiering import manifest as manifest_module
from appliance.tiering.events import Effect
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.policy import TieringLeader
from tests.support.seeds import seeds
from tests.support.tiering_merging import MergingRules, MergingWorld
from tests.support.tiering_sim import is_found_out


@pytest.mark.parametrize("seed", seeds(60))
def test_merging_loses_nothing_on_any_bad_day(seed: int) -> None:
    world = MergingWorld(seed)
    world.run()
    assert world.merges


@pytest.mark.parametrize("seed", seeds(15))
def test_pages_change_nothing_for_merging(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "ITEMS_MAX", 12)
    monkeypatch.setattr(manifest_module, "PAGE_ITEMS", 4)
    MergingWorld(seed).run()


class TakesWhatBeginsLower(TieringLeader):
    """The item begins where its object does, though the list begins above."""

    def _uploaded(self, item: SegmentItem) -> list[Effect]:
        if item.start < self.tiered_end:
            item = item._replace(start=int(item.name[4:24]))
        return super()._uploaded(item)


BROKEN = {
    "the sources are deleted before the swap": MergingRules(deletes_before_the_swap=True),
    "the merged object lacks its last record": MergingRules(lacks_the_last=True),
    "what two sources hold is in the merged object twice": MergingRules(keeps_what_lies_twice=True),
    "the first source loses what the list has cut off": MergingRules(cuts_the_first=True),
    "the list names what retention had cut off": MergingRules(machine=TakesWhatBeginsLower),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_variant_of_merging_is_found_out(name: str) -> None:
    assert is_found_out(lambda seed: MergingWorld(seed, BROKEN[name]).run()), name
