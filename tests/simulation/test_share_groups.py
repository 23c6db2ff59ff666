"""Members of a share group take records, say what became of them, leave or fall silent, while leaders move and answers
of the share coordinator get lost.
"""

from __future__ import annotations

from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.share_groups.share_partition import SharePartition, StateWrite
from appliance.share_groups.state_stored import ACQUIRED, AVAILABLE
from tests.support.seeds import seeds
from tests.support.share_world import Violation, World

STEPS = 600


def bad_day(seed: int, partition_class: type[SharePartition] = SharePartition) -> World:
    world = World(seed, partition_class)
    world.run(STEPS)
    world.heal()
    world.settle()
    world.check_settled()
    return world


@pytest.mark.parametrize("seed", seeds(12))
def test_no_record_is_lost_or_held_twice_and_delivery_counts_are_honest(seed: int) -> None:
    bad_day(seed)


def test_the_bad_days_are_bad_enough() -> None:
    notes = sum((bad_day(seed).notes for seed in range(8)), start=bad_day(8).notes)
    assert min(notes[each] for each in ("moved", "write failed", "again", "refused", "lock over", "left", "full")) > 20


class GivesTwice(SharePartition):
    """Broken: what somebody has is handed out again."""

    def _take(self, first: int, last: int, member_id: str, due_ms: int, limit: int) -> Any:
        for run in self._between(first, last):
            if run.state == ACQUIRED and run.operation is None:
                run.state = run.goal = AVAILABLE
        return super()._take(first, last, member_id, due_ms, limit)


class BelievesAnybody(SharePartition):
    """Broken: a member may say something of what another one has."""

    def acknowledge(self, member_id: str, said: Any, now_ms: int) -> Any:
        for run in self.runs:
            if run.state == ACQUIRED and run.operation is None:
                run.member_id = member_id
        return super().acknowledge(member_id, said, now_ms)


class BelievesFailedWrites(SharePartition):
    """Broken: what the share coordinator has not got counts all the same."""

    def written(self, error: ErrorCode) -> Any:
        return super().written(ErrorCode.NONE)


class StartsTooFar(SharePartition):
    """Broken: the start offset is written as if everything that was handed out were done with."""

    def take_write(self) -> StateWrite | None:
        write = super().take_write()
        return None if write is None else StateWrite(self.end_offset + 1, 0, ())


class CountsNothing(SharePartition):
    """Broken: what comes back has never been handed out."""

    def _free(self, is_meant: Any) -> bool:
        found = super()._free(is_meant)
        for run in self.runs:
            if run.state == AVAILABLE:
                run.count = 0
        return found


@pytest.mark.parametrize("broken", [GivesTwice, BelievesAnybody, BelievesFailedWrites, StartsTooFar, CountsNothing])
def test_a_broken_partition_is_found_out(broken: type[SharePartition]) -> None:
    with pytest.raises(Violation):
        for seed in range(20):
            bad_day(seed, broken)
