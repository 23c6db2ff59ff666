"""Small objects become one, with real logs and objects: what comes out is what one large segment would have been."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.records.control import ABORT, COMMIT
from appliance.tiering import merger
from appliance.tiering.events import MergeObjects, SegmentUploaded, UploadFailed, UploadUndecided
from appliance.tiering.layout import SegmentTail, parse_tail
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.merger import ObjectMerge
from appliance.tiering.names import SEGMENT, ObjectName, partition_folder
from appliance.tiering.reader import TierReader
from appliance.tiering.store_calls import StoreCalls
from appliance.tiering.verify import verify_tier
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import records_of
from tests.support.tiering_kit import Hosted
from tests.support.tiering_manager import Kit, end_transaction, transactional

CREATED_MS = 5
LOOK_MS = 1_000
"""How often retention, and with it merging, looks at the list."""


def kit_in(path: Path, min_age_ms: int = 0, **configs: Any) -> Kit:
    path.mkdir(exist_ok=True)
    more = {"tiering_merge_min_age_ms": min_age_ms, "log_retention_check_interval_ms": LOOK_MS, **configs}
    return Kit(path, **more)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return kit_in(tmp_path)


def settle(kit: Kit) -> None:
    """Long enough for uploads, and for a look at what may be merged."""
    for _ in range(4):
        kit.settle(LOOK_MS)


def bounds(kit: Kit) -> list[tuple[int, int]]:
    return [(item.start, item.end) for item in kit.manifest.items]


def problems(kit: Kit) -> list[str]:
    return [str(problem) for problem in verify_tier(kit.store).problems]


def values(kit: Kit, start: int = 0) -> list[bytes | None]:
    reader = TierReader(kit.store)
    pieces = [batches.records for batches in reader.read_range(TOPIC_ID, 0, start, kit.manifest.end_offset)]
    return [record.value for record in records_of(pieces)]


def random_log(hosted: Hosted, seed: int, rolls: bool) -> None:
    """Batches and transactions by chance; the same for the same seed, but for the rolls."""
    chance, rolling = random.Random(seed), random.Random(seed + 1)
    open_ids: set[int] = set()

    def step() -> None:
        producer_id = chance.randrange(5)
        if producer_id in open_ids and chance.random() < 0.3:
            end_transaction(hosted, producer_id, chance.choice([ABORT, COMMIT]))
            open_ids.discard(producer_id)
        elif producer_id < 3:
            transactional(hosted, producer_id, [b"t%d" % producer_id] * chance.randint(1, 4))
            open_ids.add(producer_id)
        else:
            times = hosted.clock.now_ms() - chance.randrange(100_000)
            hosted.append([b"v" * chance.randrange(50) for _ in range(chance.randint(1, 5))], timestamp=times)

    for _ in range(12):
        for _ in range(rolling.randint(1, 6)):
            step()
        if rolls:
            hosted.log.roll(hosted.clock.now_ms())
    if not rolls:
        hosted.log.roll(hosted.clock.now_ms())
    # What is open at its end is decided behind it.
    for producer_id in sorted(open_ids):
        end_transaction(hosted, producer_id, chance.choice([ABORT, COMMIT]))


@pytest.mark.parametrize("seed", range(12))
def test_a_merged_object_is_what_one_segment_would_have_been(seed: int, tmp_path: Path) -> None:
    tails: list[tuple[bytes, SegmentTail]] = []
    for rolls in (True, False):
        kit = kit_in(tmp_path / str(rolls))
        hosted = kit.hosted(index_interval_bytes=100)
        random_log(hosted, seed, rolls)
        settle(kit)
        assert bounds(kit) == [(0, hosted.log.closed_segments()[-1].next_offset)]
        assert problems(kit) == []
        data, tail = kit.tail(0)
        tails.append((data[: tail.footer.data_length], tail))
    (data, merged), (expected_data, expected) = tails
    assert data == expected_data
    footer = replace(merged.footer, seq=expected.footer.seq, created_ms=expected.footer.created_ms)
    assert replace(merged, footer=footer) == expected
    assert merged.footer.seq > 0


def test_sources_are_kept_for_running_readers_and_then_go(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    kit.settle()
    reader = TierReader(kit.store)
    before = kit.manifest
    old = reader.segments(before, 0, before.end_offset)
    expected = values(kit)
    settle(kit)
    assert bounds(kit) == [(0, 96)]
    assert values(kit) == expected
    assert sum(len(records_of([piece.records])) for segment in old for piece in reader.read(segment)) == 96
    kit.settle(3_600_000)
    settle(kit)
    folder = partition_folder(TOPIC_ID, 0) + "seg/"
    assert [info.name for info in kit.store.list(folder)] == [partition_folder(TOPIC_ID, 0) + _item(kit, 0).name]
    assert values(kit) == expected and problems(kit) == []


def test_a_merge_costs_one_request_for_each_source_one_for_the_object_and_one_for_the_list(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(10):
        hosted.append_segment()
    kit.settle()
    before = Counter(kit.store.calls)
    settle(kit)
    assert bounds(kit) == [(0, 120)]
    assert kit.store.calls - before == Counter(get=10, create=1, swap=1)


def test_a_range_that_is_being_read_goes_on_when_its_objects_are_gone(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    kit.settle()
    pieces = TierReader(kit.store).read_range(TOPIC_ID, 0, 0, 96)
    first = next(pieces)
    settle(kit)
    kit.settle(3_600_000)
    settle(kit)
    rest = list(pieces)
    offsets = [record.offset for piece in [first, *rest] for record in records_of(piece.records)]
    assert offsets == list(range(96))


def test_what_is_young_stays_as_it_is(tmp_path: Path) -> None:
    kit = kit_in(tmp_path / "young", min_age_ms=3_600_000)
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    settle(kit)
    assert len(bounds(kit)) == 8
    kit.settle(3_600_000)
    settle(kit)
    assert bounds(kit) == [(0, 96)]


def test_another_leaders_overlap_is_cut(kit: Kit, tmp_path: Path) -> None:
    """The second replica had rolled elsewhere: its first object holds again what the tier had."""
    first = kit.hosted()
    other = Hosted(tmp_path / "other", kit.clock, leader_epoch=2)
    for number in range(6):
        for hosted in (first, other):
            hosted.leader_epoch = 1
            hosted.append([b"value %d %d" % (number, n) for n in range(4)])
        if number in (1, 3):
            first.log.roll(kit.clock.now_ms())
    other.log.roll(kit.clock.now_ms())
    kit.settle()
    assert bounds(kit) == [(0, 8), (8, 16)]
    kit.manager.partition_stopped(TOPIC_ID, 0)
    other.leader_epoch = 2
    other.tiered_to(16)
    kit.manager.partition_leading(other)
    kit.settle()
    assert bounds(kit) == [(0, 8), (8, 16), (16, 24)]
    assert _item(kit, 2).name.startswith("seg/00000000000000000000-"), "its object begins at 0"
    for _ in range(5):
        other.append_segment(batches=1)
    settle(kit)
    assert bounds(kit) == [(0, 44)]
    assert len(values(kit)) == 44 and values(kit)[:24] == [b"value %d %d" % (n // 4, n % 4) for n in range(24)]
    assert problems(kit) == []
    _, tail = kit.tail(0)
    assert tail.footer.records == 44 and tail.epochs == ((1, 0), (2, 24))


def test_what_deleted_records_cut_off_stays_below_the_list(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(9):
        hosted.append_segment()
    kit.settle()
    assert kit.manager.raise_start(TOPIC_ID, 0, 6)
    settle(kit)
    assert bounds(kit) == [(6, 108)]
    assert _item(kit, 0).name.startswith("seg/00000000000000000000-")
    assert problems(kit) == []
    assert TierReader(kit.store).segments(kit.manifest, 6, 108)[0].start == 6


def test_a_damaged_source_is_never_merged_and_uploads_go_on(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    kit.settle()
    path = kit.path / "objects" / partition_folder(TOPIC_ID, 0) / _item(kit, 3).name
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    kit.settle(LOOK_MS)
    kit.settle(LOOK_MS // 4)
    assert "merging 8 objects" in kit.status.reason and "crc" in kit.status.reason
    hosted.append_segment()
    for _ in range(10):
        kit.settle(LOOK_MS)
    assert len(bounds(kit)) == 9
    assert kit.status.reason == ""


def test_a_store_that_answers_now_and_then_is_asked_again(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    kit.settle()
    chance = random.Random(1)
    kit.store.rule = lambda operation, name: chance.choice([None, None, None, "refuse", "lose"])
    for _ in range(200):
        kit.settle(LOOK_MS)
    kit.store.rule = lambda operation, name: None
    kit.settle(3_600_000)
    settle(kit)
    settle(kit)
    assert bounds(kit) == [(0, 96)]
    assert problems(kit) == []


def test_a_merge_that_is_given_up_leaves_no_room_taken_on_the_disk(kit: Kit) -> None:
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    kit.settle()
    kit.store.rule = lambda operation, name: "refuse" if operation == "create" else None
    held = 0
    while "given up" not in kit.status.reason:
        held = max(held, len(files_without_names(kit.path)))
        kit.settle(LOOK_MS)
    assert held == 1, "the same bytes are sent again and again"
    assert files_without_names(kit.path) == []
    assert len(bounds(kit)) == 8


def files_without_names(folder: Path) -> list[str]:
    """Files of this process that lie in a folder and will end when they are closed."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(str(folder)) and link.endswith("(deleted)")]


