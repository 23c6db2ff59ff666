"""The tiering protocol through thousands of bad days; each broken variant of it must be found out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.tiering import manifest as manifest_module
from appliance.tiering.events import Effect, ManifestRead, ReadManifest, UploadSegment, WriteUndecided
from appliance.tiering.manifest import Manifest
from appliance.tiering.policy import State, TieringLeader
from tests.support.seeds import seeds
from tests.support.tiering_sim import Rules, is_found_out
from tests.support.tiering_world import World


@pytest.mark.parametrize("seed", seeds(100))
def test_the_tier_is_whole_after_every_bad_day(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", seeds(30))
def test_pages_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "ITEMS_MAX", 6)
    monkeypatch.setattr(manifest_module, "PAGE_ITEMS", 3)
    World(seed).run()


class ReappliesBlindly(TieringLeader):
    """The loser of a swap writes again without looking at the epoch."""

    def _manifest_read(self, manifest: Manifest | None, etag: str | None, now_ms: int) -> list[Effect]:
        if manifest is not None and manifest.leader_epoch > self.leader_epoch:
            manifest = replace(manifest, leader_epoch=self.leader_epoch - 1)
            self._claimed = False
        return super()._manifest_read(manifest, etag, now_ms)


class TakesSilenceForNo(TieringLeader):
    """A time-out and then a read of the old manifest is taken for failure; what was uploaded is cleaned up."""

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        if isinstance(event, WriteUndecided):
            self.state = State.UNDECIDED
            return self._ask(ReadManifest())
        if isinstance(event, ManifestRead) and self._pending is not None and event.etag == self.etag:
            self._open, self._pending, self.state = None, None, State.CLAIMED if self._claimed else State.SEEDED
            self._claimed, self._sweep_at_ms = True, 0
            return []
        return super().handle(event, now_ms)


class DoesNotCut(TieringLeader):
    """An overlap with an earlier leader's segment is listed as it is."""

    def _ask(self, request: Any) -> list[Effect]:
        if isinstance(request, UploadSegment):
            request = replace(request, listed_from=request.name.start)
        return super()._ask(request)


BROKEN = {
    "a time-out is taken for success": (Rules(timeout_is_success=True), 0),
    "a time-out and the old manifest are taken for failure": (Rules(machine=TakesSilenceForNo), 5),
    "the loser of a swap writes again without looking at the epoch": (Rules(machine=ReappliesBlindly), 5),
    "the sweep looks at no epoch": (Rules(sweep_everything=True), 131),
    "an overlap is not cut": (Rules(machine=DoesNotCut), 0),
    "uploads go above the last stable offset": (Rules(stable_is_end=True), 12),
    "local copies go before the swap": (Rules(told_when_uploaded=True), 0),
    "a leader epoch is given again after a restart": (Rules(epoch_reused=True), 174),
    "an unclean leader serves before it has read the manifest": (Rules(unclean_serves_at_once=True), 73),
}
"""What is broken, and a seed that shows it: the rare ones need hundreds of days."""


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_variant_is_found_out(name: str) -> None:
    rules, known_seed = BROKEN[name]
    assert is_found_out(lambda seed: World(seed, rules).run(), known_seed), name
