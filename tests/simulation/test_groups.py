"""Consumers join, leave, pause and crash while their coordinator moves and its writes fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.coordinator.calls import Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.context import GroupEffect
from appliance.groups.machine import GroupMachine
from appliance.groups.stored import GenerationRecord, GroupRecord, OffsetRecord
from appliance.wire.messages.sync_group import SyncGroupRequest
from tests.support.group_world import Violation, World
from tests.support.seeds import seeds

BAD_MS = 60_000
GOOD_MS = 60_000


def world_after_bad_days(seed: int, **options: Any) -> World:
    world = World(seed, **options)
    world.run(BAD_MS)
    return world


@pytest.mark.parametrize("seed", seeds(100))
def test_a_generation_has_one_truth_and_commits_survive(seed: int) -> None:
    world = world_after_bad_days(seed)
    world.check_offsets()
    world.heal()
    world.run(GOOD_MS)
    world.check_offsets()
    world.check_settled()


def test_the_bad_days_are_bad_enough() -> None:
    """Coordinators move, writes fail and members are fenced, and still groups become stable; else nothing is shown."""
    worlds = [world_after_bad_days(seed) for seed in range(20)]
    notes = [note for world in worlds for note in world.notes]
    assert notes.count("moved") > 60
    assert notes.count("write failed") > 25
    assert notes.count("fenced") > 5
    assert sum(len(world.assigned) for world in worlds) > 100
    assert sum(len(world.acknowledged) for world in worlds) > 100


class AnswersBeforeItIsWritten(GroupMachine):
    """Broken: an OffsetCommit is acknowledged while its record is still under way."""

    def handle(self, call: Call, now: Moment) -> list[GroupEffect]:
        effects = super().handle(call, now)
        if effects and isinstance(effects[-1], Write) and isinstance(effects[-1].records[0], OffsetRecord):
            write = effects[-1]
            return [*write.answers, replace(write, answers=())]
        return effects


class ForgetsThatAssignmentsMustBeStored(GroupMachine):
    """Broken: assignments are given out at once, and stored some time."""

    def handle(self, call: Call, now: Moment) -> list[GroupEffect]:
        effects = super().handle(call, now)
        if isinstance(call.request, SyncGroupRequest) and effects and isinstance(effects[-1], Write):
            for record in effects[-1].records:
                self.replay(record)
            return [*effects, *self.written(effects[-1], now)]
        return effects


class TakesAnyGeneration(GroupMachine):
    """Broken: a member may ask for its assignment under a generation that is over."""

    def handle(self, call: Call, now: Moment) -> list[GroupEffect]:
        request = call.request
        if not isinstance(request, SyncGroupRequest) or request.group_id not in self.groups:
            return super().handle(call, now)
        asked, request.generation_id = request.generation_id, self.groups[request.group_id].generation_id
        effects = super().handle(call, now)
        request.generation_id = asked
        return effects


class LosesItsStoredMembers(GroupMachine):
    """Broken: a record is replayed without its last member."""

    def replay(self, record: GroupRecord) -> None:
        if isinstance(record, GenerationRecord) and record.generation is not None:
            generation = record.generation._replace(members=record.generation.members[:-1])
            record = GenerationRecord(record.group_id, generation)
        super().replay(record)


@pytest.mark.parametrize(
    "machine_class",
    [AnswersBeforeItIsWritten, ForgetsThatAssignmentsMustBeStored, TakesAnyGeneration, LosesItsStoredMembers],
)
def test_the_world_notices_a_broken_machine(machine_class: type[GroupMachine]) -> None:
    with pytest.raises(Violation):
        for seed in range(40):
            world_after_bad_days(seed, machine_class=machine_class).check_offsets()
