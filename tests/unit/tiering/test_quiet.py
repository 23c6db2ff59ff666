"""A partition in which nothing can be due is passed over until its log, its configs or the time says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.tiering.directory import DirectoryStore
from appliance.tiering.manager import QUIET_PER_SLICE
from tests.support.fault_store import FaultStore
from tests.support.tiering_kit import Hosted, ManualBackground, ManualClock, manager_of

TICKS = 250


class Watched(Hosted):
    """Counts how often the manager has looked into the partition."""

    looks = 0

    @property
    def last_stable_offset(self) -> int:
        self.looks += 1
        return super().last_stable_offset


class Kit:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = FaultStore(DirectoryStore(path / "objects"))
        self.manager = manager_of(self.store, self.background, self.clock)

    def leads(self, partition: int = 0, **configs: object) -> Watched:
        hosted = Watched(self.path, self.clock, partition=partition, **configs)
        self.manager.partition_leading(hosted)
        return hosted

    def tick(self, times: int = 1, each_ms: int = 1_000) -> None:
        for _ in range(times):
            self.background.pass_time(each_ms)
            self.manager.tick()
            self.background.work()


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


@pytest.mark.parametrize("is_tiered", [False, True])
def test_an_idle_partition_is_looked_at_once_and_then_passed_over(kit: Kit, is_tiered: bool) -> None:
    hosted = kit.leads(remote_storage_enable=is_tiered)
    hosted.append([b"in the active segment"])
    kit.tick(TICKS)
    assert hosted.looks == 1


def test_so_is_one_whose_segments_are_all_in_the_tier(kit: Kit) -> None:
    hosted = kit.leads()
    hosted.append_segment()
    kit.tick(60)
    assert hosted.tiered_end == hosted.log.log_end_offset
    seen = hosted.looks
    kit.tick(TICKS - 60)
    assert hosted.looks == seen


def test_retention_is_looked_after_in_its_interval_all_the_same(kit: Kit) -> None:
    hosted = kit.leads()
    hosted.append([b"x"])
    kit.tick(10, each_ms=300_000)
    assert hosted.looks == 10


def test_a_rolled_segment_ends_the_rest_at_once(kit: Kit) -> None:
    hosted = kit.leads()
    kit.tick(TICKS)
    hosted.append_segment()
    kit.tick(2)
    assert hosted.tiered_end == hosted.log.log_end_offset


def test_a_changed_config_ends_the_rest_at_once(kit: Kit) -> None:
    hosted = kit.leads(tiering_max_lag_ms=3_600_000)
    hosted.append([b"x"])
    kit.tick(TICKS)
    hosted.configure(tiering_max_lag_ms=1_000)
    kit.tick(3)
    assert hosted.tiered_end == hosted.log.log_end_offset


def test_the_lag_of_a_record_that_came_during_the_rest_is_kept(kit: Kit) -> None:
    hosted = kit.leads(tiering_max_lag_ms=60_000)
    kit.tick(30)
    hosted.append([b"x"])
    kit.tick(62)
    assert hosted.tiered_end == hosted.log.log_end_offset


def test_a_partition_that_needs_a_look_finds_it_among_many_that_do_not(kit: Kit) -> None:
    """Quiet ones are passed over in slices; whoever is behind them is not forgotten."""
    few = [kit.leads(number) for number in range(60)]
    assert len(few) < QUIET_PER_SLICE
    kit.tick(3)
    few[-1].append_segment()
    kit.tick(3)
    assert few[-1].tiered_end == few[-1].log.log_end_offset
    assert {hosted.looks for hosted in few[:-1]} == {1}


@pytest.mark.parametrize("records", [0, 12])
def test_an_idle_hour_of_a_partition_costs_the_object_store_no_request(kit: Kit, records: int) -> None:
    hosted = kit.leads(retention_ms=-1)
    for _ in range(records // 4):
        hosted.append_segment(batches=1)
    kit.tick(180)
    before = kit.store.calls.total()
    kit.tick(3_600)
    assert kit.store.calls.total() == before
    assert hosted.tiered_end == records
