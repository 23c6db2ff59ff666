"""Members of the new protocol join, leave, pause and crash while their coordinator moves and its writes fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.consumer_groups import heartbeat as heartbeats
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.stored import AnyRecord, CurrentRecord
from appliance.coordinator.calls import Answer, Call
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import CoordinatorShard
from tests.support.consumer_group_world import ConsumerGroupWorld
from tests.support.coordinator_world import Violation
from tests.support.heartbeat_world import AnswersBeforeItIsWritten
from tests.support.seeds import seeds


def world_after_bad_days(seed: int, **options: Any) -> ConsumerGroupWorld:
    world = ConsumerGroupWorld(seed, **options)
    world.live_through_bad_days()
    return world


@pytest.mark.parametrize("seed", seeds(25))
def test_no_partition_has_two_owners_and_in_the_end_everybody_has_its_share(seed: int) -> None:
    world_after_bad_days(seed).settle()


def test_the_bad_days_are_bad_enough() -> None:
    notes = [note for seed in range(8) for note in world_after_bad_days(seed).notes]
    assert notes.count("moved") > 20
    assert notes.count("write failed") > 10
    assert notes.count("fenced") > 10
    assert notes.count("foreseen") > 100


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


class AnswersEarly(AnswersBeforeItIsWritten, AllGroupsMachine):
    pass


class ForgetsWhatMembersHave(AllGroupsMachine):
    """Broken: what a member has to give up is not replayed."""

    def replay(self, record: AnyRecord) -> None:
        if isinstance(record, CurrentRecord) and record.current is not None:
            record = replace(record, current=replace(record.current, pending_revocation={}))
        super().replay(record)


class AppendsWhatMayNotHold(CoordinatorShard[Any]):
    """Broken: what was decided upon a write is in the log even if that one fails."""

    def _has_to_wait(self, queued: Any) -> bool:
        return False


class KeepsWhatDoesNotHold(CoordinatorShard[Any]):
    """Broken: what was decided upon a write that fails stays."""

    def _batch_failed(self, batch: Any, error: Any, now: Moment) -> None:
        for queued in self._queue:
            queued.foresees = False
        super()._batch_failed(batch, error, now)


class TellsWhatIsForeseen(CoordinatorShard[Any]):
    """Broken: an answer that needs no record does not wait for those that it rests on."""

    def _take_foreseen(self, key: str, effects: list[Any], now: Moment) -> None:
        self._answers += [effect for effect in effects if isinstance(effect, Answer)]
        super()._take_foreseen(key, [effect for effect in effects if not isinstance(effect, Answer)], now)


@pytest.mark.parametrize("shard_class", [AppendsWhatMayNotHold, KeepsWhatDoesNotHold, TellsWhatIsForeseen])
def test_the_world_notices_a_broken_shard(shard_class: type[CoordinatorShard[Any]]) -> None:
    with pytest.raises(Violation):
        for seed in range(200):
            world_after_bad_days(seed, shard_class=shard_class)


@pytest.mark.parametrize("machine_class", [GivesWhatIsNotFree, AnswersEarly, ForgetsWhatMembersHave])
def test_the_world_notices_a_broken_machine(machine_class: type[AllGroupsMachine]) -> None:
    with pytest.raises(Violation):
        for seed in range(40):
            world_after_bad_days(seed, machine_class=machine_class)
