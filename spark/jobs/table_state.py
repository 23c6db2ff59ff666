"""One partition of a topic as a table, as tasks keep it: the values of each key, found by key and time. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

ROWS_MAX = 20_000_000


class TableTooLarge(Exception):
    """A partition of the table has more rows than a task may hold."""


class Cell(NamedTuple):
    """What a key was from some time on; a null value deleted it."""

    time_us: int
    offset: int
    value: bytes | None


class TablePartition:
    """Takes records in the order of their offsets.

    Args:
        as_of: keep all values of a key, to be asked for the one that held at some time; else the last alone.
        rows_max: values held at most.
    """

    def __init__(self, as_of: bool, rows_max: int = ROWS_MAX) -> None:
        self.next_offset = 0
        self._as_of = as_of
        self._rows_max = rows_max
        self._rows = 0
        self._cells: dict[bytes, list[Cell]] = {}

    def take(self, rows: Iterable[tuple[bytes | None, bytes | None, int, int]]) -> None:
        """Key, value, offset and time of records. Raises: TableTooLarge."""
        for key, value, offset, time_us in rows:
            if key is None:
                continue
            cells = self._cells.setdefault(key, [])
            if not self._as_of:
                self._rows -= len(cells)
                cells.clear()
            # Times need not rise with offsets; of two records of one time the later offset counts.
            bisect.insort(cells, Cell(time_us, offset, value))
            self._rows += 1
            if value is None and not self._as_of:
                del self._cells[key]
                self._rows -= 1
            if self._rows > self._rows_max:
                raise TableTooLarge(f"the table has more than {self._rows_max} values in one partition")

    def at(self, key: bytes | None, time_us: int) -> Cell | None:
        """The key's value: the last one, or the last at that time or before; None where there is none."""
        cells = self._cells.get(key) if key is not None else None
        if not cells:
            return None
        # `value` never decides: no two cells have one offset.
        found = bisect.bisect_right(cells, (time_us, 1 << 63)) if self._as_of else len(cells)
        cell = cells[found - 1] if found else None
        return None if cell is None or cell.value is None else cell
