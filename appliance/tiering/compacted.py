"""Compacted segments take the place of what they were made of, in the manifest as in the log (C1, C2). Pure.

Each listed object carries `cleaned`: up to which offset the newest of each key was known when it was written. Two rules
keep an old value from coming back in the tier after its tombstone is gone:

- `cleaned` never rises from one item to the next. Whatever lies lower is compacted at least as far, so segments are
  replaced from the oldest on, by such as are compacted further.
- A log is compacted only as far as the tier reaches, so what is appended to the list was never touched.

Replicas compact by themselves. A leader whose own log is not compacted as far as the tier leaves the tier alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from appliance.base.errors import invariant
from appliance.tiering.events import ClosedSegment, LogFacts
from appliance.tiering.manifest import (
    GARBAGE_MAX,
    HoleItem,
    Item,
    Manifest,
    PageItem,
    SegmentItem,
    cut_item,
    cut_items,
)

Pages = Mapping[str, tuple[Item, ...]]
"""Pages read so far, by name."""


class Replaceable(NamedTuple):
    """A local segment whose records from `start` on shall take the place of what is listed there."""

    segment: ClosedSegment
    start: int
    listed: SegmentItem | None
    """The only item that it stands for, where there is just one and it ends with it."""


def next_replacement(manifest: Manifest, facts: LogFacts, pages: Pages) -> Replaceable | PageItem | None:
    """The oldest segment that the log has compacted further than the tier; a page that must be read to tell it."""
    reach = facts.compacted_to
    if reach < 0 or reach > manifest.end_offset or manifest.start_offset >= reach:
        return None
    found = _first_below(manifest.items, reach, pages)
    if found is None or isinstance(found, PageItem):
        return found
    place = bisect_right(facts.closed, found.start, key=lambda segment: segment.next_offset)
    if place == len(facts.closed):
        return None
    segment = facts.closed[place]
    if segment.base_offset > found.start or segment.next_offset > facts.last_stable_offset:
        # A part that only the tier has, or that is not decided yet: nothing above it may go further.
        return None
    overlapped, unread = _overlapped(manifest.items, found.start, segment.next_offset, pages)
    if unread is not None:
        return unread
    if len(manifest.garbage) + len(overlapped) > GARBAGE_MAX:
        return None
    only = overlapped[0] if len(overlapped) == 1 else None
    same = isinstance(only, SegmentItem) and (only.start, only.end) == (found.start, segment.next_offset)
    return Replaceable(segment, found.start, only if same and isinstance(only, SegmentItem) else None)


def replaced(items: Sequence[Item], new: SegmentItem, pages: Pages) -> tuple[tuple[Item, ...], list[str]]:
    """The list with `new` in the place of all that it overlaps, and the names that are not listed any more.

    Pages in its range are unfolded; an item that reaches above its end is cut. It may reach above the list's end.
    """
    rest = list(reversed(items))
    before: list[Item] = []
    after: list[Item] = []
    removed: list[str] = []
    while rest:
        item = rest.pop()
        if item.end <= new.start:
            before.append(item)
        elif item.start >= new.end:
            after.append(item)
        elif isinstance(item, PageItem):
            removed.append(item.name)
            rest.extend(reversed(cut_items(pages[item.name], item.start)))
        else:
            invariant(item.start >= new.start, f"{new} would leave the end of {item} uncovered")
            if item.end > new.end:
                after.append(cut_item(item, new.end))
            elif isinstance(item, SegmentItem) and item.name != new.name:
                removed.append(item.name)
    return (*before, new, *after), removed


def is_beyond(manifest: Manifest, facts: LogFacts) -> bool:
    """Whether the log was compacted above the tiered end, while the topic was not tiered.

    Then what would be appended may lack tombstones of older values that the tier has.
    """
    return facts.touched_to > manifest.end_offset and bool(manifest.items)


def _first_below(items: Sequence[Item], reach: int, pages: Pages) -> SegmentItem | PageItem | None:
    """The first item below `reach` that is not compacted so far; a page that has such a one and is not read yet."""
    for item in items:
        if item.start >= reach:
            return None
        if isinstance(item, PageItem):
            if item.cleaned >= reach:
                continue
            inside = pages.get(item.name)
            if inside is None:
                return item
            found = _first_below(cut_items(inside, item.start), reach, pages)
            if found is not None:
                return found
        elif isinstance(item, SegmentItem) and item.cleaned < reach:
            return item
    return None


def _overlapped(
    items: Sequence[Item], start: int, end: int, pages: Pages
) -> tuple[list[SegmentItem | HoleItem], PageItem | None]:
    """What lies in [start, end), and the first page there that is not read yet."""
    found: list[SegmentItem | HoleItem] = []
    for item in items:
        if item.end <= start or item.start >= end:
            continue
        if not isinstance(item, PageItem):
            found.append(item)
            continue
        inside = pages.get(item.name)
        if inside is None:
            return found, item
        below, unread = _overlapped(cut_items(inside, item.start), start, end, pages)
        found += below
        if unread is not None:
            return found, unread
    return found, None
