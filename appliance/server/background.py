"""The event loop's helpers: threads for what blocks, timers, and the way back onto the loop from any thread."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from appliance.base.background import BackgroundFull
from appliance.server.timers import LoopTimers, Timer

T = TypeVar("T")

_log = logging.getLogger(__name__)

_Job = tuple[Callable[[], Any], Callable[[Any], None]]


class LoopBackground:
    """`appliance.base.background.Background` on an asyncio loop. Threads are started when they are first needed.

    Give each kind of work its own instance (with the same timers) where one kind must not hold up another: uploads may
    take many seconds, a remote read should not wait for them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: int = 4,
        queue_limit: int = 1_000,
        timers: LoopTimers | None = None,
        name: str = "helper",
    ) -> None:
        self._loop = loop
        self._threads_max = threads
        self._queue_limit = queue_limit
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False
        self.timers = timers or LoopTimers(loop)

    @property
    def unfinished(self) -> int:
        """Jobs that wait or run."""
        return self._unfinished

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        if self._closed or self._unfinished >= self._queue_limit:
            full = BackgroundFull(f"{self._queue_limit} jobs wait for {self._name} threads")
            self._loop.call_soon(done, full)
            return
        self._unfinished += 1
        if self._unfinished > len(self._threads) < self._threads_max:
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((work, done))

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self.timers.schedule(delay_ms, callback)

    def post(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._guarded, callback)
        except RuntimeError:
            # The loop is closed: nobody is left to hear it.
            if not self._loop.is_closed():
                raise

    def close(self, timeout_s: float = 5.0) -> None:
        """Let running jobs end, drop those that wait; their `done` is not called any more."""
        self._closed = True
        try:
            while True:
                self._jobs.get_nowait()
        except queue.Empty:
            pass
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    @staticmethod
    def _guarded(callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            _log.exception("a posted callback failed")

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            work, done = job
            result: Any
            try:
                result = work()
            except Exception as error:
                result = error
            self.post(lambda done=done, result=result: self._finish(done, result))  # type: ignore[misc]
            del job, work, done, result

    def _finish(self, done: Callable[[Any], None], result: Any) -> None:
        self._unfinished -= 1
        if not self._closed:
            done(result)
