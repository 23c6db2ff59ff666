"""Members of the new protocol join, leave, pause and crash while their coordinator moves and its writes fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.consumer_groups import heartbeat as heartbeats
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.stored import AnyRecord, CurrentRecord
from appliance.coordinator.calls import Call, Write
from appliance.coordinator.moment import Moment
from tests.support.consumer_group_world import Violation, World
from tests.support.seeds import seeds

BAD_MS = 60_000
GOOD_MS = 60_000


def world_after_bad_days(seed: int, **options: Any) -> World:
    world = World(seed, **options)
    world.run(BAD_MS)
    return world


@pytest.mark.parametrize("seed", seeds(25))
def test_no_partition_has_two_owners_and_in_the_end_everybody_has_its_share(seed: int) -> None:
    world = world_after_bad_days(seed)
    world.heal()
    world.run(GOOD_MS)
    world.check_settled()


def test_the_bad_days_are_bad_enough() -> None:
    notes = [note for seed in range(8) for note in world_after_bad_days(seed).notes]
    assert notes.count("moved") > 20
    assert notes.count("write failed") > 10
    assert notes.count("fenced") > 10


class GivesWhatIsNotFree(AllGroupsMachine):
    """Broken: a member gets all of its target at once."""

    def handle(self, call: Call, now: Moment) -> list[Any]:
        before, heartbeats.next_step = heartbeats.next_step, _without_waiting
        try:
            return super().handle(call, now)
        finally:
            heartbeats.next_step = before


def _without_waiting(current: Any, epoch: int, target: Any, is_owned: Any, *rest: Any) -> Any:
    return next_step(current, epoch, target, lambda topic, partition: False, *rest)


next_step = heartbeats.next_step


class AnswersBeforeItIsWritten(AllGroupsMachine):
    """Broken: an assignment is given out while its record is still under way."""

    def handle(self, call: Call, now: Moment) -> list[Any]:
        told: list[Any] = []
        for effect in super().handle(call, now):
            if isinstance(effect, Write):
                told += [*effect.answers, replace(effect, answers=())]
            else:
                told.append(effect)
        return told


class ForgetsWhatMembersHave(AllGroupsMachine):
    """Broken: what a member has to give up is not replayed."""

    def replay(self, record: AnyRecord) -> None:
        if isinstance(record, CurrentRecord) and record.current is not None:
            record = replace(record, current=replace(record.current, pending_revocation={}))
        super().replay(record)


@pytest.mark.parametrize("machine_class", [GivesWhatIsNotFree, AnswersBeforeItIsWritten, ForgetsWhatMembersHave])
def test_the_world_notices_a_broken_machine(machine_class: type[AllGroupsMachine]) -> None:
    with pytest.raises(Violation):
        for seed in range(40):
            world_after_bad_days(seed, machine_class=machine_class)
