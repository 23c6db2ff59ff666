from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.errors import InvariantBroken
from appliance.tiering.manifest import (
    CorruptManifest,
    Garbage,
    HoleItem,
    Item,
    Manifest,
    PageItem,
    SegmentItem,
    cut_items,
    empty_manifest,
    encode_manifest,
    encode_page,
    fold_candidates,
    folded,
    next_version,
    page_item,
    parse_manifest,
    parse_page,
)
from appliance.tiering.names import ObjectName
from tests.support.tier_objects import TOPIC, TOPIC_ID

GOLDEN = Path(__file__).parents[2] / "golden" / "tiering"


def segment(start: int, end: int, epoch: int = 1, seq: int = 0) -> SegmentItem:
    name = str(ObjectName("seg", start, end, epoch, seq))
    return SegmentItem(start, end, name, 1_000, 100, 12_345, end * 10, end - start)


def manifest_of(*items: Item, version: int = 1, epoch: int = 1) -> Manifest:
    start, end = (items[0].start, items[-1].end) if items else (0, 0)
    return Manifest(TOPIC, TOPIC_ID, 0, "delete", version, epoch, start, end, items=items)


def sample() -> Manifest:
    page = PageItem(0, 50, str(ObjectName("page", 0, 50, 1, 9)), 4_000, 77, 499, 50, 99_000, 256)
    cut = SegmentItem(50, 60, str(ObjectName("seg", 40, 60, 2, 1)), 900, 90, 5, 1_700, 10)
    return Manifest(
        TOPIC,
        TOPIC_ID,
        0,
        "delete",
        12,
        3,
        0,
        80,
        "paused",
        (page, cut, HoleItem(60, 70, "compacted"), segment(70, 80, 3)),
        (Garbage(str(ObjectName("seg", 0, 10, 1, 0)), 1_234),),
    )


def test_a_manifest_reads_back_as_it_was() -> None:
    assert parse_manifest(encode_manifest(sample())) == sample()
    assert parse_manifest(encode_manifest(manifest_of())) == manifest_of()


def test_a_manifest_is_json_with_one_item_a_line() -> None:
    text = encode_manifest(sample()).decode()
    values = json.loads(text)
    assert (values["version"], values["end_offset"]) == (12, 80)
    assert sum(line.startswith('["s",') for line in text.splitlines()) == 2
    assert sum(line.startswith('["p",') for line in text.splitlines()) == 1


def test_the_golden_manifest_and_page_of_version_1_stay_readable_and_are_what_we_write() -> None:
    golden = (GOLDEN / "manifest-1.json").read_bytes()
    assert parse_manifest(golden) == sample()
    assert golden == encode_manifest(sample())
    items = [segment(0, 10), HoleItem(10, 20, "compacted"), segment(20, 30)]
    page = (GOLDEN / "page-1.json").read_bytes()
    assert page == encode_page(TOPIC_ID, 0, items)
    assert parse_page(page, page_item(str(ObjectName("page", 0, 30, 1, 1)), page, items)) == tuple(items)


@given(st.data())
def test_a_changed_byte_is_found(choice: st.DataObject) -> None:
    encoded = bytearray(encode_manifest(sample()))
    # Behind the checksum stand only a brace and line ends.
    position = choice.draw(st.integers(0, encoded.rindex(b'"crc32c":') - 1))
    encoded[position] ^= choice.draw(st.integers(1, 255))
    with pytest.raises(CorruptManifest):
        parse_manifest(bytes(encoded))


@given(st.binary(max_size=100))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptManifest):
        parse_manifest(data)


def test_a_list_with_a_gap_an_overlap_or_a_wrong_end_is_refused() -> None:
    for items, end in (
        ((segment(0, 10), segment(11, 20)), 20),
        ((segment(0, 10), segment(9, 20)), 20),
        ((segment(0, 10),), 11),
    ):
        manifest = Manifest(TOPIC, TOPIC_ID, 0, "delete", 1, 1, 0, end, items=items)
        with pytest.raises(CorruptManifest):
            parse_manifest(encode_manifest(manifest))
        with pytest.raises(InvariantBroken):
            manifest.check()


