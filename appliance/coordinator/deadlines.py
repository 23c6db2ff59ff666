"""When something is to happen, without a clock: a machine sets deadlines, its owner asks for the earliest."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")
E = TypeVar("E")


class Deadlines(Generic[K, E]):
    """One deadline per key. Moving one later costs a dictionary entry: heartbeats do it all the time."""

    def __init__(self) -> None:
        self._due: dict[K, tuple[int, E]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._queued: dict[K, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ms: int, event: E) -> None:
        """Let `event` be due at `due_ms`, instead of what was set for `key` before."""
        self._due[key] = (due_ms, event)
        queued = self._queued.get(key)
        if queued is None or queued > due_ms:
            self._queue(key, due_ms)

    def due_ms(self, key: K) -> int | None:
        """When the event of `key` is due, if there is one."""
        entry = self._due.get(key)
        return None if entry is None else entry[0]

    def cancel(self, key: K) -> None:
        """Forget the deadline of `key`, if there is one."""
        self._due.pop(key, None)

    def next_due_ms(self) -> int | None:
        """When to ask again; may be too early, never too late."""
        while self._heap:
            due_ms, _, key = self._heap[0]
            if self._queued.get(key) == due_ms and key in self._due:
                return due_ms
            self._drop_first()
        return None

    def pop_due(self, now_ms: int) -> E | None:
        """Take one event that is due, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = self._heap[0]
            if self._queued.get(key) != queued_ms:
                heapq.heappop(self._heap)
                continue
            self._drop_first()
            entry = self._due.get(key)
            if entry is None:
                continue
            due_ms, event = entry
            if due_ms <= now_ms:
                del self._due[key]
                return event
            self._queue(key, due_ms)
        return None

    def _queue(self, key: K, due_ms: int) -> None:
        self._sequence += 1
        self._queued[key] = due_ms
        heapq.heappush(self._heap, (due_ms, self._sequence, key))

    def _drop_first(self) -> None:
        due_ms, _, key = heapq.heappop(self._heap)
        if self._queued.get(key) == due_ms:
            del self._queued[key]
