from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from appliance.records.batch import split_batches
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT
from appliance.tiering.layout import AbortedTransaction
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.names import partition_folder
from tests.support.fault_store import away
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiering_kit import Hosted, manager_of
from tests.support.tiering_manager import Kit, end_transaction, transactional


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def test_closed_segments_go_up_in_order_and_are_listed(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(3):
        hosted.append_segment()
    hosted.append([b"in the active segment"])
    kit.settle()
    assert [(item.start, item.end) for item in kit.manifest.items] == [(0, 12), (12, 24), (24, 36)]
    assert hosted.tiered_end == 36
    assert kit.status.state == "claimed"
    assert (kit.status.waiting_segments, kit.status.reason) == (0, "")


def test_an_object_begins_with_the_file_as_it_was_on_the_disk(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    file = hosted.log.segments[0].path.read_bytes()
    kit.settle()
    data, tail = kit.tail(0)
    assert data[: tail.footer.data_length] == file
    assert (tail.footer.records, tail.footer.batches, tail.footer.epoch) == (12, 3, 1)
    assert tail.epochs == ((1, 0),)
    assert tail.producers == hosted.log.producer_snapshot_at(12)


def test_a_partition_without_closed_segments_never_asks_the_store(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append([b"x"])
    for _ in range(100):
        kit.settle(1_000)
    assert sum(kit.store.calls.values()) == 0
    assert hosted.tiered_end == 0


def test_once_all_is_tiered_an_idle_partition_asks_nothing_more(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    for _ in range(100):
        kit.settle(1_000)
    spent = sum(kit.store.calls.values())
    for _ in range(1_000):
        kit.settle(1_000)
    assert sum(kit.store.calls.values()) == spent


def test_the_oldest_record_waits_no_longer_than_the_lag_for_a_roll(kit: Kit) -> None:
    hosted = kit.hosted(tiering_max_lag_ms=60_000)
    hosted.append([b"early"])
    kit.settle(59_999)
    assert hosted.tiered_end == 0
    hosted.append([b"late"])
    kit.settle(1)
    kit.settle(1)
    assert hosted.tiered_end == 2
    assert hosted.log.active_segment.size_bytes == 0


def test_local_copies_go_only_after_the_manifest_lists_them(kit: Kit) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    hosted.append_segment()
    kit.store.rule = lambda operation, name: "refuse" if name.endswith("manifest.json") else None
    for _ in range(20):
        kit.settle(10_000)
        assert hosted.log.local_log_start_offset == 0
    kit.store.rule = lambda operation, name: None
    kit.settle(60_000)
    kit.settle(1)
    assert hosted.log.local_log_start_offset == 12
    assert hosted.log.log_start_offset == 0


def test_local_retention_follows_the_topics_when_it_is_minus_two(kit: Kit) -> None:
    hosted = kit.hosted(retention_ms=1_000_000)
    hosted.append_segment()
    kit.settle()
    kit.settle(999_000)
    assert hosted.log.local_log_start_offset == 0
    kit.settle(301_000)
    kit.settle(301_000)
    assert hosted.log.local_log_start_offset == 12


def test_an_outage_shows_its_reason_delays_and_loses_nothing(kit: Kit) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    hosted.append_segment()
    kit.store.rule = away()
    for _ in range(30):
        kit.settle(10_000)
    assert "503" in kit.status.reason and "tried" in kit.status.reason
    assert (kit.status.state, kit.status.waiting_segments) == ("unseeded", 1)
    assert kit.status.waiting_bytes == hosted.log.segments[0].size_bytes
    kit.store.rule = lambda operation, name: None
    kit.settle(60_000)
    assert (hosted.tiered_end, kit.status.reason) == (12, "")


def test_lost_answers_change_nothing_in_the_end(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(4):
        hosted.append_segment()
    count = iter(range(1_000_000))
    kit.store.rule = lambda operation, name: "lose" if next(count) % 2 else None
    for _ in range(100):
        kit.settle(10_000)
    kit.store.rule = lambda operation, name: None
    for _ in range(5):
        kit.settle(61_000)
    assert [(item.start, item.end) for item in kit.manifest.items] == [(0, 12), (12, 24), (24, 36), (36, 48)]
    names = [row.name for row in kit.store.inner.list("tier/")]
    assert len(names) == 5, "one manifest and four segments; nothing else is left"


def test_an_upload_that_stalls_is_undecided_at_its_deadline_and_tried_again(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    kit.background.pass_time(1)
    kit.manager.tick()
    work, done = kit.background.jobs.pop()
    done(work())
    stalled = kit.background.jobs.pop()
    assert kit.background.jobs == []
    kit.background.pass_time(31_000)
    assert "no answer within" in kit.status.reason
    assert kit.manager.uploads_under_way == 1
    kit.settle(1_000)
    assert hosted.tiered_end == 12
    work, done = stalled
    done(work())
    assert kit.manager.uploads_under_way == 0
    kit.settle(1_000)
    assert hosted.tiered_end == 12 and kit.status.state == "claimed"


def test_only_so_many_uploads_are_under_way_and_the_others_say_that_they_wait(tmp_path: Path) -> None:
    kit = Kit(tmp_path, tiering_upload_max_in_flight=2)
    for partition in range(5):
        kit.hosted(partition=partition).append_segment()
    kit.manager.tick()
    kit.work_but_uploads()
    assert kit.manager.uploads_under_way == 2
    assert [row.reason for row in kit.manager.status()].count("waits for its turn at the store") == 3
    kit.background.work()
    assert [row.tiered_end for row in kit.manager.status()] == [12] * 5


def test_uploads_keep_to_the_rate_of_bytes_and_say_that_they_wait_for_it(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    logs = [kit.hosted(partition=partition) for partition in range(5)]
    for hosted in logs:
        hosted.append_segment()
    kit.manager.limit_rate(logs[0].log.segments[0].size_bytes)
    kit.settle()
    done = [[row.tiered_end for row in kit.manager.status()].count(12)]
    assert [row.reason.endswith("per.second is used up") for row in kit.manager.status()].count(True) == 4
    for _ in range(3):
        kit.settle(1_000)
        done.append([row.tiered_end for row in kit.manager.status()].count(12))
    assert done == [1, 2, 3, 4]
    kit.manager.limit_rate(1 << 60)
    kit.background.work()
    assert [row.tiered_end for row in kit.manager.status()] == [12] * 5


def test_fewer_uploads_are_tried_at_once_while_the_store_does_not_answer(tmp_path: Path) -> None:
    kit = Kit(tmp_path, tiering_upload_max_in_flight=8)
    for partition in range(16):
        kit.hosted(partition=partition).append_segment()
    kit.store.rule = lambda operation, name: "refuse" if "/seg/" in name else None
    for _ in range(10):
        kit.settle(10_000)
    kit.store.calls.clear()
    kit.background.pass_time(60_000)
    kit.manager.tick()
    assert kit.manager.uploads_under_way == 1
    kit.store.rule = lambda operation, name: None
    for _ in range(5):
        kit.settle(60_000)
    assert [row.tiered_end for row in kit.manager.status()] == [12] * 16


def test_a_new_leader_goes_on_where_the_old_one_stopped(kit: Kit) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    hosted.append_segment()
    kit.settle()
    kit.settle(1)
    hosted.append_segment()
    kit.manager.partition_stopped(TOPIC_ID, 0)
    kit.manager = kit.new_manager()
    hosted.leader_epoch = 2
    kit.manager.partition_leading(hosted)
    kit.settle()
    manifest = kit.manifest
    assert [(item.start, item.end) for item in manifest.items] == [(0, 12), (12, 24)]
    assert manifest.leader_epoch == 2


def test_a_leader_that_was_replaced_uploads_litter_at_most_and_stops(kit: Kit) -> None:
    old = kit.hosted(leader_epoch=1)
    old.append_segment()
    kit.settle()
    new = Hosted(kit.path / "other", kit.clock, leader_epoch=2)
    new.append_segment(batches=2)
    new.append_segment(batches=2)
    other = manager_of(kit.store, kit.background, kit.clock)
    other.partition_leading(new)
    other.tick()
    kit.background.work()
    old.append_segment()
    kit.settle()
    assert kit.status.state == "deposed"
    assert [(item.start, item.end) for item in kit.manifest.items] == [(0, 12), (12, 16)]
    assert len(list(kit.store.inner.list("tier/"))) == 4
    kit.background.pass_time(31_000)
    other.tick()
    kit.background.work()
    assert len(list(kit.store.inner.list("tier/"))) == 3, "the litter is swept by the new leader"


def test_work_of_an_earlier_leadership_never_goes_on_under_a_new_epoch(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    kit.manager.tick()
    kit.work_but_uploads()
    assert kit.manager.uploads_under_way == 1
    hosted.leader_epoch = 2
    kit.background.work()
    with pytest.raises(Exception, match="does not exist"):
        assert kit.manifest
    kit.manager.partition_leading(hosted)
    kit.settle()
    assert kit.manifest.leader_epoch == 2


def test_time_retention_takes_the_tier_and_then_the_objects(kit: Kit) -> None:
    hosted = kit.hosted(retention_ms=10_000_000, local_retention_ms=0)
    hosted.append_segment()
    kit.background.pass_time(6_000_000)
    hosted.append_segment()
    kit.settle()
    kit.settle(4_400_000)
    assert (kit.manifest.start_offset, hosted.log.log_start_offset) == (12, 12)
    assert len(kit.manifest.garbage) == 1
    kit.settle(3_600_000)
    hosted.append_segment()
    kit.settle()
    assert kit.manifest.garbage == ()
    listed = {item.name for item in kit.manifest.items if isinstance(item, SegmentItem)}
    assert {row.name.split("/seg/")[1] for row in kit.store.inner.list(partition_folder(TOPIC_ID, 0) + "seg/")} == {
        name.removeprefix("seg/") for name in listed
    }


def test_records_that_are_too_old_when_they_come_are_removed_without_going_up(kit: Kit) -> None:
    hosted = kit.hosted(retention_ms=604_800_000)
    hosted.append([b"from 2013"], timestamp=1_370_000_000_000)
    kit.settle()
    assert hosted.log.log_start_offset == 0, "there for whoever reads at once"
    kit.settle(300_000)
    kit.settle(1)
    assert (hosted.log.log_start_offset, hosted.log.local_log_start_offset) == (1, 1)
    assert (kit.manifest.start_offset, kit.manifest.items) == (1, ())


def test_deleted_records_leave_the_tier_too(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    hosted.append_segment()
    kit.settle()
    hosted.raise_log_start(14)
    kit.settle(1)
    assert (kit.manifest.start_offset, [item.start for item in kit.manifest.items]) == (14, [14])
    assert hosted.log.segments[0].base_offset == 12


def test_a_topic_that_is_not_tiered_is_left_alone(kit: Kit) -> None:
    hosted = kit.hosted(remote_storage_enable=False, local_retention_ms=0)
    hosted.append_segment()
    for _ in range(10):
        kit.settle(1_000_000)
    assert hosted.log.local_log_start_offset == 0
    assert kit.store.calls.total() == 0
    assert (kit.status.waiting_segments, kit.status.reason) == (0, "")


def test_copying_can_be_turned_off_and_on_again(kit: Kit) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    hosted.append_segment()
    kit.settle()
    hosted.configure(local_retention_ms=0, remote_log_copy_disable=True)
    hosted.append_segment()
    for _ in range(3):
        kit.settle(1_000)
    assert (kit.manifest.copy, kit.manifest.end_offset) == ("paused", 12)
    assert hosted.log.local_log_start_offset == 12
    hosted.configure(local_retention_ms=0)
    for _ in range(3):
        kit.settle(1_000)
    assert (kit.manifest.copy, kit.manifest.end_offset) == ("on", 24)


def test_transactions_across_segments_are_described_in_each_object_that_they_touch(kit: Kit) -> None:
    hosted = kit.hosted()
    transactional(hosted, 1, [b"a"])
    transactional(hosted, 2, [b"b"])
    hosted.log.roll(0)
    transactional(hosted, 1, [b"c"])
    hosted.log.roll(0)
    kit.settle()
    assert kit.status.waiting_segments == 2 and "last stable offset 0" in kit.status.reason
    end_transaction(hosted, 1, ABORT)
    end_transaction(hosted, 2, COMMIT)
    kit.settle(1)
    tails = [kit.tail(n)[1] for n in range(2)]
    assert [tail.aborted for tail in tails] == [(AbortedTransaction(1, 0, 3),), (AbortedTransaction(1, 0, 3),)]
    assert [[(d.producer_id, d.first_offset, d.marker_offset, d.outcome) for d in tail.decided] for tail in tails] == [
        [(1, 0, 3, ABORT), (2, 1, 4, COMMIT)],
        [(1, 0, 3, ABORT), (2, 1, 4, COMMIT)],
    ]


def test_a_broken_local_segment_is_not_uploaded_and_says_why(kit: Kit) -> None:
    hosted = kit.hosted()
    hosted.append_segment()
    path = hosted.log.segments[0].path
    path.write_bytes(path.read_bytes()[:-10])
    kit.settle()
    assert "upload failed" in kit.status.reason and kit.status.tiered_end == 0
    assert not list(kit.store.inner.list("tier/"))


def test_a_fault_in_one_partition_leaves_the_others_alone(kit: Kit) -> None:
    bad, good = kit.hosted(partition=1), kit.hosted(partition=2)
    bad.append_segment()
    good.append_segment()
    bad.log.segments.clear()
    kit.settle()
    rows = {row.partition: row for row in kit.manager.status() if row.partition == 2}
    assert rows[2].tiered_end == 12


def test_many_partitions_are_driven_in_slices(kit: Kit) -> None:
    for partition in range(120):
        kit.hosted(partition=partition, topic_id=uuid.UUID(int=partition + 5))
    looked = 0
    drive = kit.manager._drive

    def counting(led: Any) -> None:
        nonlocal looked
        looked += 1
        drive(led)

    kit.manager._drive = counting  # type: ignore[method-assign]
    kit.manager.tick()
    assert looked == 50
    kit.background.pass_time(1)
    assert looked == 100
    kit.manager.tick()
    kit.background.pass_time(1)
    assert looked == 120
    kit.manager.close()
    assert list(split_batches(build_batch([(0, None, b"x", ())]))), "the test's own tools work"


def test_a_wanted_start_goes_into_the_manifest_before_the_log_begins_there(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    hosted = kit.hosted(retention_ms=-1)
    for _ in range(3):
        hosted.append_segment()
    for _ in range(8):
        kit.settle(1_000)
    end = hosted.log.segments[-1].base_offset
    assert kit.manifest.end_offset == end
    kit.store.rule = away()
    assert kit.manager.raise_start(TOPIC_ID, 0, 17)
    kit.settle(1_000)
    assert (hosted.log.log_start_offset, kit.manifest.start_offset) == (0, 0)
    kit.store.rule = lambda operation, name: None
    for _ in range(4):
        kit.settle(60_000)
    assert (hosted.log.log_start_offset, kit.manifest.start_offset) == (17, 17)
    item = kit.manifest.items[0]
    assert (item.start, item.end) == (17, 24)


def test_a_log_of_which_nothing_was_tiered_yet_begins_where_it_is_asked_to(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    hosted = kit.hosted(retention_ms=-1)
    hosted.append([b"a", b"b", b"c"])
    assert kit.manager.raise_start(TOPIC_ID, 0, 2)
    for _ in range(4):
        kit.settle(1_000)
    assert hosted.log.log_start_offset == 2
    hosted.append_segment()
    for _ in range(8):
        kit.settle(1_000)
    assert kit.manifest.start_offset == 2


def test_the_start_of_a_partition_that_is_not_tiered_is_its_log_alone(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    hosted = kit.hosted(remote_storage_enable=False)
    hosted.append([b"a"])
    assert not kit.manager.raise_start(TOPIC_ID, 0, 1)
    assert not kit.manager.raise_start(TOPIC_ID, 5, 1), "of another partition it knows nothing"