def test_an_offset_finds_its_item() -> None:
    manifest = sample()
    assert [manifest.item_at(offset) for offset in (0, 49, 50, 60, 79)] == [manifest.items[n] for n in (0, 0, 1, 2, 3)]
    assert manifest.item_at(80) is None and manifest.item_at(-1) is None


def test_each_write_has_a_new_version_and_never_goes_back() -> None:
    manifest = manifest_of(segment(0, 10), segment(10, 20), version=4)
    newer = next_version(manifest, 7, start_offset=10, items=manifest.items[1:])
    assert (newer.version, newer.leader_epoch) == (5, 7)
    with pytest.raises(InvariantBroken, match="go back"):
        next_version(newer, 7, start_offset=0, items=manifest.items)


def test_an_item_across_the_new_start_is_cut_and_keeps_its_object() -> None:
    cut = cut_items([segment(0, 10), segment(10, 20), segment(20, 30)], 14)
    assert [(item.start, item.end, item.records) for item in cut] == [(14, 20, 6), (20, 30, 10)]
    assert isinstance(cut[0], SegmentItem) and cut[0].name == segment(10, 20).name


def test_a_page_that_is_not_the_one_listed_is_refused() -> None:
    items = [segment(0, 10), segment(10, 20)]
    data = encode_page(TOPIC_ID, 0, items)
    listed = page_item("page/x", data, items)
    with pytest.raises(CorruptManifest):
        parse_page(data[:-1] + b" ", listed)


def test_a_page_that_was_cut_gives_only_what_is_still_listed() -> None:
    items = [segment(0, 10), segment(10, 20), segment(20, 30)]
    data = encode_page(TOPIC_ID, 0, items)
    listed = page_item("page/x", data, items)._replace(start=15)
    assert [item.start for item in parse_page(data, listed)] == [15, 20]


def add_segments(items: tuple[Item, ...], count: int) -> tuple[Item, ...]:
    """List `count` more segments, folding as the leader does before each."""
    for _ in range(count):
        candidates = fold_candidates(items)
        if candidates is not None:
            moved = items[slice(*candidates)]
            name = str(ObjectName("page", moved[0].start, moved[-1].end, 1, 1))
            page = page_item(name, b"", moved)
            new = folded(items, page, moved)
            assert new is not None
            items = new
        end = items[-1].end if items else 0
        items = (*items, segment(end, end + 10))
    return items


def test_a_long_history_stays_a_short_list_of_flat_pages() -> None:
    items = add_segments((), 513)
    assert len(items) == 513
    items = add_segments(items, 1)
    assert len(items) == 259
    page = items[0]
    assert isinstance(page, PageItem) and page.segments == 256
    items = add_segments(items, 100_000)
    assert len(items) <= 600
    assert [item.segments for item in items if isinstance(item, PageItem)][:2] == [65_536, 256]
    assert sum(item.segments if isinstance(item, PageItem) else 1 for item in items) == 100_514


def test_a_page_whose_items_changed_meanwhile_is_not_put_in() -> None:
    items = tuple(segment(10 * n, 10 * n + 10) for n in range(4))
    page = page_item(str(ObjectName("page", 0, 20, 1, 1)), b"", items[:2])
    assert folded(items, page, items[:2]) == (page, *items[2:])
    assert folded(cut_items(items, 5), page, items[:2]) is None
    assert folded(items[1:], page, items[:2]) is None


def test_nothing_tiered_yet_is_version_zero() -> None:
    manifest = empty_manifest(TOPIC, TOPIC_ID, 0, "delete", 30)
    assert (manifest.version, manifest.start_offset, manifest.end_offset) == (0, 30, 30)
    manifest.check()
