from __future__ import annotations

from pathlib import Path

import pytest

from appliance.records.batch import parse_header
from appliance.records.control import ABORT
from appliance.tiering.reader import TierReader
from appliance.tiering.verify import verify_tier
from tests.support.fault_store import away
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import records_of
from tests.support.tiering_kit import Hosted, manager_of
from tests.support.tiering_manager import Kit, end_transaction, transactional


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def test_a_leader_with_an_empty_disk_begins_at_the_tiered_end_and_ends_open_transactions(kit: Kit) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    hosted.append([b"plain"], producer_id=9, producer_epoch=2, base_sequence=0)
    transactional(hosted, 1, [b"a"])
    hosted.log.roll(0)
    end_transaction(hosted, 1, ABORT)
    kit.settle()
    assert kit.manifest.end_offset == 2
    fresh = Hosted(kit.path / "new disk", kit.clock, leader_epoch=5, recovering=True)
    other = manager_of(kit.store, kit.background, kit.clock)
    other.partition_leading(fresh)
    for _ in range(4):
        other.tick()
        kit.background.work()
    assert not fresh.recovering
    assert fresh.log.log_start_offset == 0
    assert (fresh.log.local_log_start_offset, fresh.log.log_end_offset) == (2, 3)
    (batch,) = fresh.log.batches(2)
    assert parse_header(batch).is_control
    assert fresh.last_stable_offset == 3
    assert fresh.log.producer_state.entries[9].epoch == 2
    assert fresh.log.leader_epochs.entries == [(1, 0), (5, 2)]
    assert kit.manifest.leader_epoch == 5


@pytest.mark.parametrize("gap", [1, 1_000, 1 << 30, (1 << 31) - 1])
def test_offsets_that_readers_may_have_seen_are_not_given_again_by_a_leader_that_lost_its_log(
    kit: Kit, gap: int
) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    transactional(hosted, 1, [b"a"])
    hosted.log.roll(0)
    end_transaction(hosted, 1, ABORT)
    hosted.append([b"seen, but never uploaded"] * 5)
    kit.settle()
    fresh = Hosted(kit.path / "new disk", kit.clock, leader_epoch=5, recovering=True)
    other = manager_of(kit.store, kit.background, kit.clock, restore_offset_gap=gap)
    other.partition_leading(fresh)
    for _ in range(4):
        other.tick()
        kit.background.work()
    end = 1 + 1 + gap
    assert (fresh.log.local_log_start_offset, fresh.log.log_end_offset) == (1, end), "the marker, then the gap"
    assert fresh.append([b"new"]) == end
    fresh.log.roll(0)
    for _ in range(8):
        other.tick()
        kit.background.work()
        kit.background.pass_time(1_000)
    assert kit.manifest.end_offset == end + 1
    reader = TierReader(kit.store)
    read = [piece.records for piece in reader.read_range(TOPIC_ID, 0, 0, end + 1)]
    values = {record.offset: record.value for record in records_of(read)}
    assert (values[0], values[end], len(values)) == (b"a", b"new", 3), "readers come through the gap"
    assert verify_tier(kit.store).is_whole
    reopened = Hosted(kit.path / "new disk", kit.clock, leader_epoch=6)
    assert reopened.log.log_end_offset == end + 1, "the log is read again after a restart"


def test_a_log_that_was_lost_before_anything_was_uploaded_begins_behind_the_gap(kit: Kit) -> None:
    fresh = Hosted(kit.path / "new disk", kit.clock, leader_epoch=5, recovering=True)
    fresh.log_was_lost = True
    other = manager_of(kit.store, kit.background, kit.clock, restore_offset_gap=100)
    other.partition_leading(fresh)
    for _ in range(4):
        other.tick()
        kit.background.work()
    assert (fresh.log.log_start_offset, fresh.log.log_end_offset) == (0, 100)


def test_a_recovering_leader_keeps_a_log_of_the_tiers_lineage(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    hosted.append([b"above the tier"])
    kit.settle()
    kit.manager.partition_stopped(TOPIC_ID, 0)
    hosted.leader_epoch, hosted.recovering = 2, True
    kit.manager.partition_leading(hosted)
    for _ in range(4):
        kit.settle(1)
    assert not hosted.recovering
    assert (hosted.log.local_log_start_offset, hosted.log.log_end_offset) == (0, 13)


def test_a_recovering_leader_drops_a_log_of_another_lineage(kit: Kit) -> None:
    hosted = kit.hosted(leader_epoch=3)
    hosted.append_segment()
    kit.settle()
    other = Hosted(kit.path / "other", kit.clock, leader_epoch=2)
    other.append_segment(batches=5)
    other.leader_epoch, other.recovering = 4, True
    manager = manager_of(kit.store, kit.background, kit.clock)
    manager.partition_leading(other)
    for _ in range(4):
        manager.tick()
        kit.background.work()
    assert not other.recovering
    assert (other.log.local_log_start_offset, other.log.log_end_offset) == (12, 12)


def test_a_recovering_leader_waits_for_the_store(kit: Kit) -> None:
    kit.store.rule = away()
    hosted = kit.hosted(recovering=True)
    for _ in range(5):
        kit.settle(60_000)
    assert hosted.recovering and "503" in kit.status.reason
    kit.store.rule = lambda operation, name: None
    for _ in range(4):
        kit.settle(60_000)
    assert not hosted.recovering
