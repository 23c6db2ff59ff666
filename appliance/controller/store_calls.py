"""What the metadata log asks of the object store, and what it may hear: the pure side of the ObjectStore seam.

The log's protocol is written as generators: each yields one request at a time and is sent the answer. Whoever runs
them (`appliance.broker_actors.metadata_store`, or a simulation) decides about threads, time-outs and clocks.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Get:
    name: str


@dataclass(frozen=True, slots=True)
class Create:
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Swap:
    name: str
    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Delete:
    name: str


@dataclass(frozen=True, slots=True)
class ListNames:
    """The first `limit` names that begin with `prefix`."""

    prefix: str
    limit: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is asked; go on after `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no object of that name (answers Get, Swap)."""


@dataclass(frozen=True, slots=True)
class Written:
    """The create or swap happened."""

    etag: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The create found an object; it may be one's own from an earlier try."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The swap found another ETag; its own write from an earlier try may be the reason."""


@dataclass(frozen=True, slots=True)
class Names:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Deleted, or the pause is over."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing is known: a write may have happened, may not, or may yet happen."""

    reason: str


StoreRequest: TypeAlias = Get | Create | Swap | Delete | ListNames | Pause
StoreResult: TypeAlias = Found | Absent | Written | Exists | Mismatch | Names | Done | NoAnswer


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """A result, and the monotonic clock when the request left."""

    result: StoreResult
    sent_ms: int


T = TypeVar("T")

StoreSteps: TypeAlias = Generator[StoreRequest, StoreAnswer, T]
"""A piece of protocol that ends with a `T`."""
