"""The manifest: one small JSON object per partition that says which object holds which offsets.

```
{
"format":"appliance manifest","format_version":1,"topic":…,"topic_id":…,"partition":…,"cleanup_policy":…,
"version":…        one more at each write, so no two bodies are equal and no ETag ever returns
"leader_epoch":…   of the last writer
"start_offset":…   the log start as far as the tier knows
"end_offset":…     the tiered end
"copy":"on"        or "paused"
"items":[          one a line, adjoining from start_offset to end_offset
["s",start,end,name,size,tail,data_crc32c,max_timestamp,records],   then `cleaned`, if compacted
["h",start,end,reason],
["p",start,end,name,size,crc32c,max_timestamp,records,bytes,count]  then `cleaned`, if compacted
],
"garbage":[        let go of, not yet deleted
[name,removed_at_ms]
],
"keys":[],
"crc32c":…         of everything before this line
}
```
A page is the same kind of list in an object of its own; `count` are the segments below it, `bytes` the size of their
objects. An item may be cut: its object begins before `start`. `records` of an item that retention has cut is an upper
bound. Names are relative to the partition's folder.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from crc32c import crc32c

from appliance.base.errors import invariant
from appliance.base.ids import uuid_from_text, uuid_to_text
from appliance.tiering.document import CorruptDocument, encode_document, parse_document
from appliance.tiering.names import PAGE, SEGMENT, parse_name

FORMAT = "appliance manifest"
PAGE_FORMAT = "appliance page"
FORMAT_VERSION = 1
ITEMS_MAX = 512
"""Above so many items the oldest are moved to a page."""
PAGE_ITEMS = 256
GARBAGE_MAX = 10_000
MAX_OFFSET = (1 << 63) - 1

COPY_ON = "on"
COPY_PAUSED = "paused"


class CorruptManifest(ValueError):
    """A manifest or page that cannot be believed."""


class SegmentItem(NamedTuple):
    """Offsets [start, end) lie in the object `name`."""

    start: int
    end: int
    name: str
    size: int
    tail: int
    data_crc32c: int
    max_timestamp: int
    records: int
    cleaned: int = -1
    """Up to which offset newer records of the same keys have replaced those of the object; -1 if it is as written."""

    @property
    def bytes(self) -> int:
        return self.size

    @property
    def data_length(self) -> int:
        return self.size - self.tail


class HoleItem(NamedTuple):
    """Offsets [start, end) hold no records."""

    start: int
    end: int
    reason: str

    @property
    def bytes(self) -> int:
        return 0

    @property
    def records(self) -> int:
        return 0

    @property
    def max_timestamp(self) -> int:
        return -1


class PageItem(NamedTuple):
    """The items of [start, end) are listed in the page object `name`."""

    start: int
    end: int
    name: str
    size: int
    crc32c: int
    max_timestamp: int
    records: int
    bytes: int
    segments: int
    cleaned: int = -1
    """The smallest of all segments below."""


Item = SegmentItem | HoleItem | PageItem


class Garbage(NamedTuple):
    """A name that the manifest let go of."""

    name: str
    removed_at_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a partition's manifest."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    cleanup_policy: str
    version: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    copy: str = COPY_ON
    items: tuple[Item, ...] = ()
    garbage: tuple[Garbage, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()

    @property
    def tiered_bytes(self) -> int:
        """Size of all listed objects, whole even where an item is cut."""
        return sum(item.bytes for item in self.items)

    def item_at(self, offset: int) -> Item | None:
        """The item that covers an offset."""
        return item_at(self.items, offset)

    def check(self) -> None:
        """Raises: InvariantBroken unless the items adjoin from start to end (invariant I1)."""
        invariant(self.start_offset <= self.end_offset, f"manifest {self.version}: start lies above end")
        check_adjoining(self.items, self.start_offset, self.end_offset)
        invariant(len(self.garbage) <= GARBAGE_MAX, f"manifest {self.version}: {len(self.garbage)} names of garbage")


def empty_manifest(topic: str, topic_id: uuid.UUID, partition: int, cleanup_policy: str, start_offset: int) -> Manifest:
    """What stands for a manifest that was never written: version 0, no items."""
    return Manifest(topic, topic_id, partition, cleanup_policy, 0, -1, start_offset, start_offset)


def item_at(items: Sequence[Item], offset: int) -> Item | None:
    """The item of an adjoining list that covers an offset."""
    found = bisect_right(items, offset, key=lambda item: item.start)
    if not found or items[found - 1].end <= offset:
        return None
    return items[found - 1]


def check_adjoining(items: Sequence[Item], start: int, end: int) -> None:
    """Raises: InvariantBroken unless the items cover [start, end) without a gap."""
    position, cleaned = start, MAX_OFFSET
    for item in items:
        if item.start != position or item.end <= item.start:
            invariant(False, f"item {item} does not begin at {position}")
        position = item.end
        if not isinstance(item, HoleItem):
            if item.cleaned > cleaned:
                invariant(False, f"item {item} is compacted further than what lies below it")
            cleaned = item.cleaned
    invariant(position == end, f"items end at {position}, not at {end}")


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest's object."""
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "topic": manifest.topic,
        "topic_id": uuid_to_text(manifest.topic_id),
        "partition": manifest.partition,
        "cleanup_policy": manifest.cleanup_policy,
        "version": manifest.version,
        "leader_epoch": manifest.leader_epoch,
        "start_offset": manifest.start_offset,
        "end_offset": manifest.end_offset,
        "copy": manifest.copy,
    }
    lists: list[tuple[str, list[list[object]]]] = [
        ("items", [_item_row(item) for item in manifest.items]),
        ("garbage", [list(entry) for entry in manifest.garbage]),
        ("keys", [list(key) for key in manifest.keys]),
    ]
    return encode_document(head, lists)


