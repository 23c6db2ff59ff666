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
from appliance.server.connection import Connection
from appliance.server.server import Server

_ROOT = str(Path(appliance.__file__).parent)
_ROADS = (Connection._on_readable.__code__, Connection._on_writable.__code__, Server._tick.__code__)
"""Where the loop begins with something that a client sent; what runs by the clock is not counted."""
_NOT_SYSTEM_CALLS = frozenset({"urandom", "fspath", "fsencode", "fsdecode", "fileno"})


class CallCounter:
    """Counts on the threads of one name that begin within `watching`."""

    def __init__(self, thread_name: str) -> None:
        self._thread_name = thread_name
        self._is_counting = False
        self._depth = 0
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
        if event == "call":
            code = frame.f_code
            if code in _ROADS:
                self._depth += 1
            if self._is_counting and self._depth and code.co_filename.startswith(_ROOT):
                self.calls[f"{code.co_filename[len(_ROOT) + 1 :]}:{code.co_qualname}"] += 1
        elif event == "return":
            if frame.f_code in _ROADS:
                self._depth -= 1
        elif event == "c_call" and self._is_counting and self._depth:
            is_one = argument.__module__ == "posix" or isinstance(getattr(argument, "__self__", None), socket.socket)
            if is_one and argument.__name__ not in _NOT_SYSTEM_CALLS:
                self.system_calls[argument.__name__] += 1
