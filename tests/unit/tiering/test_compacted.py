"""Compacted topics in the tier, with real logs and a real compaction: readers find there what is on the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.base.disk import SystemDisk
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT, build_marker
from appliance.records.reader import read_records
from appliance.tiering import manifest as manifest_module
from appliance.tiering.compacted import replaced
from appliance.tiering.events import UploadSegment
from appliance.tiering.log_source import segment_source
from appliance.tiering.manifest import PageItem, SegmentItem, encode_manifest, parse_manifest
from appliance.tiering.names import SEGMENT, ObjectName, manifest_name, partition_folder
from appliance.tiering.reader import TierReader
from appliance.tiering.verify import verify_tier
from tests.support.compaction import LIMITS, clean, roll_and_flush, survivors
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiering_kit import Hosted
from tests.support.tiering_manager import Kit

DISK = SystemDisk()
DAY_MS = 86_400_000
Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def compacted(kit: Kit, **more: Any) -> Hosted:
    return kit.hosted(**{"cleanup_policy": "compact", "delete_retention_ms": DAY_MS, **more})


def put(hosted: Hosted, *rows: tuple[bytes, bytes | None], **producer: Any) -> None:
    """A batch for each (key, value)."""
    for key, value in rows:
        hosted.append_batch(build_batch([(hosted.clock.now_ms(), key, value, ())], **producer))


def roll(hosted: Hosted) -> None:
    roll_and_flush(hosted.log, hosted.clock.now_ms())


def fill(hosted: Hosted, segments: int = 4, keys: int = 3) -> None:
    for n in range(segments):
        put(hosted, *((b"k%d" % key, b"%d" % n) for key in range(keys)))
        roll(hosted)


def compact(kit: Kit, hosted: Hosted) -> None:
    """One round, as far as the tier has the log, as the broker's cleaner does it."""
    clean(hosted.log, DISK, kit.clock.now_ms(), stable_offset=hosted.tiered_end)


def tiered_rows(kit: Kit) -> list[Row]:
    manifest = kit.manifest
    found: list[Row] = []
    for piece in TierReader(kit.store.inner).read_range(TOPIC_ID, 0, manifest.start_offset, manifest.end_offset):
        for batch in _batches(piece.records):
            if not batch[22] & 0x20:
                found += [(record.offset, record.key, record.value) for record in read_records(batch)]
    return found


def _batches(data: bytes) -> list[bytes]:
    batches, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        batches.append(data[position : position + size])
        position += size
    return batches


def local_rows(hosted: Hosted, end: int) -> list[Row]:
    return [(row.offset, row.key, row.value) for row in survivors(hosted.log) if row.offset < end]


def is_whole(kit: Kit) -> bool:
    report = verify_tier(kit.store.inner)
    return report.is_whole and not any(found.in_flight for found in report.partitions)


def test_compacted_segments_take_the_place_of_their_sources(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted)
    kit.settle()
    assert [(item.start, item.end) for item in kit.manifest.items] == [(0, 3), (3, 6), (6, 9), (9, 12)]
    before = {item.name for item in kit.manifest.items if isinstance(item, SegmentItem)}
    compact(kit, hosted)
    kit.settle()
    (item,) = kit.manifest.items
    assert isinstance(item, SegmentItem) and (item.start, item.end, item.cleaned) == (0, 12, 12)
    assert tiered_rows(kit) == local_rows(hosted, 12) == [(9, b"k0", b"3"), (10, b"k1", b"3"), (11, b"k2", b"3")]
    assert {entry.name for entry in kit.manifest.garbage} == before, "running readers still find them"
    assert hosted.tiered_end == 12 and is_whole(kit)
    assert (kit.status.waiting_segments, kit.status.reason) == (0, "")


