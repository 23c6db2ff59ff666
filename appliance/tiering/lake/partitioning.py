"""Which folder a row belongs to: by the hour or day of its event time, or by its own fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from appliance.tiering.lake.decoders import DeadLetter
from appliance.tiering.lake.names import VALUE_MAX_BYTES, folder_part
from appliance.tiering.lake.spec import DAY, HOUR, TIME_PARTS, LakeSpec

EPOCH_MS, EPOCH_S, ISO_8601 = "epoch_ms", "epoch_s", "iso8601"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Years 1 to 9999."""


class Partitioner:
    """Folders of rows."""

    def __init__(self, spec: LakeSpec) -> None:
        self._spec = spec
        self._unit = next((part for part in spec.partition_by if part in (DAY, HOUR)), "")
        self._fields = [part for part in spec.partition_by if part not in (DAY, HOUR)]
        self._folders: dict[int, str] = {}

    @property
    def names(self) -> list[str]:
        """The fields of the folders, which readers see as columns."""
        return [*TIME_PARTS.get(self._unit, ()), *self._fields]

    def folders(self, table: pa.Table, timestamps_ms: Sequence[int]) -> tuple[list[str], list[DeadLetter]]:
        """Folder of each row, and the rows that have none, whose folder counts for nothing."""
        dead: list[DeadLetter] = []
        if not self._unit and not self._fields:
            return [""] * len(timestamps_ms), dead
        folders = [""] * len(timestamps_ms)
        if self._unit:
            size = 3_600_000 if self._unit == HOUR else 86_400_000
            if not self._spec.time_field and _is_usual(timestamps_ms, size):
                folders = [self._folder_of(timestamps_ms[0] // size)] * len(timestamps_ms)
                if not self._fields:
                    return folders, dead
            else:
                self._add_times(folders, size, table, timestamps_ms, dead)
        for name in self._fields:
            for index, value in enumerate(_column(table, name, len(folders))):
                text = None if value is None or value == "" else _text(value)
                if text is not None and len(text.encode()) > VALUE_MAX_BYTES:
                    dead.append(DeadLetter(index, f"field {name} is too long for the name of a folder"))
                    continue
                folders[index] += folder_part(name, text)
        return folders, dead

    def _add_times(
        self, folders: list[str], size: int, table: pa.Table, timestamps_ms: Sequence[int], dead: list[DeadLetter]
    ) -> None:
        for index, time_ms in enumerate(self._times(table, timestamps_ms, dead)):
            if time_ms is not None:
                folders[index] = self._folder_of(time_ms // size)

    def _folder_of(self, number: int) -> str:
        known = self._folders.get(number)
        if known is None:
            at = _EPOCH + (timedelta(hours=number) if self._unit == HOUR else timedelta(days=number))
            known = f"event_date={at.year:04}-{at.month:02}-{at.day:02}/"
            if self._unit == HOUR:
                known += f"event_hour={at.hour:02}/"
            if len(self._folders) > 10_000:
                self._folders.clear()
            self._folders[number] = known
        return known

    def _times(self, table: pa.Table, timestamps_ms: Sequence[int], dead: list[DeadLetter]) -> list[int | None]:
        """Event times in milliseconds; None where a row has none, which then is among the dead."""
        values: Sequence[Any] = timestamps_ms
        read = _read_ms
        name = self._spec.time_field
        if name:
            values, read = _column(table, name, len(timestamps_ms)), self._read_field
        found: list[int | None] = []
        for index, value in enumerate(values):
            try:
                time_ms = read(value)
                if not _FIRST_MS <= time_ms <= _LAST_MS:
                    raise ValueError("not within the years 1 to 9999")
                found.append(time_ms)
            except (ValueError, TypeError, OverflowError) as error:
                dead.append(DeadLetter(index, f"event time {value!r:.60}: {error}"))
                found.append(None)
        return found

    def _read_field(self, value: Any) -> int:
        if value is None:
            raise ValueError(f"field {self._spec.time_field} is missing")
        if isinstance(value, datetime):
            return _ms(value)
        match self._spec.time_format:
            case "epoch_ms":
                return int(value)
            case "epoch_s":
                return int(float(value) * 1_000) if isinstance(value, float | str) else int(value) * 1_000
            case "iso8601":
                return _ms(datetime.fromisoformat(value))
            case pattern:
                return _ms(datetime.strptime(value, pattern))


def _is_usual(timestamps_ms: Sequence[int], size: int) -> bool:
    """Whether all belong to one folder."""
    if not timestamps_ms:
        return False
    first, last = min(timestamps_ms), max(timestamps_ms)
    return first >= _FIRST_MS and last <= _LAST_MS and first // size == last // size


def _read_ms(value: int) -> int:
    return value


def _ms(at: datetime) -> int:
    """Times without a zone are UTC."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _column(table: pa.Table, path: str, rows: int) -> list[Any]:
    """The values of a field; dots lead into objects."""
    names = path.split(".") if path not in table.column_names else [path]
    if names[0] not in table.column_names:
        return [None] * rows
    values: list[Any] = table.column(names[0]).to_pylist()
    for name in names[1:]:
        values = [value.get(name) if isinstance(value, dict) else None for value in values]
    return values


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)
