from __future__ import annotations

from typing import Any

from appliance.tiering.manifest import Garbage, HoleItem, Item, Manifest, PageItem, SegmentItem, encode_page, page_item
from appliance.tiering.names import ObjectName
from appliance.tiering.retention import Expiry, expire
from tests.support.tier_objects import TOPIC, TOPIC_ID
from tests.support.tiering_facts import FakeSegment, log_facts


def segment(start: int, end: int, max_timestamp: int = 0, size: int = 100) -> SegmentItem:
    return SegmentItem(start, end, str(ObjectName("seg", start, end, 1, 0)), size, 20, 1, max_timestamp, end - start)


def manifest_of(*items: Item, garbage: tuple[Garbage, ...] = ()) -> Manifest:
    return Manifest(TOPIC, TOPIC_ID, 0, "delete", 3, 1, items[0].start, items[-1].end, items=items, garbage=garbage)


def expired(manifest: Manifest, pages: dict[str, tuple[Item, ...]] | None = None, **facts: Any) -> Expiry | None:
    found = expire(manifest, log_facts([], **{"log_end_offset": 10_000, **facts}), pages or {})
    assert not isinstance(found, PageItem)
    return found


def page_of(*items: Item) -> PageItem:
    return page_item(
        str(ObjectName("page", items[0].start, items[-1].end, 1, 0)), encode_page(TOPIC_ID, 0, items), items
    )


def test_time_takes_the_oldest_items_up_to_the_first_young_one() -> None:
    manifest = manifest_of(segment(0, 10, 100), segment(10, 20, 300), segment(20, 30, 200))
    found = expired(manifest, wall_ms=1_000, retention_ms=750)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (10, 30)
    assert expired(manifest, wall_ms=1_000, retention_ms=900) is None


def test_size_counts_tier_and_local_bytes_above_the_tiered_end_once() -> None:
    manifest = manifest_of(segment(0, 10), segment(10, 20), segment(20, 30))
    local = [FakeSegment(20, 30, 100), FakeSegment(30, 40, 100)]
    facts = log_facts(local, active_records=50, retention_bytes=350, log_start_offset=0)
    found = expire(manifest, facts, {})
    assert isinstance(found, Expiry)
    assert found.start_offset == 10
    assert expire(manifest, log_facts(local, active_records=49, retention_bytes=350, log_start_offset=0), {}) is None


def test_segments_without_timestamps_never_go_by_time() -> None:
    assert expired(manifest_of(segment(0, 10, -1)), wall_ms=1_000, retention_ms=0) is None


def test_no_limit_takes_nothing() -> None:
    assert expired(manifest_of(segment(0, 10, 0))) is None


def test_a_raised_log_start_cuts_the_item_that_it_lies_in() -> None:
    found = expired(manifest_of(segment(0, 10), segment(10, 20)), log_start_offset=13)
    assert found is not None
    assert found.start_offset == 13
    assert [(item.start, item.end, item.records) for item in found.items] == [(13, 20, 7)]
    assert [entry.name for entry in found.garbage] == [segment(0, 10).name]


def test_a_range_without_records_goes_without_leaving_garbage() -> None:
    found = expired(manifest_of(HoleItem(0, 10, "compacted"), segment(10, 20)), log_start_offset=10)
    assert found is not None and found.garbage == () and found.start_offset == 10


def test_at_most_a_thousand_names_go_at_once_and_the_garbage_has_a_limit() -> None:
    items = [segment(n, n + 1) for n in range(1_500)]
    found = expired(manifest_of(*items), wall_ms=1_000, retention_ms=0)
    assert found is not None and (found.start_offset, len(found.garbage)) == (1_000, 1_000)
    full = tuple(Garbage(f"seg/{n}", 0) for n in range(9_990))
    found = expired(manifest_of(*items, garbage=full), wall_ms=1_000, retention_ms=0)
    assert found is not None and (found.start_offset, len(found.garbage)) == (10, 10_000)


def test_a_page_is_read_before_retention_enters_it_and_is_let_go_of_when_it_does() -> None:
    inside = (segment(0, 10, 100), segment(10, 20, 500))
    page = page_of(*inside)
    manifest = manifest_of(page, segment(20, 30, 900))
    facts = log_facts([], log_start_offset=0, log_end_offset=30, wall_ms=1_000, retention_ms=800)
    assert expire(manifest, facts, {}) == page
    found = expire(manifest, facts, {page.name: inside})
    assert isinstance(found, Expiry)
    assert [item.start for item in found.items] == [10, 20]
    assert [entry.name for entry in found.garbage] == [page.name, inside[0].name]


def test_a_page_whose_first_item_stays_is_not_entered() -> None:
    inside = (segment(0, 10, 500), segment(10, 20, 500))
    page = page_of(*inside)
    assert expired(manifest_of(page), {page.name: inside}, wall_ms=1_000, retention_ms=800) is None


def test_pages_of_pages_are_entered_one_after_the_other() -> None:
    inside = (segment(0, 10, 100), segment(10, 20, 500))
    inner = page_of(*inside)
    outer = page_of(inner, segment(20, 30, 600))
    manifest = manifest_of(outer)
    facts = log_facts([], log_start_offset=0, log_end_offset=30, wall_ms=1_000, retention_ms=800)
    pages: dict[str, tuple[Item, ...]] = {outer.name: (inner, segment(20, 30, 600))}
    assert expire(manifest, facts, pages) == inner
    found = expire(manifest, facts, {**pages, inner.name: inside})
    assert isinstance(found, Expiry)
    assert [item.start for item in found.items] == [10, 20]
    assert [entry.name for entry in found.garbage] == [outer.name, inner.name, inside[0].name]


def test_a_page_that_lies_wholly_below_the_log_start_goes_with_all_that_it_lists() -> None:
    inside = (segment(0, 10), segment(10, 20))
    page = page_of(*inside)
    found = expired(manifest_of(page, segment(20, 30)), {page.name: inside}, log_start_offset=25)
    assert found is not None
    assert (found.start_offset, len(found.garbage)) == (25, 3)


def test_turning_the_tier_off_with_delete_keeps_what_is_local() -> None:
    found = expired(
        manifest_of(segment(0, 10), segment(10, 20)), log_start_offset=0, local_log_start_offset=10, drop_tier=True
    )
    assert found is not None and [item.start for item in found.items] == [10]


def test_what_is_only_local_expires_when_nothing_older_is_left_in_the_tier() -> None:
    manifest = manifest_of(segment(0, 10, 100))
    young = expired(manifest, wall_ms=1_000, retention_ms=950, local_expired_end=40)
    assert young is None
    found = expired(manifest, wall_ms=1_000, retention_ms=850, local_expired_end=40)
    assert found is not None and (found.start_offset, found.end_offset, found.items) == (40, 40, ())
