"""What goes wrong with one partition is that partition's: the others of the same image are followed all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.controller.records import PartitionChanged
from tests.unit.broker_actors.test_partition_host import BROKER_ID, TOPIC_ID, World, led_by


def test_a_partition_that_cannot_follow_goes_offline_and_the_next_one_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.create(partitions=2)
    broken, other = world.partition(0), world.partition(1)

    begin = HostedPartition.lead

    def lead(hosted: HostedPartition, *arguments: Any, **more: Any) -> Any:
        if hosted is broken:
            raise RuntimeError("on purpose")
        return begin(hosted, *arguments, **more)

    monkeypatch.setattr(HostedPartition, "lead", lead)
    world.commit(*[PartitionChanged(TOPIC_ID, led_by(BROKER_ID, 1, number)) for number in range(2)])
    assert broken.refusal() is ErrorCode.KAFKA_STORAGE_ERROR and "on purpose" in broken.offline
    assert (other.leader_epoch, other.refusal()) == (1, ErrorCode.NONE)
