"""The object store seam: create-if-absent, compare-and-swap, ranged get, list, delete.

The contract, from which the metadata log and the tier draw their safety:

1. `create(name)`: of many, one wins; the others get `ObjectExists`.
2. `swap(name, etag)`: of many with one ETag, one wins; the others get `ETagMismatch`; `ObjectNotFound` when missing.
3. Reads and lists see every write that was answered before. A put is all or nothing.
4. Anything else (time-out, 5xx, 503, reset) is `StoreUndecided` for a write: it may have happened, may not, or may yet
   happen. For a read it is `StoreUnavailable`.

Names are `/`-separated, relative to the store's root prefix. All calls block; never call them on an event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class ObjectStoreError(Exception):
    """Something the object store said or failed to say."""


class ObjectExists(ObjectStoreError):
    """`create` found an object of that name. It may be one's own, from an answer that was lost: read and compare."""


class ETagMismatch(ObjectStoreError):
    """`swap` or a conditional read found another body than the one named."""


class ObjectNotFound(ObjectStoreError):
    """There is no object of that name."""


class RangeNotSatisfiable(ObjectStoreError):
    """The range lies beyond the object's end."""


class StoreUnavailable(ObjectStoreError):
    """The store gave no usable answer to a read. Try again later."""


class StoreUndecided(StoreUnavailable):
    """The store gave no usable answer to a write: it may or may not have happened, or may yet happen."""


class StoreRefused(ObjectStoreError):
    """The store said no, and trying again does not change it (credentials, no such bucket, an unsafe store)."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Bytes read from the store and the ETag they had."""

    data: bytes
    etag: str
    size: int
    """Size of the whole object in bytes, also when only a range of it was read."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One row of a listing."""

    name: str
    size: int


class ObjectStore(Protocol):
    """A flat name space of immutable bodies with conditional writes."""

    @property
    def url(self) -> str:
        """What `open_store` takes to open the same store in another process."""

    def get(self, name: str, *, start: int = 0, length: int | None = None, etag: str | None = None) -> StoredObject:
        """Read an object, or `length` bytes from `start`; a negative `start` counts from the end.

        Raises:
            ObjectNotFound, ETagMismatch (the object is no longer the one with `etag`), RangeNotSatisfiable,
            StoreUnavailable, StoreRefused.
        """

    def get_if_changed(self, name: str, etag: str) -> StoredObject | None:
        """The object, or None while it still has `etag`. Raises as `get`."""

    def create(self, name: str, data: bytes | memoryview) -> str:
        """Write an object that must not exist yet; returns its ETag.

        Raises:
            ObjectExists, StoreUndecided, StoreRefused.
        """

    def swap(self, name: str, data: bytes, etag: str) -> str:
        """Replace an object that must still have `etag`; returns the new ETag.

        Raises:
            ETagMismatch, ObjectNotFound, StoreUndecided, StoreRefused.
        """

    def delete(self, name: str) -> None:
        """Remove an object; one that is not there is no error. Raises: StoreUndecided, StoreRefused."""

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose name begins with `prefix`, in name order. Raises: StoreUnavailable, StoreRefused."""
