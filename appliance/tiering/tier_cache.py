"""What readers remember of the tier: manifests, pages and the tails of objects. Bounded; never a source of truth."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from appliance.base.clock import Clock
from appliance.base.object_store import ObjectNotFound, ObjectStore
from appliance.tiering.layout import SegmentTail, parse_tail
from appliance.tiering.manifest import (
    HoleItem,
    Item,
    Manifest,
    PageItem,
    SegmentItem,
    item_at,
    parse_manifest,
    parse_page,
)
from appliance.tiering.names import manifest_name, partition_folder

MANIFESTS_MAX = 1_000
PAGES_MAX = 256
TAILS_MAX_BYTES = 64 << 20

LeafItem = SegmentItem | HoleItem


@dataclass(frozen=True, slots=True)
class TierObject:
    """A segment object whose tail has been read."""

    name: str
    etag: str
    tail: SegmentTail
    tail_bytes: int


@dataclass(frozen=True, slots=True)
class _Known:
    manifest: Manifest
    etag: str
    read_ms: int


class TierCache:
    """Any thread may call any method. They raise ObjectStoreError, CorruptManifest and CorruptObject."""

    def __init__(self, store: ObjectStore, clock: Clock, max_age_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._manifests: OrderedDict[tuple[uuid.UUID, int], _Known] = OrderedDict()
        self._pages: OrderedDict[str, tuple[Item, ...]] = OrderedDict()
        self._objects: OrderedDict[str, TierObject] = OrderedDict()
        self._object_bytes = 0
        self._lock = threading.Lock()

    def manifest(self, topic_id: uuid.UUID, partition: int, *, again: bool = False) -> Manifest | None:
        """The manifest, not older than the cache's age; `again` asks the store in any case. None: there is none."""
        key = (topic_id, partition)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            known = self._manifests.get(key)
            if known is not None:
                self._manifests.move_to_end(key)
                if not again and now_ms - known.read_ms <= self._max_age_ms:
                    return known.manifest
        name = manifest_name(topic_id, partition)
        try:
            stored = self._store.get(name) if known is None else self._store.get_if_changed(name, known.etag)
        except ObjectNotFound:
            with self._lock:
                self._manifests.pop(key, None)
            return None
        if stored is None and known is not None:
            newer = _Known(known.manifest, known.etag, now_ms)
        elif stored is not None:
            newer = _Known(parse_manifest(stored.data), stored.etag, now_ms)
        else:
            return None
        with self._lock:
            self._manifests[key] = newer
            self._manifests.move_to_end(key)
            while len(self._manifests) > MANIFESTS_MAX:
                self._manifests.popitem(last=False)
        return newer.manifest

    def leaf_at(self, manifest: Manifest, offset: int) -> LeafItem | None:
        """The segment or hole that covers an offset, through as many pages as it takes."""
        items: tuple[Item, ...] = manifest.items
        while True:
            item = item_at(items, offset)
            if not isinstance(item, PageItem):
                return item
            items = self._page(manifest, item)

    def leaves(self, manifest: Manifest, offset: int) -> Iterator[LeafItem]:
        """Segments and holes from the one that covers `offset` on."""
        position = max(offset, manifest.start_offset)
        while position < manifest.end_offset:
            item = self.leaf_at(manifest, position)
            if item is None:
                return
            yield item
            position = item.end

    def leaves_younger_than(self, manifest: Manifest, timestamp: int) -> Iterator[SegmentItem]:
        """Segments that may hold a record of `timestamp` or later, in offset order; skips whole pages."""
        yield from self._younger(manifest, manifest.items, timestamp)

    def _younger(self, manifest: Manifest, items: tuple[Item, ...], timestamp: int) -> Iterator[SegmentItem]:
        for item in items:
            if item.max_timestamp < timestamp:
                continue
            if isinstance(item, PageItem):
                yield from self._younger(manifest, self._page(manifest, item), timestamp)
            elif isinstance(item, SegmentItem):
                yield item

    def object(self, manifest: Manifest, item: SegmentItem) -> TierObject:
        """The object of an item, with its tail."""
        return self.object_of(partition_folder(manifest.topic_id, manifest.partition) + item.name, item)

    def object_of(self, name: str, item: SegmentItem) -> TierObject:
        """The object of an item by its full name, with its tail."""
        with self._lock:
            known = self._objects.get(name)
            if known is not None:
                self._objects.move_to_end(name)
                return known
        stored = self._store.get(name, start=-item.tail)
        found = TierObject(name, stored.etag, parse_tail(stored.data, stored.size), item.tail)
        with self._lock:
            if name not in self._objects:
                self._objects[name] = found
                self._object_bytes += found.tail_bytes
            while self._object_bytes > TAILS_MAX_BYTES and len(self._objects) > 1:
                _, dropped = self._objects.popitem(last=False)
                self._object_bytes -= dropped.tail_bytes
        return found

    def forget_object(self, name: str) -> None:
        """The store does not know it any more."""
        with self._lock:
            dropped = self._objects.pop(name, None)
            if dropped is not None:
                self._object_bytes -= dropped.tail_bytes

    def _page(self, manifest: Manifest, item: PageItem) -> tuple[Item, ...]:
        """The items of a page, as far as `item` still covers them."""
        name = partition_folder(manifest.topic_id, manifest.partition) + item.name
        key = f"{name} from {item.start}"
        with self._lock:
            known = self._pages.get(key)
            if known is not None:
                self._pages.move_to_end(key)
                return known
        items = parse_page(self._store.get(name).data, item)
        with self._lock:
            self._pages[key] = items
            while len(self._pages) > PAGES_MAX:
                self._pages.popitem(last=False)
        return items
