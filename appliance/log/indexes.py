"""The sparse indexes of a segment, in memory and on disk.

```
.index       u32 offset - base offset, u32 position of the batch that ends with that offset
.timeindex   i64 largest timestamp so far, u32 offset - base offset of the batch that has it
.txnindex    i16 version 0, i64 producer id, i64 first offset, i64 last offset (the marker), i64 last stable offset
```
An entry of the first two is added for the batch before which more than index.interval.bytes were appended. Memory
serves the reads. On disk an index is appended to at the roll and when the log is flushed: what lies above the recovery
point is built again after a crash anyway.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import NamedTuple

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
ABORTED_ENTRY_BYTES = 34

_ABORTED_ENTRY = struct.Struct(">hqqqq")
_MUST_SWAP = sys.byteorder == "little"
_LOW, _HIGH = (0, 1) if _MUST_SWAP else (1, 0)


class CorruptIndex(ValueError):
    """An index file is not in its format, or names what the log does not have. It is built again from the log."""


class OffsetIndex:
    """Relative offsets and positions, both rising. `offsets[i]` is the last offset of the batch at `positions[i]`."""

    __slots__ = ("offsets", "positions", "stored_entries")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.stored_entries = 0
        """How many of the entries the file holds."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_in_memory(self) -> int:
        return len(self.offsets) * OFFSET_ENTRY_BYTES

    def append(self, relative_offset: int, position: int) -> None:
        # In this order: a helper thread that finds an offset also finds its position.
        self.positions.append(position)
        self.offsets.append(relative_offset)

    def position_before(self, relative_offset: int) -> int:
        """The position of a batch at or before the one that holds the offset."""
        # An entry's offset is the last one of its batch, so the entry with exactly this offset is the batch itself.
        slot = bisect_right(self.offsets, relative_offset)
        return self.positions[slot - 1] if slot else 0

    def position_at_most(self, position: int) -> int:
        """The largest indexed position that is not above `position`; 0 if there is none."""
        slot = bisect_right(self.positions, position)
        return self.positions[slot - 1] if slot else 0

    def truncate(self, size_bytes: int) -> None:
        """Forget the entries of batches at or above a position of the log."""
        count = bisect_right(self.positions, size_bytes - 1) if size_bytes else 0
        del self.offsets[count:]
        del self.positions[count:]
        self.stored_entries = min(self.stored_entries, count)

    def unstored(self) -> bytes:
        """The entries that the file lacks, as it wants them."""
        start = self.stored_entries
        entries = array("I", bytes((len(self) - start) * OFFSET_ENTRY_BYTES))
        entries[0::2], entries[1::2] = self.offsets[start:], self.positions[start:]
        return _big_endian(entries)

    @classmethod
    def from_bytes(cls, content: bytes, log_size_bytes: int) -> OffsetIndex:
        """Read a file. Zeros at its end (Kafka allocates the file in advance) are dropped.

        Raises:
            CorruptIndex: it is not whole entries, does not rise at its ends, or goes beyond the log.
        """
        index = cls()
        entries = _words(content, OFFSET_ENTRY_BYTES)
        index.offsets, index.positions = entries[0::2], entries[1::2]
        index.stored_entries = count = len(index)
        if count and not (_rises(index.offsets) and _rises(index.positions)):
            raise CorruptIndex("the entries of an offset index do not rise")
        if count and index.positions[-1] >= log_size_bytes:
            raise CorruptIndex(f"position {index.positions[-1]} in a log of {log_size_bytes} bytes")
        return index


