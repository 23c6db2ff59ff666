"""Things that are begun at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from appliance.base.object_store import ObjectStoreError


def racing(count: int, action: Callable[[int], object]) -> list[object]:
    """Results of `action(0)` … `action(count - 1)`, started together; an error of a store is a result."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait()
        try:
            return action(number)
        except ObjectStoreError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
