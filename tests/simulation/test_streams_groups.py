"""Members of groups of Kafka Streams join, leave, pause and crash while their coordinator moves and its writes fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.streams_groups import reconciling
from appliance.streams_groups.machine import EveryGroupMachine
from appliance.streams_groups.stored import NOTHING, CurrentRecord, EveryRecord
from tests.support.coordinator_world import Violation
from tests.support.heartbeat_world import AnswersBeforeItIsWritten
from tests.support.seeds import seeds
from tests.support.streams_group_world import StreamsGroupWorld


def world_after_bad_days(seed: int, **options: Any) -> StreamsGroupWorld:
    world = StreamsGroupWorld(seed, **options)
    world.live_through_bad_days()
    return world


@pytest.mark.parametrize("seed", seeds(8))
def test_no_task_runs_twice_and_in_the_end_all_are_run_evenly_with_their_copies(seed: int) -> None:
    world_after_bad_days(seed).settle()


def test_the_bad_days_are_bad_enough() -> None:
    notes = [note for seed in range(6) for note in world_after_bad_days(seed).notes]
    assert notes.count("moved") > 15
    assert notes.count("write failed") > 8
    assert notes.count("fenced") > 8


class GivesWhatIsNotFree(EveryGroupMachine):
    """Broken: a member gets all of its target at once."""

    def handle(self, call: Call, now: Moment) -> list[Any]:
        before, reconciling._free = reconciling._free, lambda tasks, may: tasks
        try:
            return super().handle(call, now)
        finally:
            reconciling._free = before


class AnswersEarly(AnswersBeforeItIsWritten, EveryGroupMachine):
    pass


class ForgetsWhatMembersHave(EveryGroupMachine):
    """Broken: what a member has to give up is not replayed."""

    def replay(self, record: EveryRecord) -> None:
        if isinstance(record, CurrentRecord) and record.current is not None:
            record = replace(record, current=replace(record.current, pending=NOTHING))
        super().replay(record)


@pytest.mark.parametrize("machine_class", [GivesWhatIsNotFree, AnswersEarly, ForgetsWhatMembersHave])
def test_the_world_notices_a_broken_machine(machine_class: type[EveryGroupMachine]) -> None:
    with pytest.raises(Violation):
        for seed in range(40):
            world_after_bad_days(seed, machine_class=machine_class)
