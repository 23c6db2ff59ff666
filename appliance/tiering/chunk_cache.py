"""Pieces of tiered objects on the local disk, the least recently used ones leaving first.

A cache only: it is emptied at start, and a disk that fails makes it smaller, not wrong. Every chunk is checked against
the checksum that it had when it was stored.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

_log = logging.getLogger(__name__)
_SUFFIX = ".chunk"

ChunkKey = tuple[str, int]
"""Full name of an object and the number of the chunk in it."""


class _Stored(NamedTuple):
    path: Path
    length: int
    crc32c: int


class ChunkCache:
    """Any thread may call any method."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """An empty cache in `directory`, which is created and cleared. `max_bytes` 0 keeps nothing.

        Raises: OSError: the directory cannot be made.
        """
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._directory = directory
        self._chunks: OrderedDict[ChunkKey, _Stored] = OrderedDict()
        self._next_number = 0
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.glob(f"*{_SUFFIX}"):
            path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, key: object) -> bool:
        return key in self._chunks

    def get(self, key: ChunkKey) -> bytes | None:
        """The chunk's bytes, or None."""
        with self._lock:
            stored = self._chunks.get(key)
            if stored is not None:
                self._chunks.move_to_end(key)
        data = self._read(stored) if stored is not None else None
        with self._lock:
            if data is not None:
                self.hits += 1
                return data
            self.misses += 1
            if stored is not None and self._chunks.get(key) is stored:
                self._remove(key)
        return None

    def put(self, key: ChunkKey, data: bytes) -> None:
        """Keep a chunk; others leave to make room for it."""
        if len(data) > self.max_bytes:
            return
        with self._lock:
            self._next_number += 1
            path = self._directory / f"{self._next_number}{_SUFFIX}"
        try:
            path.write_bytes(data)
        except OSError as error:
            _log.warning("chunk cache %s: %s", self._directory, error)
            path.unlink(missing_ok=True)
            return
        with self._lock:
            if key in self._chunks:
                self._remove(key)
            self._chunks[key] = _Stored(path, len(data), crc32c(data))
            self.size_bytes += len(data)
            while self.size_bytes > self.max_bytes:
                self._remove(next(iter(self._chunks)))

    def forget(self, name: str) -> None:
        """Drop all chunks of an object."""
        with self._lock:
            for key in [key for key in self._chunks if key[0] == name]:
                self._remove(key)

    def _remove(self, key: ChunkKey) -> None:
        stored = self._chunks.pop(key)
        self.size_bytes -= stored.length
        stored.path.unlink(missing_ok=True)

    @staticmethod
    def _read(stored: _Stored) -> bytes | None:
        try:
            data = stored.path.read_bytes()
        except OSError:
            # Removed meanwhile by another thread, or the disk fails: the object store has it still.
            return None
        return data if len(data) == stored.length and crc32c(data) == stored.crc32c else None
