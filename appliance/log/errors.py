"""What a log says when it cannot do what it was asked."""

from __future__ import annotations

import errno
from pathlib import Path

from appliance.base.errors import ErrorCode, KafkaError

SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)


class OffsetOutOfRange(KafkaError):
    """The offset lies below the local log start or above the log end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in [{start}, {end}]")
        self.offset = offset
        self.start = start
        self.end = end


class LogWriteFailed(KafkaError):
    """The disk refused a write or a flush. The log stands where it stood before the attempt."""

    def __init__(self, doing: str, error: OSError, folder: Path, *, cut_back: bool = True) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing}: {error}")
        self.folder = folder
        """Of the log, or the data directory: it tells which directory failed."""
        self.disk_full = error.errno in SPACE_ERRORS and cut_back
        """True: writes may work again once there is space. False: take the directory offline, believe nothing."""


class LogUnavailable(KafkaError):
    """The log lies, or may lie, where it cannot be used now; it is not begun anew elsewhere."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason)
