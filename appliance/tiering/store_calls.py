"""The requests of a partition's tiering machine, done: one call to the store each, its answer as an event. Blocks."""

from __future__ import annotations

import uuid
from typing import assert_never

from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    StoreUnavailable,
)
from appliance.tiering.body import Body, BodyStore
from appliance.tiering.events import (
    DeleteFailed,
    DeleteObjects,
    Event,
    ManifestRead,
    MergeObjects,
    ObjectsDeleted,
    PageRead,
    PageUploaded,
    ReadFailed,
    ReadManifest,
    ReadPage,
    RecoverLog,
    Request,
    SweepFailed,
    SweepObjects,
    Swept,
    UploadConflict,
    UploadFailed,
    UploadPage,
    UploadSegment,
    UploadUndecided,
    WriteConfirmed,
    WriteManifest,
    WriteRefused,
    WriteUndecided,
)
from appliance.tiering.layout import CorruptObject, parse_tail
from appliance.tiering.manifest import (
    CorruptManifest,
    Item,
    Manifest,
    PageItem,
    SegmentItem,
    encode_manifest,
    encode_page,
    page_item,
    parse_manifest,
    parse_page,
)
from appliance.tiering.names import manifest_name, partition_folder
from appliance.tiering.recovery import TierEnd
from appliance.tiering.sweep import dead_names

PAGES_HELD_MAX = 64
"""Pages that one sweep keeps in memory."""


class StoreCalls:
    """The tier's objects of one partition. Any thread may call; every answer is an event, never an exception."""

    def __init__(self, store: BodyStore, topic_id: uuid.UUID, partition: int) -> None:
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._folder = partition_folder(topic_id, partition)
        self._manifest_name = manifest_name(topic_id, partition)

    def perform(self, request: Request) -> Event | TierEnd:
        """Do any request but an upload of data. RecoverLog gives what the log must agree with."""
        match request:
            case ReadManifest():
                return self.read_manifest()
            case WriteManifest():
                return self.write_manifest(request)
            case UploadPage():
                return self.upload_page(request)
            case ReadPage(item):
                return self.read_page(item)
            case DeleteObjects():
                return self.delete(request)
            case SweepObjects():
                return self.sweep(request)
            case RecoverLog(manifest):
                return self.read_tier_end(manifest)
            case UploadSegment() | MergeObjects():
                return UploadFailed("what has a body of its own is sent by SegmentUpload or ObjectMerge")
            case _:
                assert_never(request)

    def read_manifest(self) -> Event:
        try:
            stored = self._store.get(self._manifest_name)
            return ManifestRead(parse_manifest(stored.data), stored.etag)
        except ObjectNotFound:
            return ManifestRead(None, None)
        except (ObjectStoreError, CorruptManifest) as error:
            return ReadFailed(f"{self._manifest_name}: {error}")

    def write_manifest(self, request: WriteManifest) -> Event:
        data = encode_manifest(request.manifest)
        try:
            if request.etag is None:
                return WriteConfirmed(self._store.create(self._manifest_name, data))
            return WriteConfirmed(self._store.swap(self._manifest_name, data, request.etag))
        except (ObjectExists, ETagMismatch, ObjectNotFound):
            return WriteRefused()
        except ObjectStoreError as error:
            # Also where the store said no: an earlier attempt of the same write may have been taken.
            return WriteUndecided(str(error))

    def upload_page(self, request: UploadPage) -> Event:
        data = encode_page(self._topic_id, self._partition, request.items)
        name = str(request.name)
        try:
            self._store.create(self._folder + name, data)
        except ObjectExists:
            try:
                if self._store.get(self._folder + name).data != data:
                    return UploadConflict(f"{name}: another body lies under this name")
            except ObjectStoreError as error:
                return UploadUndecided(str(error))
        except StoreUnavailable as error:
            return UploadUndecided(str(error))
        except ObjectStoreError as error:
            return UploadFailed(str(error))
        return PageUploaded(page_item(name, data, request.items))

    def create_or_compare(self, name: str, body: Body, tail: bytes) -> Event | None:
        """Create a segment object; None when it is there with this body, be it from an earlier attempt (U2).

        Raises: OSError, BodyCancelled from the body.
        """
        try:
            self._store.create_from(self._folder + name, body)
        except ObjectExists:
            try:
                stored = self._store.get(self._folder + name, start=-len(tail))
            except ObjectStoreError as error:
                return UploadUndecided(str(error))
            if stored.size != body.size or stored.data != tail:
                return UploadConflict(f"{name}: another body lies under this name")
        except StoreUnavailable as error:
            return UploadUndecided(str(error))
        except ObjectStoreError as error:
            return UploadFailed(str(error))
        return None

    def read_object(self, name: str, position: int, length: int) -> bytes:
        """Exactly `length` bytes of a listed object. Raises: ObjectStoreError, CorruptObject."""
        stored = self._store.get(self._folder + name, start=position, length=length)
        if len(stored.data) != length:
            raise CorruptObject(f"{name}: {len(stored.data)} bytes at {position}, {length} were listed")
        return stored.data

    def read_page(self, item: PageItem) -> Event:
        try:
            return PageRead(item, self.load_page(item))
        except (ObjectStoreError, CorruptManifest) as error:
            return ReadFailed(f"{item.name}: {error}")

    def load_page(self, item: PageItem) -> tuple[Item, ...]:
        """Raises: ObjectStoreError, CorruptManifest."""
        return parse_page(self._store.get(self._folder + item.name).data, item)

    def read_tier_end(self, manifest: Manifest) -> Event | TierEnd:
        """The last object's tail, which knows the lineage and the producers at the tiered end."""
        try:
            last = self._last_segment(manifest.items)
            if last is None:
                return TierEnd(manifest.start_offset, manifest.end_offset, None)
            stored = self._store.get(self._folder + last.name, start=-last.tail)
            return TierEnd(manifest.start_offset, manifest.end_offset, parse_tail(stored.data, stored.size))
        except (ObjectStoreError, CorruptManifest, CorruptObject) as error:
            return ReadFailed(str(error))

    def _last_segment(self, items: tuple[Item, ...]) -> SegmentItem | None:
        for item in reversed(items):
            if isinstance(item, SegmentItem):
                return item
            if isinstance(item, PageItem):
                return self._last_segment(self.load_page(item))
        return None

    def delete(self, request: DeleteObjects) -> Event:
        try:
            for name in request.names:
                self._store.delete(self._folder + name)
        except ObjectStoreError as error:
            return DeleteFailed(str(error))
        return ObjectsDeleted(request.names)

    def sweep(self, request: SweepObjects) -> Event:
        held: dict[str, tuple[Item, ...]] = {}

        def load_page(item: PageItem) -> tuple[Item, ...]:
            if item.name not in held:
                if len(held) >= PAGES_HELD_MAX:
                    held.clear()
                held[item.name] = self.load_page(item)
            return held[item.name]

        deleted = 0
        try:
            for name in dead_names(self._store, request.manifest, request.epoch, load_page):
                self._store.delete(self._folder + name)
                deleted += 1
        except (ObjectStoreError, CorruptManifest) as error:
            return SweepFailed(str(error))
        return Swept(deleted)
