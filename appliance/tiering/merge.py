"""Which small neighbours in the tier become one object (M1). Pure.

`tiering.max.lag.ms` closes segments by time, so a topic with little traffic leaves thousands of small objects, and each
costs every later reader a request. Neighbours are merged when they have been there for a while, and only with their
like: no object of a run is larger than a quarter of it. So each byte is rewritten a few times until it lies in an
object of half a segment, however many objects there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from appliance.tiering.events import LogFacts
from appliance.tiering.limits import TieringLimits
from appliance.tiering.manifest import GARBAGE_MAX, Item, Manifest, SegmentItem
from appliance.tiering.names import ObjectName, parse_name

LARGEST_SHARE = 4
"""The largest object of a run holds at most this part of its bytes: a quarter."""
RETRY_MS = 3_600_000
"""After a merge that could not be done none is tried for so long: uploads go first."""
SPAN_MAX = (1 << 31) - 1
"""An object's indexes count offsets from its start in 32 bits."""


def next_merge(manifest: Manifest, facts: LogFacts, limits: TieringLimits) -> tuple[SegmentItem, ...]:
    """The oldest run of neighbours that shall become one object; empty when there is none.

    Items in pages are left as they are: they were in the list for long enough. So are compacted logs, whose small
    segments compaction itself brings together.
    """
    if limits.merge_min_age_ms < 0 or facts.touched_to >= 0:
        return ()
    # While it is under way nothing else of the partition goes up: half of what the lag allows, down and up again.
    in_time = facts.max_lag_ms * limits.upload_min_bytes_per_second // 4_000
    room = min(facts.segment_bytes, in_time)
    for stretch in _stretches(manifest.items, facts, limits):
        run = _run_in(stretch, room, limits.merge_min_objects)
        if run and len(manifest.garbage) + len(run) <= GARBAGE_MAX:
            return tuple(run)
    return ()


def object_of(item: SegmentItem) -> ObjectName:
    """The name of an item's object, whose range may begin below the item's."""
    name = parse_name(item.name)
    if name is None:
        raise ValueError(f"{item.name!r} is no object's name")
    return name


def _stretches(items: Sequence[Item], facts: LogFacts, limits: TieringLimits) -> Iterator[list[SegmentItem]]:
    """Adjoining items that may be merged, as many as there are side by side."""
    stretch: list[SegmentItem] = []
    for item in items:
        if isinstance(item, SegmentItem) and _is_ripe(item, facts, limits):
            stretch.append(item)
            continue
        if len(stretch) >= limits.merge_min_objects:
            yield stretch
        stretch = []
    if len(stretch) >= limits.merge_min_objects:
        yield stretch


def _is_ripe(item: SegmentItem, facts: LogFacts, limits: TieringLimits) -> bool:
    """Small, old, not compacted, and not about to expire."""
    if item.size * 2 >= facts.segment_bytes or item.cleaned >= 0 or object_of(item).end != item.end:
        return False
    age_ms = facts.wall_ms - item.max_timestamp
    if age_ms < limits.merge_min_age_ms:
        return False
    return facts.retention_ms < 0 or item.max_timestamp < 0 or age_ms + limits.merge_min_age_ms < facts.retention_ms


def _run_in(stretch: Sequence[SegmentItem], room: int, count_min: int) -> Sequence[SegmentItem]:
    """The first run of at least `count_min`, as long as `room` bytes allow, with none that outweighs the others."""
    first = 0
    while len(stretch) - first >= count_min:
        last, total, start = first, 0, object_of(stretch[first]).start
        while last < len(stretch) and total + stretch[last].size <= room and stretch[last].end - start <= SPAN_MAX:
            total += stretch[last].size
            last += 1
        if last - first < count_min:
            first += 1
            continue
        run = stretch[first:last]
        largest = max(range(len(run)), key=lambda place: run[place].size)
        if run[largest].size * LARGEST_SHARE <= total:
            return run
        below = _run_in(run[:largest], room, count_min)
        if below:
            return below
        first += largest + 1
    return ()
