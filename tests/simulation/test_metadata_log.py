"""Controllers race for the metadata log over a store that loses, delays and repeats; nothing may be given out twice."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.controller.commits import Pointer
from appliance.controller.metadata_log import MetadataLog
from tests.support.metadata_log_world import Violation, World
from tests.support.seeds import seeds

FAULTS_MS = 40000
HEAL_MS = 12_000


def world_after_bad_days(seed: int, **options: Any) -> World:
    world = World(seed, controllers=2 + seed % 2, **options)
    world.run(FAULTS_MS)
    return world


@pytest.mark.parametrize("seed", seeds(100))
def test_a_commit_has_one_content_and_nothing_is_given_out_twice(seed: int) -> None:
    world = world_after_bad_days(seed)
    before = world.commits
    world.heal()
    world.run(FAULTS_MS + HEAL_MS)
    assert world.commits > before, f"seed {seed}: nothing was committed on good days"
    assert [controller.active for controller in world.controllers.values()].count(True) == 1


def test_the_bad_days_are_bad_enough() -> None:
    """Controllers are replaced, and trimmed numbers are created again and noticed; else nothing is shown."""
    notes = [note for seed in range(60) for note in world_after_bad_days(seed).notes]
    assert sum("replaced" in note for note in notes) > 20
    assert sum("lost the race" in note for note in notes) > 5
    assert sum("trimmed by another" in note for note in notes) > 0


class WithoutPointerReadAfterCreate(MetadataLog):
    """M3 broken: a number that was trimmed and created again counts as committed."""

    def _settle(self, commit: Any) -> Any:
        known, self._read_pointer = self._read_pointer, self._stale_pointer  # type: ignore[method-assign]
        try:
            return (yield from super()._settle(commit))
        finally:
            self._read_pointer = known  # type: ignore[method-assign]

    def _stale_pointer(self) -> Any:
        yield from ()
        return Pointer(-1, -1, 0, 0, bytes(16)), ""


class WithoutPointerReadByReaders(MetadataLog):
    """M6 broken: a reading round believes whatever lies under the numbers."""

    def read_round(self) -> Any:
        if self.pointer is None:
            self.position = yield from self._read_snapshot(self.position)
        self.position = yield from self._read_commits(self.position)


def caught(seeds: range, **options: Any) -> int:
    failed = 0
    for seed in seeds:
        try:
            world = world_after_bad_days(seed, **options)
            world.heal()
            world.run(FAULTS_MS + HEAL_MS)
        except Violation:
            failed += 1
    return failed


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"conditional": False}, id="unconditional create"),
        pytest.param({"log_class": WithoutPointerReadAfterCreate}, id="no pointer read after a create"),
        pytest.param({"log_class": WithoutPointerReadByReaders}, id="no pointer read by readers"),
    ],
)
def test_a_protocol_broken_on_purpose_is_caught(options: dict[str, Any]) -> None:
    assert caught(range(40), **options) > 0