def test_the_sources_go_when_running_readers_have_had_their_time(tmp_path: Path) -> None:
    kit = Kit(tmp_path, tiering_delete_delay_ms=60_000)
    hosted = compacted(kit)
    fill(hosted)
    kit.settle()
    compact(kit, hosted)
    kit.settle()
    old = kit.manifest.garbage[0].name
    name = partition_folder(TOPIC_ID, 0) + old
    assert kit.store.inner.get(name).data
    for _ in range(3):
        kit.settle(60_001)
    assert [row.name for row in kit.store.inner.list(name)] == []
    assert is_whole(kit)


def test_a_compacted_log_stays_whole_on_the_disk(kit: Kit) -> None:
    hosted = compacted(kit, local_retention_ms=0, local_retention_bytes=0)
    fill(hosted)
    for _ in range(3):
        kit.settle(DAY_MS)
    assert hosted.tiered_end == 12
    assert hosted.log.local_log_start_offset == 0


def test_with_delete_as_well_what_is_too_old_goes_from_the_tier_and_then_from_the_disk(kit: Kit) -> None:
    hosted = compacted(kit, cleanup_policy="compact,delete", retention_ms=DAY_MS)
    fill(hosted, 2)
    kit.settle()
    compact(kit, hosted)
    kit.settle()
    put(hosted, (b"k0", b"new"))
    roll(hosted)
    for _ in range(4):
        kit.settle(DAY_MS // 2)
    assert kit.manifest.start_offset == hosted.log.log_start_offset >= 6
    assert is_whole(kit)


def test_a_later_compaction_replaces_an_earlier_one(kit: Kit) -> None:
    hosted = compacted(kit)
    for turn in range(1, 5):
        fill(hosted, 3)
        kit.settle()
        compact(kit, hosted)
        kit.settle()
        end = 9 * turn
        assert [item.cleaned for item in kit.manifest.items if isinstance(item, SegmentItem)] == [end]
        assert tiered_rows(kit) == local_rows(hosted, end)
        assert len(tiered_rows(kit)) == 3
    assert is_whole(kit)


def test_tombstones_stay_until_their_horizon_and_their_keys_do_not_come_back(kit: Kit) -> None:
    hosted = compacted(kit)
    put(hosted, (b"a", b"1"), (b"b", b"1"))
    roll(hosted)
    put(hosted, (b"a", None))
    roll(hosted)
    kit.settle()
    compact(kit, hosted)
    kit.settle()
    assert tiered_rows(kit) == [(1, b"b", b"1"), (2, b"a", None)]
    kit.settle(DAY_MS + 1)
    put(hosted, (b"c", b"1"))
    roll(hosted)
    kit.settle()
    compact(kit, hosted)
    kit.settle()
    assert tiered_rows(kit) == local_rows(hosted, 4) == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert is_whole(kit)


def test_records_of_transactions_and_their_markers_are_as_on_the_disk(kit: Kit) -> None:
    hosted = compacted(kit)

    def transaction(producer_id: int, key: bytes, kind: int | None) -> None:
        base = len(survivors(hosted.log))
        row = [(hosted.clock.now_ms(), key, b"%d" % producer_id, ())]
        hosted.append_batch(
            build_batch(row, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )
        if kind is not None:
            marker = build_marker(kind, 3, producer_id=producer_id, producer_epoch=0, now_ms=hosted.clock.now_ms())
            hosted.append_batch(marker)
        assert len(survivors(hosted.log)) == base + 1

    transaction(1, b"a", COMMIT)
    transaction(2, b"a", ABORT)
    roll(hosted)
    # Begun in one segment and decided in another.
    transaction(3, b"b", None)
    roll(hosted)
    put(hosted, (b"c", b"1"))
    hosted.append_batch(build_marker(ABORT, 3, producer_id=3, producer_epoch=0, now_ms=hosted.clock.now_ms()))
    roll(hosted)
    kit.settle()
    assert hosted.tiered_end == 7
    for turn in range(4):
        compact(kit, hosted)
        for _ in range(2):
            kit.settle()
        end = hosted.tiered_end
        committed = [row for row in tiered_rows(kit) if row[1] in (b"a", b"b", b"c")]
        assert committed == [(0, b"a", b"1"), (5, b"c", b"1")], "what was aborted is gone"
        assert kit.status.reason == "" and is_whole(kit)
        kit.settle(DAY_MS + 1)
        put(hosted, (b"other%d" % turn, b"1"))
        roll(hosted)
        kit.settle()
        assert hosted.tiered_end > end


def test_a_leader_that_is_compacted_less_far_leaves_the_tier_alone_until_it_is_further(kit: Kit) -> None:
    first = compacted(kit)
    fill(first)
    kit.settle()
    # Another replica has the same records, and is slower.
    second = Hosted(kit.path / "second", kit.clock, leader_epoch=2, cleanup_policy="compact")
    second.clock = first.clock
    fill(second)
    second.tiered_to(6)
    clean(second.log, DISK, kit.clock.now_ms(), stable_offset=6)
    compact(kit, first)
    kit.settle()
    kit.manager.partition_stopped(TOPIC_ID, 0)
    kit.manager.partition_leading(second)
    put(second, (b"k0", b"newest"))
    roll(second)
    for _ in range(3):
        kit.settle(1_000)
    assert [(item.start, item.end) for item in kit.manifest.items] == [(0, 12), (12, 13)]
    assert tiered_rows(kit)[:3] == [(9, b"k0", b"3"), (10, b"k1", b"3"), (11, b"k2", b"3")]
    compact(kit, second)
    for _ in range(3):
        kit.settle(1_000)
    assert tiered_rows(kit) == [(10, b"k1", b"3"), (11, b"k2", b"3"), (12, b"k0", b"newest")]
    assert is_whole(kit)


def test_nothing_is_replaced_while_a_round_is_under_way(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted)
    kit.settle()
    compact(kit, hosted)
    before = hosted.log.compacted_to
    part = hosted.log.cleanable_part(hosted.tiered_end, kit.clock.now_ms())
    hosted.log.cleaning_job(part, LIMITS, kit.clock.now_ms())
    kit.settle(1_000)
    assert before == 12 and hosted.log.compacted_to == -1
    assert [(item.start, item.end) for item in kit.manifest.items] == [(0, 3), (3, 6), (6, 9), (9, 12)]


def test_a_file_that_compaction_replaces_while_it_goes_up_is_given_up(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted)
    kit.settle()
    compact(kit, hosted)
    put(hosted, *((b"k%d" % key, b"later") for key in range(3)))
    roll(hosted)
    replacement = f"/seg/{0:020}-{12:020}"
    kit.store.rule = lambda operation, name: "refuse" if operation == "create" and replacement in name else None
    kit.settle()
    assert hosted.tiered_end == 15 and "503" in kit.status.reason
    kit.store.rule = lambda operation, name: None
    compact(kit, hosted)
    for _ in range(6):
        kit.settle(60_000)
    assert tiered_rows(kit) == local_rows(hosted, hosted.tiered_end)
    assert len(tiered_rows(kit)) == 3 and is_whole(kit)


def test_what_compaction_left_as_it_was_is_listed_anew_and_not_sent_again(kit: Kit) -> None:
    hosted = compacted(kit, internal_segment_bytes=1_000)
    put(hosted, *((b"only %d" % n, b"x" * 200) for n in range(3)))
    roll(hosted)
    put(hosted, *((b"more %d" % n, b"x" * 200) for n in range(3)))
    roll(hosted)
    kit.settle()
    sent = kit.store.calls["create"]
    names = [item.name for item in kit.manifest.items if isinstance(item, SegmentItem)]
    compact(kit, hosted)
    kit.settle()
    items = [item for item in kit.manifest.items if isinstance(item, SegmentItem)]
    assert [item.cleaned for item in items] == [6, 6]
    assert [item.name for item in items] == names and kit.manifest.garbage == ()
    assert kit.store.calls["create"] == sent


def test_pages_are_unfolded_where_compaction_enters_them(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "ITEMS_MAX", 6)
    monkeypatch.setattr(manifest_module, "PAGE_ITEMS", 3)
    hosted = compacted(kit)
    fill(hosted, 12)
    kit.settle()
    assert any(isinstance(item, PageItem) for item in kit.manifest.items)
    compact(kit, hosted)
    kit.settle()
    assert tiered_rows(kit) == local_rows(hosted, 36)
    assert len(tiered_rows(kit)) == 3 and is_whole(kit)


def test_a_log_that_was_compacted_beyond_the_tier_is_not_copied_any_further_and_says_so(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted, 2)
    kit.settle()
    hosted.configure(cleanup_policy="compact", remote_storage_enable=False)
    fill(hosted, 2)
    clean(hosted.log, DISK, kit.clock.now_ms())
    hosted.configure(cleanup_policy="compact")
    kit.settle(1_000)
    assert kit.manifest.end_offset == 6
    assert "compacted to 12 while it was not tiered" in kit.status.reason


def test_what_deletes_records_that_only_the_tier_has_stays(kit: Kit) -> None:
    hosted = kit.hosted(local_retention_ms=0)
    put(hosted, (b"a", b"1"))
    roll(hosted)
    kit.settle()
    kit.settle(1_000)
    assert hosted.log.local_log_start_offset == 1
    hosted.configure(cleanup_policy="compact", delete_retention_ms=0)
    put(hosted, (b"a", None))
    roll(hosted)
    kit.settle()
    for _ in range(3):
        put(hosted, (b"b", b"1"))
        roll(hosted)
        kit.settle(1_000)
        compact(kit, hosted)
        kit.settle(1_000)
    rows = tiered_rows(kit)
    assert rows[:2] == [(0, b"a", b"1"), (1, b"a", None)]
    assert (1, b"a", None) in local_rows(hosted, 9)


def test_manifests_with_compacted_items_are_read_as_they_were_written(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted)
    kit.settle()
    compact(kit, hosted)
    fill(hosted, 1)
    kit.settle()
    manifest = kit.manifest
    assert [item.cleaned for item in manifest.items if isinstance(item, SegmentItem)] == [12, -1]
    assert parse_manifest(encode_manifest(manifest)) == manifest


def test_a_replacement_that_begins_or_ends_inside_of_items_cuts_them() -> None:
    def item(start: int, end: int, seq: int) -> SegmentItem:
        return SegmentItem(start, end, str(ObjectName(SEGMENT, start, end, 1, seq)), 100, 10, 1, 1, end - start)

    listed = (item(0, 10, 0), item(10, 20, 1), item(20, 30, 2))
    new = item(0, 15, 3)._replace(cleaned=30)
    items, removed = replaced(listed, new, {})
    assert [(one.start, one.end) for one in items] == [(0, 15), (15, 20), (20, 30)]
    assert removed == [listed[0].name]


def test_a_request_for_a_round_that_is_over_finds_another_log(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted)
    kit.settle()
    compact(kit, hosted)
    request = UploadSegment(ObjectName(SEGMENT, 0, 12, 1, 9), 0, 1_000, cleaned=11)
    with pytest.raises(ValueError, match="being compacted beyond 11"):
        segment_source(hosted, request, 12, 0)


def test_the_verifier_tells_of_items_that_are_compacted_further_than_older_ones(kit: Kit) -> None:
    hosted = compacted(kit)
    fill(hosted, 2)
    kit.settle()
    assert is_whole(kit)
    name = manifest_name(TOPIC_ID, 0)
    stored = kit.store.inner.get(name)
    first, second = (item for item in kit.manifest.items if isinstance(item, SegmentItem))
    wrong = replace(kit.manifest, items=(first, second._replace(cleaned=6)))
    kit.store.inner.swap(name, encode_manifest(wrong), stored.etag)
    (problem,) = verify_tier(kit.store.inner).problems
    assert (problem.kind, problem.name) == ("manifest", second.name)
    assert "compacted further" in problem.detail