class TimeIndex:
    """Largest timestamps so far, strictly rising, with the offset that had them."""

    __slots__ = ("offsets", "stored_entries", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")
        self.stored_entries = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry, unless the last one has this timestamp already. Negative timestamps are none."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.offsets.append(relative_offset)
            self.timestamps.append(timestamp)

    def offset_before(self, timestamp: int) -> int:
        """A relative offset below which no record has `timestamp` or a later one."""
        slot = bisect_right(self.timestamps, timestamp - 1)
        return self.offsets[slot - 1] if slot else 0

    def truncate(self, relative_offset: int) -> None:
        """Forget the entries at or above a relative offset."""
        count = bisect_right(self.offsets, relative_offset - 1) if relative_offset > 0 else 0
        del self.timestamps[count:]
        del self.offsets[count:]
        self.stored_entries = min(self.stored_entries, count)

    def unstored(self) -> bytes:
        start = self.stored_entries
        halves = array("I", self.timestamps[start:].tobytes())
        entries = array("I", bytes((len(self) - start) * TIME_ENTRY_BYTES))
        entries[0::3], entries[1::3], entries[2::3] = halves[_HIGH::2], halves[_LOW::2], self.offsets[start:]
        return _big_endian(entries)

    @classmethod
    def from_bytes(cls, content: bytes) -> TimeIndex:
        """Read a file. Zeros at its end are dropped.

        Raises:
            CorruptIndex: it is not whole entries, or does not rise at its ends.
        """
        index = cls()
        entries = _words(content, TIME_ENTRY_BYTES)
        halves = array("I", bytes(len(entries) // 3 * 8))
        halves[_HIGH::2], halves[_LOW::2] = entries[0::3], entries[1::3]
        index.timestamps = array("q", halves.tobytes())
        index.offsets = entries[2::3]
        index.stored_entries = len(index)
        if len(index) and not _rises(index.timestamps):
            raise CorruptIndex("the timestamps of a time index do not rise")
        return index


class AbortedTransaction(NamedTuple):
    """A transaction whose records read_committed leaves out."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""
    last_stable_offset: int
    """When the marker was written. A search that has passed it may stop: what follows began later."""


def aborted_to_bytes(transactions: list[AbortedTransaction]) -> bytes:
    return b"".join(_ABORTED_ENTRY.pack(0, *transaction) for transaction in transactions)


def aborted_from_bytes(content: bytes) -> list[AbortedTransaction]:
    """Read a .txnindex.

    Raises:
        CorruptIndex: a piece of an entry, an unknown version, or markers that do not rise.
    """
    transactions = aborted_in_order(content)
    if len(transactions) * ABORTED_ENTRY_BYTES != len(content):
        raise CorruptIndex(
            f"a transaction index of {len(content)} bytes, of which {len(transactions)} entries are good"
        )
    return transactions


def aborted_in_order(content: bytes) -> list[AbortedTransaction]:
    """The entries of a .txnindex before the first that is not whole or makes no sense."""
    transactions: list[AbortedTransaction] = []
    whole = len(content) - len(content) % ABORTED_ENTRY_BYTES
    for version, *fields in _ABORTED_ENTRY.iter_unpack(content[:whole]):
        entry = AbortedTransaction(*fields)
        if version != 0 or entry.first_offset < 0 or entry.last_offset <= entry.first_offset:
            break
        if transactions and entry.last_offset <= transactions[-1].last_offset:
            break
        transactions.append(entry)
    return transactions


_CHECKED_ENTRIES = 16


def _words(content: bytes, entry_bytes: int) -> array[int]:
    """The 32-bit words of whole entries, without the zeros at the end."""
    # Only an entry's last zeros are stripped with those behind it; no whole entry but padding is all zeros.
    used = len(content.rstrip(b"\0"))
    size = -(-used // entry_bytes) * entry_bytes
    if size > len(content):
        raise CorruptIndex(f"an index of {len(content)} bytes with entries of {entry_bytes}")
    words = array("I", content[:size])
    if _MUST_SWAP:
        words.byteswap()
    return words


def _big_endian(words: array[int]) -> bytes:
    if _MUST_SWAP:
        words.byteswap()
    return words.tobytes()


def _rises(values: array[int]) -> bool:
    """Whether first, last and the last few are in order. The whole would take too long for a read."""
    return values[0] <= values[-1] and strictly_rises(values[-_CHECKED_ENTRIES:])


def strictly_rises(values: array[int]) -> bool:
    return all(map(int.__lt__, values, values[1:]))
