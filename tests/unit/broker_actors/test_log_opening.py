"""How a broker opens its logs: some at a time, and never two of one folder."""

from __future__ import annotations

import uuid
from pathlib import Path

from appliance.base.errors import ErrorCode
from appliance.broker_actors.log_opening import OPENED_AT_A_TIME, OPENERS
from appliance.controller.records import PartitionChanged, TopicCreated, TopicDeleted
from tests.unit.broker_actors.test_partition_host import BROKER_ID, TOPIC_ID, World, append, led_by


def test_partitions_serve_while_others_are_still_being_opened(tmp_path: Path) -> None:
    world = World(tmp_path, later=True)
    world.create(OPENERS * OPENED_AT_A_TIME * 2)
    assert len(world.background.waiting) == OPENERS, "no more jobs than helper threads for it"
    work, done = world.background.waiting.pop(0)
    done(work())
    assert [hosted.refusal() for hosted in world.host] == [ErrorCode.NONE] * OPENED_AT_A_TIME
    assert world.host.is_opening
    world.background.do_work()
    assert not world.host.is_opening
    assert len(list(world.host)) == OPENERS * OPENED_AT_A_TIME * 2


def test_a_log_of_a_later_topic_of_the_same_name_is_opened_when_the_first_ones_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, later=True)
    world.create()
    later = uuid.UUID(int=99)
    world.commit(TopicDeleted(TOPIC_ID), TopicCreated("t", later), PartitionChanged(later, led_by(BROKER_ID, 0)))
    assert len(world.background.waiting) == 1, "two at once would share a folder"
    world.background.do_work()
    log = world.partition().log
    assert log.topic_id == later and world.logs.logs[log.topic_partition] is log
    assert append(world.partition()) == []
    world.host.end_of_tick()
    assert (log.directory / f"{0:020d}.log").stat().st_size > 0
