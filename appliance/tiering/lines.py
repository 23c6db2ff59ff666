"""Where the requests of many partitions wait for their turn at the object store."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from appliance.base.background import Timer
from appliance.tiering.events import Event, ReadFailed, Request, UploadUndecided, WriteUndecided

T = TypeVar("T")
"""Who asks."""


class Attempt:
    """One request on its way."""

    def __init__(self) -> None:
        self.answered = False
        self.cancelled = threading.Event()
        self.timer: Timer | None = None


class RequestLine(Generic[T]):
    """Requests that wait for their turn; fewer at a time while the store gives no answers."""

    def __init__(self, limit_max: int) -> None:
        self.limit_max = limit_max
        self.limit = limit_max
        self.under_way = 0
        self.waiting: deque[tuple[T, Request]] = deque()

    def learn(self, event: Event) -> None:
        if isinstance(event, UploadUndecided | WriteUndecided | ReadFailed):
            self.limit = max(1, self.limit // 2)
        else:
            self.limit = min(self.limit_max, self.limit + 1)
