"""Work on many logs by a bounded number of threads for each data directory: disks wait for nobody else's."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def for_each(groups: Sequence[Sequence[T]], threads: int, work: Callable[[T], None]) -> None:
    """Call `work` with each item, with `threads` threads for each group; 0: all in the caller's own thread.

    Returns when all is done. The first exception ends the work and is raised.
    """
    if threads == 0:
        for group in groups:
            for item in group:
                work(item)
        return
    failures: list[BaseException] = []

    def take_turns(waiting: deque[T]) -> None:
        while not failures:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            try:
                work(item)
            except BaseException as error:
                failures.append(error)

    helpers = []
    for group in groups:
        waiting = deque(group)
        for number in range(min(threads, len(group))):
            helper = threading.Thread(target=take_turns, args=(waiting,), name=f"logs-{number}", daemon=True)
            helpers.append(helper)
            helper.start()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
