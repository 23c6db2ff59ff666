"""Bodies of objects that are too large to be held in memory: read piece by piece while they are sent."""

from __future__ import annotations

import os
import threading
from typing import Protocol

import crc32c

from appliance.base.object_store import ObjectStore

PIECE_BYTES = 1 << 20
"""How much of a body is in memory at a time."""


class BodyCancelled(Exception):
    """Whoever sends the body has been told to stop: its deadline is over."""


class Body(Protocol):
    """Bytes that can be read at any position, more than once, from one thread at a time."""

    @property
    def size(self) -> int: ...

    @property
    def known_crc32c(self) -> int | None:
        """The CRC-32C of the whole, if that is known without reading it."""

    def read_at(self, position: int, length: int) -> bytes:
        """Exactly `length` bytes, fewer only at the end. Raises: OSError, BodyCancelled."""


class BodyStore(ObjectStore, Protocol):
    """An object store that also takes bodies piece by piece; `open_store` gives nothing less."""

    def create_from(self, name: str, body: Body) -> str:
        """As `create`. Raises what `create` raises; BodyCancelled or OSError from the body leave it undecided."""


class BytesBody:
    """A body that is in memory already."""

    known_crc32c = None

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self.size = len(self._data)

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(self._data[position : position + length])


class FileBody:
    """The first `file_length` bytes of a file, followed by `tail`.

    Reads by `pread` and never by a memory map: a file that somebody truncates meanwhile is then an error, not SIGBUS.
    """

    def __init__(
        self,
        descriptor: int,
        file_length: int,
        tail: bytes,
        cancelled: threading.Event | None = None,
        known_crc32c: int | None = None,
    ) -> None:
        """Once `cancelled` is set, the next read fails with BodyCancelled."""
        self.known_crc32c = known_crc32c
        self._descriptor = descriptor
        self._file_length = file_length
        self._tail = tail
        self._cancelled = cancelled
        self.size = file_length + len(tail)

    def read_at(self, position: int, length: int) -> bytes:
        if self._cancelled is not None and self._cancelled.is_set():
            raise BodyCancelled("the upload's deadline is over")
        if position >= self._file_length:
            start = position - self._file_length
            return self._tail[start : start + length]
        wanted = min(length, self._file_length - position)
        data = read_exactly(self._descriptor, position, wanted)
        if wanted < length:
            data += self._tail[: length - wanted]
        return data


def read_exactly(descriptor: int, position: int, length: int) -> bytes:
    """`length` bytes from a file. Raises: OSError, also when the file ends before."""
    pieces: list[bytes] = []
    missing = length
    while missing:
        piece = os.pread(descriptor, missing, position + length - missing)
        if not piece:
            raise OSError(f"file ends {missing} bytes before position {position + length}")
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def body_crc32c(body: Body) -> int:
    """The CRC-32C of a whole body."""
    if body.known_crc32c is not None:
        return body.known_crc32c
    crc = 0
    for position in range(0, body.size, PIECE_BYTES):
        crc = crc32c.crc32c(body.read_at(position, PIECE_BYTES), crc)
    return crc
