"""Who waits for a partition: acks=all for the high watermark, long polls for something to read. Pure.

Both are woken once a tick, not once an append.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol

from appliance.base.errors import ErrorCode

_log = logging.getLogger(__name__)


class Waiter(Protocol):
    """A long poll."""

    def woken(self, partition: object) -> None:
        """The partition has more to read, or has changed so that waiting makes no sense."""


class AckWaiter(Protocol):
    """Somebody who waits for records to be committed."""

    def committed(self) -> None:
        """The high watermark has passed them, in the leader epoch they were appended in."""

    def failed(self, error: ErrorCode) -> None:
        """The partition stopped leading before, or too few replicas are in sync."""


class AckPurgatory:
    """Waiters for the high watermark, in the order of the log."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, AckWaiter]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, required_offset: int, waiter: AckWaiter) -> None:
        """Call back when the high watermark has reached `required_offset` (one past the last record).

        A duplicate of an older batch may require less than those before it; it is served with them.
        """
        self._waiting.append((required_offset, waiter))

    def waiters(self) -> list[AckWaiter]:
        """All of them, in the order of the log."""
        return [waiter for _, waiter in self._waiting]

    def advanced(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiter = waiting.popleft()[1]
            try:
                waiter.committed()
            except Exception:
                _log.exception("somebody who waited for offset %d could not be told", high_watermark)

    def fail_all(self, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, waiter in waiting:
            try:
                waiter.failed(error)
            except Exception:
                # Whoever changes the partition must come to the end of it, whatever became of one answer.
                _log.exception("somebody who waited could not be told of %s", error.name)
