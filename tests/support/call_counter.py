"""Counts what a broker's event loop does: calls of our own Python functions, and system calls. No clock is involved."""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import appliance

_ROOT = str(Path(appliance.__file__).parent)
_TIMERS = ("timers.py", "broker_metrics.py", "log_care.py", "clock.py", "controller_heartbeat.py", "controller_line.py")
"""What runs by the clock on the same loop, and not for a request. (A request asks the clock once a tick.)"""
_NOT_SYSTEM_CALLS = frozenset({"urandom", "fspath", "fsencode", "fsdecode", "fileno"})


class CallCounter:
    """Counts on the threads of one name that begin within `watching`."""

    def __init__(self, thread_name: str) -> None:
        self._thread_name = thread_name
        self._is_counting = False
        self.calls: Counter[str] = Counter()
        """By function."""
        self.system_calls: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Threads that start meanwhile can be counted."""
        threading.setprofile(self._begin)
        try:
            yield
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.calls.clear()
        self.system_calls.clear()
        self._is_counting = True
        try:
            yield
        finally:
            self._is_counting = False

    def _begin(self, frame: FrameType, event: str, argument: Any) -> None:
        """The first event of a new thread."""
        is_wanted = threading.current_thread().name == self._thread_name
        sys.setprofile(self._event if is_wanted else None)

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._is_counting:
            return
        if event == "call":
            code = frame.f_code
            if (
                code.co_filename.startswith(_ROOT)
                and not code.co_filename.endswith(_TIMERS)
                and "/tiering/" not in code.co_filename
            ):
                self.calls[f"{code.co_filename[len(_ROOT) + 1 :]}:{code.co_qualname}"] += 1
        elif event == "c_call":
            is_one = argument.__module__ == "posix" or isinstance(getattr(argument, "__self__", None), socket.socket)
            if is_one and argument.__name__ not in _NOT_SYSTEM_CALLS:
                self.system_calls[argument.__name__] += 1
