"""An object store in memory: each request happens at once and whole; `StoreBackground` makes it slow and silent."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from appliance.base.object_store import ETagMismatch, ObjectExists, ObjectInfo, ObjectNotFound, StoredObject


class MemoryStore:
    """What the metadata log asks of `ObjectStore`."""

    url = "memory:"
    conditional = True
    """False: a create overwrites, as a plain PUT does."""

    def __init__(self) -> None:
        self.on_create: Callable[[str, bytes], None] = lambda name, data: None
        """Told of each create that happened."""
        self.recreated = 0
        self._bodies: dict[str, tuple[bytes, str]] = {}
        self._deleted: dict[str, None] = {}

    def get(self, name: str) -> StoredObject:
        if name not in self._bodies:
            raise ObjectNotFound(name)
        data, etag = self._bodies[name]
        return StoredObject(data, etag, len(data))

    def create(self, name: str, data: bytes) -> str:
        if self.conditional and name in self._bodies:
            raise ObjectExists(name)
        if name in self._deleted:
            self.recreated += 1
        etag = self._write(name, data)
        self.on_create(name, data)
        return etag

    def swap(self, name: str, data: bytes, etag: str) -> str:
        if name not in self._bodies:
            raise ObjectNotFound(name)
        if self._bodies[name][1] != etag:
            raise ETagMismatch(name)
        return self._write(name, data)

    def delete(self, name: str) -> None:
        if self._bodies.pop(name, None) is not None:
            self._deleted[name] = None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for name in sorted(self._bodies):
            if name.startswith(prefix):
                yield ObjectInfo(name, len(self._bodies[name][0]))

    def _write(self, name: str, data: bytes) -> str:
        # As S3's: it depends on the body alone.
        self._bodies[name] = (data, f"{zlib.crc32(data):08x}")
        return self._bodies[name][1]
