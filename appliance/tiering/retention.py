"""What may go from the tier, by what its manifest lists (T1, T2). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.tiering.events import LogFacts
from appliance.tiering.manifest import GARBAGE_MAX, Garbage, HoleItem, Item, Manifest, PageItem, SegmentItem, cut_item

REMOVED_MAX = 1_000
"""Retention takes at most so many names out of the list in one swap."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """A new start of the log, and the list from there on."""

    start_offset: int
    end_offset: int
    items: tuple[Item, ...]
    garbage: tuple[Garbage, ...]


def expire(manifest: Manifest, facts: LogFacts, pages: Mapping[str, tuple[Item, ...]]) -> Expiry | PageItem | None:
    """What retention and the log start take from the tier now.

    `pages` are the pages read so far, by name. A page is entered item by item, so it must be read first.
    Returns: None when nothing is to be done; a page when it must be read before it can be told.
    """
    low = max(facts.log_start_offset, facts.local_log_start_offset if facts.drop_tier else 0)
    by_time, by_size = facts.retention_ms >= 0, facts.retention_bytes >= 0
    total = manifest.tiered_bytes + local_bytes_above(manifest.end_offset, facts) if by_size else 0
    removed: list[str] = []
    room = min(REMOVED_MAX, GARBAGE_MAX - len(manifest.garbage))
    rest = list(reversed(manifest.items))
    start = manifest.start_offset
    while rest and len(removed) < room:
        item = rest[-1]
        if isinstance(item, PageItem):
            if low <= item.start and not by_time and not (by_size and total > facts.retention_bytes):
                break
            inside = pages.get(item.name)
            if inside is None:
                return item
            first = inside[0]
            if (
                low <= item.start
                and not isinstance(first, PageItem)
                and not _goes(first, facts, total, by_time, by_size)
            ):
                break
            removed.append(item.name)
            rest[-1:] = reversed([cut_item(i, item.start) if i.start < item.start else i for i in inside])
            continue
        if item.end > low and not _goes(item, facts, total, by_time, by_size):
            break
        rest.pop()
        start = item.end
        total -= item.bytes
        if isinstance(item, SegmentItem):
            removed.append(item.name)
    items = tuple(reversed(rest))
    if low > start and items and items[0].start < low < items[0].end and not isinstance(items[0], PageItem):
        items = (cut_item(items[0], low), *items[1:])
        start = low
    if not items:
        # What is only local and has expired need not go up first.
        start = max(start, low, facts.local_expired_end)
    if start <= manifest.start_offset:
        return None
    garbage = manifest.garbage + tuple(Garbage(name, facts.wall_ms) for name in removed)
    return Expiry(start, max(start, manifest.end_offset), items, garbage)


def _goes(item: Item, facts: LogFacts, total: int, by_time: bool, by_size: bool) -> bool:
    # A segment without timestamps never goes by time; a range without records goes with what stands behind it.
    known = item.max_timestamp >= 0 or isinstance(item, HoleItem)
    if by_time and known and item.max_timestamp < facts.wall_ms - facts.retention_ms:
        return True
    return by_size and total - item.bytes >= facts.retention_bytes


def local_bytes_above(offset: int, facts: LogFacts) -> int:
    """Bytes of local segments with records at or above `offset`."""
    closed = sum(segment.size_bytes for segment in facts.closed if segment.next_offset > offset)
    return closed + facts.active_bytes