# ------------------------------------------------------------------------------------------------------- one attempt


def merge_of(kit: Kit, folder: Path) -> tuple[ObjectMerge, MergeObjects]:
    hosted = kit.hosted()
    for _ in range(8):
        hosted.append_segment()
    kit.settle()
    items = tuple(_item(kit, number) for number in range(8))
    request = MergeObjects(ObjectName(SEGMENT, 0, 96, 1, 77), items, 1_000)
    return ObjectMerge(StoreCalls(kit.store, TOPIC_ID, 0), request, folder, 4_096, CREATED_MS), request


def test_no_file_is_left_behind_and_the_same_bytes_are_sent_again(kit: Kit, tmp_path: Path) -> None:
    merge, _ = merge_of(kit, tmp_path)
    before = sorted(tmp_path.iterdir())
    kit.store.rule = lambda operation, name: "lose" if operation == "create" else None
    assert isinstance(merge.attempt(threading.Event()), UploadUndecided)
    assert sorted(tmp_path.iterdir()) == before
    kit.store.rule = lambda operation, name: None
    first = merge.attempt(threading.Event())
    again = merge.attempt(threading.Event())
    assert isinstance(first, SegmentUploaded) and first == again
    stored = kit.store.get(partition_folder(TOPIC_ID, 0) + first.item.name, start=-first.item.tail)
    assert parse_tail(stored.data, stored.size).footer.created_ms == CREATED_MS


