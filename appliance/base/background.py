"""Work that must not sit on a broker's event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Background(Protocol):
    """The event loop as the parts above it see it. All methods are called on the loop's thread, but for `post`."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `work` in a helper thread, then `done` on the loop with its result or the exception it raised.

        The queue is bounded; when it is full, `done` gets `BackgroundFull` at the next tick.
        """

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop after `delay_ms` milliseconds, unless the timer is cancelled before."""

    def post(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop soon; the one method that any thread may call."""


class BackgroundFull(Exception):
    """More work waits for helper threads than the queue holds; refuse the request with a retriable error."""
