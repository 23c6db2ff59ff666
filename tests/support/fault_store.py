"""An object store with bad days: refusals, lost answers, delays and damage, by rule or by chance."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from appliance.base.object_store import ObjectInfo, StoredObject, StoreUnavailable, StoreUndecided
from appliance.tiering.body import Body, BodyStore

Rule = Callable[[str, str], str | None]
"""Operation (get, create, swap, delete, list) and name to what happens: None (nothing bad), "refuse" (503, not done),
"lose" (done, but the answer is lost) or "stall" (until `FaultStore.unstall`)."""


class FaultStore:
    """Wraps a store; `rule` decides the fate of each call. Any thread may change the rule."""

    def __init__(self, inner: BodyStore, rule: Rule | None = None) -> None:
        self.inner = inner
        self.rule: Rule = rule or (lambda operation, name: None)
        self.calls: Counter[str] = Counter()
        self.unstall = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.inner.url

    def _fate(self, operation: str, name: str) -> str | None:
        with self._lock:
            self.calls[operation] += 1
        fate = self.rule(operation, name)
        if fate == "stall":
            self.unstall.wait(30)
            return None
        return fate

    def _read(self, operation: str, name: str) -> None:
        if self._fate(operation, name) is not None:
            raise StoreUnavailable(f"{name}: 503 Slow Down")

    def _written(self, fate: str | None, name: str, write: Callable[[], str]) -> str:
        if fate == "refuse":
            raise StoreUndecided(f"{name}: 503 Slow Down")
        etag = write()
        if fate == "lose":
            raise StoreUndecided(f"{name}: connection reset")
        return etag

    def get(self, name: str, *, start: int = 0, length: int | None = None, etag: str | None = None) -> StoredObject:
        self._read("get", name)
        return self.inner.get(name, start=start, length=length, etag=etag)

    def get_if_changed(self, name: str, etag: str) -> StoredObject | None:
        self._read("get", name)
        return self.inner.get_if_changed(name, etag)

    def create(self, name: str, data: bytes | memoryview) -> str:
        return self._written(self._fate("create", name), name, lambda: self.inner.create(name, data))

    def create_from(self, name: str, body: Body) -> str:
        return self._written(self._fate("create", name), name, lambda: self.inner.create_from(name, body))

    def swap(self, name: str, data: bytes, etag: str) -> str:
        return self._written(self._fate("swap", name), name, lambda: self.inner.swap(name, data, etag))

    def delete(self, name: str) -> None:
        def write() -> str:
            self.inner.delete(name)
            return ""

        self._written(self._fate("delete", name), name, write)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._read("list", prefix)
        return self.inner.list(prefix, start_after=start_after)


def away(until: float | None = None) -> Rule:
    """Every call is refused, for ever or until a time of `time.monotonic()`."""
    return lambda operation, name: "refuse" if until is None or time.monotonic() < until else None
