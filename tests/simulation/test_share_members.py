"""Members of a share group join, leave, pause and crash while its coordinator moves and the share coordinator fails."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.share_groups.context import PersistJob, ShareSessionOver
from appliance.share_groups.machine import ShareGroups
from tests.support.coordinator_world import Violation
from tests.support.heartbeat_world import AnswersBeforeItIsWritten
from tests.support.seeds import seeds
from tests.support.share_group_world import ShareGroupWorld


def world_after_bad_days(seed: int, **options: Any) -> ShareGroupWorld:
    world = ShareGroupWorld(seed, **options)
    world.live_through_bad_days()
    return world


@pytest.mark.parametrize("seed", seeds(10))
def test_epochs_never_fall_and_in_the_end_every_partition_has_its_readers(seed: int) -> None:
    world_after_bad_days(seed).settle()


def test_the_bad_days_are_bad_enough() -> None:
    notes = [note for seed in range(10) for note in world_after_bad_days(seed).notes]
    assert notes.count("moved") > 15
    assert notes.count("write failed") > 8
    assert notes.count("fenced") > 8


class AnswersEarly(AnswersBeforeItIsWritten, ShareGroups):
    pass


class SaysNothingTwice(ShareGroups):
    """Broken: what a member has is told once, though the answer may be lost."""

    def handle(self, call: Call, now: Moment) -> list[Any]:
        group = self.context.find(getattr(call.request, "group_id", ""))
        member = group.members.get(call.request.member_id) if group is not None else None
        says_the_same = member is not None and list(member.topic_names) == call.request.subscribed_topic_names
        if says_the_same and call.request.member_epoch > 0:
            call.request.subscribed_topic_names = None
        return super().handle(call, now)


class KeepsTheSilent(ShareGroups):
    """Broken: nobody's session is ever over."""

    def due(self, event: Any, now: Moment) -> list[Any]:
        return [] if isinstance(event, ShareSessionOver) else super().due(event, now)


class GivesWhatHasNoState(ShareGroups):
    """Broken: whatever was asked of the share coordinator counts as done."""

    def persisted(self, job: PersistJob, outcome: Any, now: Moment) -> list[Any]:
        done = next((each for each in outcome.values() if not each[0]), (ErrorCode.NONE, None))
        return super().persisted(job, dict.fromkeys(outcome, done), now)


@pytest.mark.parametrize("machine_class", [AnswersEarly, SaysNothingTwice, KeepsTheSilent, GivesWhatHasNoState])
def test_the_world_notices_a_broken_machine(machine_class: type[ShareGroups]) -> None:
    with pytest.raises(Violation):
        for seed in range(40):
            world_after_bad_days(seed, machine_class=machine_class).settle()