def test_records_beyond_the_name_are_refused(kit: Kit, tmp_path: Path) -> None:
    _, request = merge_of(kit, tmp_path)
    shorter = replace(request, name=request.name._replace(end=95))
    failed = ObjectMerge(StoreCalls(kit.store, TOPIC_ID, 0), shorter, tmp_path, 4_096, 5).attempt(threading.Event())
    assert isinstance(failed, UploadFailed) and "above 95" in failed.reason


def test_a_merge_stops_when_it_is_cancelled(kit: Kit, tmp_path: Path) -> None:
    merge, _ = merge_of(kit, tmp_path)
    cancelled = threading.Event()
    cancelled.set()
    asked = kit.store.calls["get"]
    assert isinstance(merge.attempt(cancelled), UploadUndecided)
    assert kit.store.calls["get"] == asked, "nothing more is fetched"


def test_a_source_that_is_not_to_be_had_now_decides_nothing(kit: Kit, tmp_path: Path) -> None:
    merge, _ = merge_of(kit, tmp_path)
    kit.store.rule = lambda operation, name: "refuse" if operation == "get" else None
    assert isinstance(merge.attempt(threading.Event()), UploadUndecided)
    kit.store.rule = lambda operation, name: None
    assert isinstance(merge.attempt(threading.Event()), SegmentUploaded)


def test_a_merge_does_not_fill_the_disk(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge, _ = merge_of(kit, tmp_path)
    monkeypatch.setattr(merger, "FREE_DISK_FACTOR", 1 << 60)
    failed = merge.attempt(threading.Event())
    assert isinstance(failed, UploadFailed) and "bytes are free in" in failed.reason


Damage = Callable[[tuple[SegmentItem, ...]], tuple[SegmentItem, ...]]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda items: (*items[:2], items[2]._replace(data_crc32c=1), *items[3:]), "crc of the data differs"),
        (lambda items: (items[1], items[0], *items[2:]), "after"),
        (lambda items: (*items[:7], items[7]._replace(size=items[7].size + 1)), "were listed"),
        (lambda items: (*items[:3], items[3]._replace(start=items[3].start + 1), *items[4:]), "inside of a batch"),
    ],
    ids=["checksum", "order", "size", "cut in a batch"],
)
def test_what_is_not_as_the_list_says_is_refused(kit: Kit, tmp_path: Path, damage: Damage, reason: str) -> None:
    _, request = merge_of(kit, tmp_path)
    broken = replace(request, items=damage(request.items))
    failed = ObjectMerge(StoreCalls(kit.store, TOPIC_ID, 0), broken, tmp_path, 4_096, 5).attempt(threading.Event())
    assert isinstance(failed, UploadFailed) and reason in failed.reason


def _item(kit: Kit, number: int) -> SegmentItem:
    item = kit.manifest.items[number]
    assert isinstance(item, SegmentItem)
    return item
