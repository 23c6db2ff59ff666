"""Which small objects become one, and how the leader's machine goes about it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from appliance.base.randomness import SeededRandomness
from appliance.tiering import policy
from appliance.tiering.events import (
    LogFacts,
    ManifestRead,
    MergeObjects,
    ReadManifest,
    SegmentUploaded,
    SweepObjects,
    Swept,
    UploadFailed,
    UploadSegment,
    UploadUndecided,
    WriteConfirmed,
    WriteManifest,
    WriteRefused,
)
from appliance.tiering.limits import TieringLimits
from appliance.tiering.manifest import Garbage, HoleItem, Item, Manifest, PageItem, SegmentItem
from appliance.tiering.merge import RETRY_MS, SPAN_MAX, next_merge
from appliance.tiering.names import ObjectName
from appliance.tiering.policy import UPLOAD_ATTEMPTS_MAX, State, TieringLeader
from tests.support.tier_objects import TOPIC, TOPIC_ID
from tests.support.tiering_facts import closed, log_facts

HOUR_MS = 3_600_000
MIB = 1 << 20
LIMITS = TieringLimits(upload_timeout_ms=1_000, backoff_ms=100, backoff_max_ms=800, retention_interval_ms=1_000)
NOW_MS = 100 * HOUR_MS


def item_of(start: int, end: int, size: int = MIB, **changes: Any) -> SegmentItem:
    name = str(ObjectName("seg", changes.pop("base", start), end, 3, start))
    return SegmentItem(start, end, name, size, 20, 1, 0, end - start)._replace(**changes)


def items_of(count: int, size: int = MIB, first: int = 0, **changes: Any) -> tuple[SegmentItem, ...]:
    return tuple(item_of(a, b, size, **changes) for a, b in pairwise(range(first, first + 10 * count + 1, 10)))


def manifest_of(*items: Item, **changes: Any) -> Manifest:
    values: dict[str, Any] = {"items": items}
    start, end = (items[0].start, items[-1].end) if items else (0, 0)
    return Manifest(TOPIC, TOPIC_ID, 0, "delete", 7, 3, start, end, **{**values, **changes})


def facts_of(end: int = 10_000, **changes: Any) -> LogFacts:
    return log_facts(closed(0, end), **{"wall_ms": NOW_MS, "segment_bytes": 64 * MIB, **changes})


def run_of(*items: Item, manifest: Manifest | None = None, limits: TieringLimits = LIMITS, **facts: Any) -> list[int]:
    """The starts of the run that is merged first."""
    return [item.start for item in next_merge(manifest or manifest_of(*items), facts_of(**facts), limits)]


def test_eight_neighbours_become_one_and_seven_do_not() -> None:
    assert run_of(*items_of(7)) == []
    assert run_of(*items_of(8)) == [0, 10, 20, 30, 40, 50, 60, 70]


def test_a_run_is_as_long_as_a_segment_allows() -> None:
    assert run_of(*items_of(100)) == list(range(0, 640, 10))
    assert run_of(*items_of(100), segment_bytes=10 * MIB) == list(range(0, 100, 10))


def test_what_is_half_a_segment_large_stays_and_parts_its_neighbours() -> None:
    large = item_of(70, 80, 32 * MIB)
    assert run_of(*items_of(7), large, *items_of(7, first=80)) == []
    assert run_of(*items_of(7), large, *items_of(8, first=80)) == list(range(80, 160, 10))


def test_what_outweighs_its_neighbours_stays_until_there_are_enough_of_its_like() -> None:
    merged = item_of(0, 10, 8 * MIB)
    assert run_of(merged, *items_of(7, first=10)) == [], "else each byte would be written again with every merge"
    assert run_of(merged, *items_of(8, first=10)) == list(range(10, 90, 10))
    assert run_of(*items_of(8), item_of(80, 90, 8 * MIB)) == list(range(0, 80, 10))
    assert run_of(*items_of(8, 7 * MIB)) == list(range(0, 80, 10))


def test_each_byte_is_written_again_a_few_times_however_many_objects_come() -> None:
    items: list[SegmentItem] = []
    written = appended = 0
    for number in range(2_000):
        items.append(item_of(number, number + 1, MIB // 4))
        appended += MIB // 4
        while run := next_merge(manifest_of(*items), facts_of(), LIMITS):
            size = sum(item.size for item in run)
            place = items.index(run[0])
            items[place : place + len(run)] = [item_of(run[0].start, run[-1].end, size)]
            written += size
    assert written < 4 * appended
    assert sum(item.size for item in items) == appended
    assert len(items) < 60


def test_a_month_of_an_object_an_hour_is_read_from_a_dozen() -> None:
    items: list[SegmentItem] = []
    gets = puts = 0
    for hour in range(30 * 24):
        items.append(item_of(hour, hour + 1, 100_000, max_timestamp=hour * HOUR_MS))
        puts += 2
        facts = facts_of(wall_ms=hour * HOUR_MS, segment_bytes=1 << 30)
        while run := next_merge(manifest_of(*items), facts, LIMITS):
            place = items.index(run[0])
            size = sum(item.size for item in run)
            newest = run[-1].max_timestamp
            items[place : place + len(run)] = [item_of(run[0].start, run[-1].end, size, max_timestamp=newest)]
            gets, puts = gets + len(run), puts + 2
    assert (len(items), round(gets / 30), round(puts / 30)) == (13, 27, 54)


def test_the_young_are_left_alone() -> None:
    young = items_of(8, max_timestamp=NOW_MS - 6 * HOUR_MS + 1)
    assert run_of(*young) == []
    assert run_of(*items_of(8, max_timestamp=NOW_MS - 6 * HOUR_MS)) != []


def test_what_is_about_to_expire_is_left_alone() -> None:
    items = items_of(8, max_timestamp=NOW_MS - 20 * HOUR_MS)
    assert run_of(*items, retention_ms=26 * HOUR_MS) == []
    assert run_of(*items, retention_ms=27 * HOUR_MS) != []
    without_times = items_of(8, max_timestamp=-1)
    assert run_of(*without_times, retention_ms=26 * HOUR_MS) != [], "a segment without timestamps never expires"


def test_it_can_be_turned_off() -> None:
    assert run_of(*items_of(8), limits=replace(LIMITS, merge_min_age_ms=-1)) == []


def test_pages_holes_and_compacted_objects_are_left_alone() -> None:
    page = PageItem(70, 80, "page/…", 100, 1, 0, 10, 10 * MIB, 10)
    assert run_of(*items_of(7), page, *items_of(7, first=80)) == []
    assert run_of(*items_of(7), HoleItem(70, 80, "lost"), *items_of(7, first=80)) == []
    assert run_of(*items_of(8, cleaned=50)) == []
    assert run_of(*items_of(8), touched_to=0) == [], "compaction brings small segments together by itself"


def test_a_merge_holds_up_uploads_for_half_of_the_lag_at_most() -> None:
    # Down and up again at 4 MiB/s: two seconds for 4 MiB.
    limits = replace(LIMITS, upload_min_bytes_per_second=4 * MIB)
    assert run_of(*items_of(100), max_lag_ms=40_000, limits=limits) == list(range(0, 400, 10))
    assert run_of(*items_of(100), max_lag_ms=4_000, limits=limits) == []


def test_an_object_never_spans_more_offsets_than_its_indexes_can_count() -> None:
    gap = item_of(80, 80 + SPAN_MAX)
    assert run_of(*items_of(8), gap) == list(range(0, 80, 10))
    after = gap.end
    assert run_of(gap, *items_of(8, first=after)) == list(range(after, after + 80, 10))


def test_the_garbage_has_a_limit() -> None:
    full = manifest_of(*items_of(8), garbage=tuple(Garbage(f"seg/{n}", 0) for n in range(9_993)))
    assert run_of(manifest=full) == []
    assert run_of(manifest=replace(full, garbage=full.garbage[1:])) != []


# -------------------------------------------------------------------------------------------------------- the machine


def leader_on(manifest: Manifest, facts: LogFacts) -> TieringLeader:
    """A leader that has read this manifest, at the moment 0, with nothing to upload."""
    leader = TieringLeader(TOPIC, TOPIC_ID, 0, "delete", 5, LIMITS, SeededRandomness(1))
    assert leader.tick(facts, 0) == [ReadManifest()]
    leader.handle(ManifestRead(manifest, '"e"'), 0)
    return leader


def merging(manifest: Manifest, facts: LogFacts) -> tuple[TieringLeader, MergeObjects]:
    """A leader that has just asked for a merge, a second after its first look."""
    leader = leader_on(manifest, facts)
    assert leader.tick(facts, 999) == []
    (request,) = leader.tick(facts, 1_000)
    assert isinstance(request, MergeObjects)
    return leader, request


def merged(request: MergeObjects) -> SegmentUploaded:
    items = request.items
    return SegmentUploaded(item_of(items[0].start, items[-1].end, 8 * MIB)._replace(name=str(request.name)))


def test_a_merge_comes_after_a_look_at_retention_and_takes_the_place_of_its_sources() -> None:
    manifest, facts = manifest_of(*items_of(9)[:8], garbage=()), facts_of(80)
    leader, request = merging(manifest, facts)
    assert request == MergeObjects(ObjectName("seg", 0, 80, 5, 0), manifest.items, 1_000 + 16 * 250)  # type: ignore[arg-type]
    (write,) = leader.handle(merged(request), 1_500)
    assert isinstance(write, WriteManifest)
    assert [(item.start, item.end) for item in write.manifest.items] == [(0, 80)]
    assert [entry.name for entry in write.manifest.garbage] == [item.name for item in request.items]
    assert write.manifest.end_offset == 80
    leader.handle(WriteConfirmed('"f"'), 1_600)
    assert leader.state is State.CLAIMED
    assert leader.tick(facts, 1_700) == [], "one object is all there is"


def test_the_list_is_looked_through_once_for_each_look_at_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(manifest: Manifest, *_: object) -> tuple[SegmentItem, ...]:
        looks.append(manifest.version)
        return ()

    monkeypatch.setattr(policy, "next_merge", look)
    facts = facts_of(80)
    leader = leader_on(manifest_of(*items_of(8)), facts)
    for now_ms in range(1_000, 5_000, 50):
        assert leader.tick(facts, now_ms) == []
    assert len(looks) == 4


def test_uploads_go_first() -> None:
    manifest = manifest_of(*items_of(8))
    leader = leader_on(manifest, facts_of(80))
    facts = log_facts(closed(0, 80, 95), wall_ms=NOW_MS, segment_bytes=64 * MIB)
    (request,) = leader.tick(facts, 1_000)
    assert isinstance(request, UploadSegment)


def test_the_first_object_may_begin_below_the_list() -> None:
    items = (item_of(5, 10, base=0), *items_of(7, first=10))
    _, request = merging(manifest_of(*items), facts_of(80))
    assert request.name.start == 0 and request.items[0].start == 5


def test_a_merge_without_an_answer_is_sent_again_under_its_name_and_then_given_up() -> None:
    facts = facts_of(80)
    leader, request = merging(manifest_of(*items_of(8)), facts)
    now_ms = 1_000
    for _ in range(UPLOAD_ATTEMPTS_MAX - 1):
        leader.handle(UploadUndecided("time-out"), now_ms)
        now_ms += 1_000
        assert leader.tick(facts, now_ms) == [request]
    leader.handle(UploadUndecided("time-out"), now_ms)
    assert "upload given up: time-out" in leader.reason


def test_a_merge_that_fails_is_not_tried_for_an_hour_and_holds_nothing_up() -> None:
    facts = facts_of(80)
    leader, _ = merging(manifest_of(*items_of(8)), facts)
    assert leader.handle(UploadFailed("seg/…: crc differs"), 1_000) == []
    assert "crc differs" in leader.reason
    more = log_facts(closed(0, 80, 95), wall_ms=NOW_MS, segment_bytes=64 * MIB)
    (upload,) = leader.tick(more, 2_000)
    assert isinstance(upload, UploadSegment)
    (write,) = leader.handle(SegmentUploaded(item_of(80, 95)._replace(name=str(upload.name))), 2_000)
    assert isinstance(write, WriteManifest)
    leader.handle(WriteConfirmed('"f"'), 2_000)
    again = 1_000 + RETRY_MS
    for now_ms in range(3_000, again, 60_000):
        assert not any(isinstance(effect, MergeObjects) for effect in settle(leader, more, now_ms))
    assert any(isinstance(effect, MergeObjects) for effect in leader.tick(more, again + 2_000))


def settle(leader: TieringLeader, facts: LogFacts, now_ms: int) -> list[Any]:
    """One look; a sweep that comes with it finds nothing."""
    effects = leader.tick(facts, now_ms)
    if any(isinstance(effect, SweepObjects) for effect in effects):
        leader.handle(Swept(0), now_ms)
    return effects


@pytest.mark.parametrize("epoch", [4, 6])
def test_a_merge_that_loses_its_swap_is_dropped_with_its_object(epoch: int) -> None:
    facts = facts_of(80)
    manifest = manifest_of(*items_of(8))
    leader, request = merging(manifest, facts)
    leader.handle(merged(request), 1_000)
    assert leader.handle(WriteRefused(), 1_000) == [ReadManifest()]
    other = replace(manifest, version=8, leader_epoch=epoch)
    leader.handle(ManifestRead(other, '"o"'), 1_000)
    if epoch > leader.leader_epoch:
        assert leader.state is State.DEPOSED
        return
    assert leader.manifest == other
    (again,) = leader.tick(facts, 2_000)
    assert isinstance(again, MergeObjects) and again.name != request.name