def parse_manifest(data: bytes, *, check_cover: bool = True) -> Manifest:
    """Read a manifest.

    Raises:
        CorruptManifest: damaged, of another format, or (`check_cover`) its items do not adjoin.
    """
    values = _parse(data, FORMAT)
    try:
        manifest = Manifest(
            topic=str(values["topic"]),
            topic_id=uuid_from_text(values["topic_id"]),
            partition=int(values["partition"]),
            cleanup_policy=str(values["cleanup_policy"]),
            version=int(values["version"]),
            leader_epoch=int(values["leader_epoch"]),
            start_offset=int(values["start_offset"]),
            end_offset=int(values["end_offset"]),
            copy=str(values["copy"]),
            items=_items(values["items"]),
            garbage=tuple(_garbage(row) for row in values["garbage"]),
            keys=tuple(tuple(map(str, row)) for row in values["keys"]),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptManifest(f"manifest damaged: {error!r}") from error
    if check_cover:
        _check_cover(manifest.items, manifest.start_offset, manifest.end_offset)
    return manifest


def encode_page(topic_id: uuid.UUID, partition: int, items: Sequence[Item]) -> bytes:
    """The bytes of a page object."""
    head = {
        "format": PAGE_FORMAT,
        "format_version": FORMAT_VERSION,
        "topic_id": uuid_to_text(topic_id),
        "partition": partition,
        "start_offset": items[0].start,
        "end_offset": items[-1].end,
    }
    return encode_document(head, [("items", [_item_row(item) for item in items])])


def page_item(name: str, data: bytes, items: Sequence[Item]) -> PageItem:
    """The item that stands for a page's items in the list above."""
    return PageItem(
        start=items[0].start,
        end=items[-1].end,
        name=name,
        size=len(data),
        crc32c=crc32c(data),
        max_timestamp=max(item.max_timestamp for item in items),
        records=sum(item.records for item in items),
        bytes=sum(item.bytes for item in items),
        segments=sum(_segments(item) for item in items),
        cleaned=min((item.cleaned for item in items if not isinstance(item, HoleItem)), default=MAX_OFFSET),
    )


def parse_page(data: bytes, item: PageItem) -> tuple[Item, ...]:
    """The items of a page that stands for `item`; the first may be cut as `item` is.

    Raises:
        CorruptManifest: damaged, or not the page that `item` means.
    """
    if len(data) != item.size or crc32c(data) != item.crc32c:
        raise CorruptManifest(f"{item.name}: not the page that the manifest lists")
    values = _parse(data, PAGE_FORMAT)
    try:
        items = cut_items(_items(values["items"]), item.start)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptManifest(f"{item.name}: page damaged: {error!r}") from error
    _check_cover(items, item.start, item.end)
    return items


def cut_items(items: Iterable[Item], start: int) -> tuple[Item, ...]:
    """The items from `start` on; one that lies across it is cut."""
    return tuple(cut_item(item, start) if item.start < start else item for item in items if item.end > start)


def cut_item(item: Item, start: int) -> Item:
    """An item that begins at `start`, which lies inside of it. `records` becomes an upper bound."""
    if isinstance(item, HoleItem):
        return item._replace(start=start)
    return item._replace(start=start, records=min(item.records, item.end - start))


def fold_candidates(items: Sequence[Item]) -> tuple[int, int] | None:
    """Which items to move to a page: [first, last) of the oldest 256 that are alike, when there are more than 512.

    Alike means about as many segments below: a page of pages is made of pages, so that a lookup never has to go
    through a long chain of them.
    """
    if len(items) <= ITEMS_MAX:
        return None
    first = 0
    while first < len(items):
        level = _level(items[first])
        last = first
        while last < len(items) and last - first < PAGE_ITEMS and _level(items[last]) == level:
            last += 1
        if last - first == PAGE_ITEMS:
            return first, last
        first = last
    return None


def folded(items: tuple[Item, ...], page: PageItem, moved: Sequence[Item]) -> tuple[Item, ...] | None:
    """The list with `page` in the place of `moved`; None when these are not all there any more."""
    found = bisect_right(items, page.start, key=lambda item: item.start) - 1
    if found < 0 or items[found : found + len(moved)] != tuple(moved):
        return None
    return (*items[:found], page, *items[found + len(moved) :])


def next_version(manifest: Manifest, leader_epoch: int, **changes: Any) -> Manifest:
    """The manifest with changes, as its next version by the leader of `leader_epoch` (W1)."""
    newer = replace(manifest, version=manifest.version + 1, leader_epoch=leader_epoch, **changes)
    newer.check()
    invariant(
        newer.start_offset >= manifest.start_offset and newer.end_offset >= manifest.end_offset,
        f"manifest {manifest.version}: start or end would go back",
    )
    return newer


def _segments(item: Item) -> int:
    return item.segments if isinstance(item, PageItem) else 1


def _level(item: Item) -> int:
    """0 for segments and holes, 1 for pages of up to 256 of them, 2 for pages of pages."""
    level, below = 0, _segments(item)
    if isinstance(item, PageItem):
        level = 1
        while below > PAGE_ITEMS:
            level, below = level + 1, below // PAGE_ITEMS
    return level


def _item_row(item: Item) -> list[object]:
    if isinstance(item, HoleItem):
        return ["h", *item]
    row: list[object] = ["s" if isinstance(item, SegmentItem) else "p", *item]
    return row if item.cleaned >= 0 else row[:-1]


def _items(rows: Iterable[Sequence[Any]]) -> tuple[Item, ...]:
    return tuple(_item(row) for row in rows)


def _item(row: Sequence[Any]) -> Item:
    if row[0] == "s":
        item: Item = SegmentItem(int(row[1]), int(row[2]), _name(row[3], SEGMENT), *map(int, row[4:]))
    elif row[0] == "h":
        item = HoleItem(int(row[1]), int(row[2]), *map(str, row[3:]))
    elif row[0] == "p":
        item = PageItem(int(row[1]), int(row[2]), _name(row[3], PAGE), *map(int, row[4:]))
    else:
        raise CorruptManifest(f"item of an unknown kind: {row[0]!r}")
    return item


def _name(text: Any, kind: str) -> str:
    name = parse_name(text)
    if name is None or name.kind != kind:
        raise CorruptManifest(f"no name for a {kind} object: {text!r}")
    return str(text)


def _garbage(row: Sequence[Any]) -> Garbage:
    name, removed_at_ms = row
    if parse_name(name) is None:
        raise CorruptManifest(f"no name for an object: {name!r}")
    return Garbage(str(name), int(removed_at_ms))


def _check_cover(items: Sequence[Item], start: int, end: int) -> None:
    position = start
    for item in items:
        if item.start != position or item.end <= item.start:
            raise CorruptManifest(f"items do not adjoin: {item.start} after {position}")
        position = item.end
    if position != end:
        raise CorruptManifest(f"items end at {position}, not at {end}")


def _parse(data: bytes, wanted: str) -> dict[str, Any]:
    try:
        return parse_document(data, wanted, FORMAT_VERSION)
    except CorruptDocument as error:
        raise CorruptManifest(str(error)) from error
