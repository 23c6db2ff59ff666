"""The thin I/O around the metadata log's protocol: its requests in helper threads, its pauses on timers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
)
from appliance.controller.store_calls import (
    Absent,
    Create,
    Delete,
    Done,
    Exists,
    Found,
    Get,
    ListNames,
    Mismatch,
    Names,
    NoAnswer,
    Pause,
    StoreAnswer,
    StoreRequest,
    StoreResult,
    StoreSteps,
    Swap,
    Written,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class MetadataStore:
    """Runs pieces of protocol against an object store. All methods are called on the loop's thread.

    Args:
        store: where the log lies.
        background: threads for this alone; a store that hangs must not hold up anything else.
        clock: for the times at which requests left.
        request_timeout_ms: after that a request counts as unanswered; whatever it brings later is not looked at.
    """

    def __init__(self, store: ObjectStore, background: Background, clock: Clock, request_timeout_ms: int) -> None:
        self._store = store
        self._background = background
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._closed = False

    def run(self, steps: StoreSteps[T], done: Callable[[T | Exception], None]) -> None:
        """Run `steps` to their end; `done` gets what they return, or the exception that ended them."""
        self._resume(steps, None, done)

    def close(self) -> None:
        """Nothing goes on any more; no `done` is called."""
        self._closed = True

    def _resume(self, steps: StoreSteps[Any], answer: StoreAnswer | None, done: Callable[[Any], None]) -> None:
        if self._closed:
            return
        try:
            request = next(steps) if answer is None else steps.send(answer)
        except StopIteration as stop:
            done(stop.value)
            return
        except Exception as error:
            done(error)
            return
        sent_ms = self._clock.monotonic_ms()

        def resume(result: StoreResult) -> None:
            self._resume(steps, StoreAnswer(result, sent_ms), done)

        if isinstance(request, Pause):
            self._background.schedule(request.delay_ms, lambda: resume(Done()))
        else:
            self._ask(request, resume)

    def _ask(self, request: StoreRequest, resume: Callable[[StoreResult], None]) -> None:
        answered = False

        def once(result: StoreResult) -> None:
            nonlocal answered
            if not answered:
                answered = True
                timer.cancel()
                resume(result)

        timer = self._background.schedule(
            self._request_timeout_ms, lambda: once(NoAnswer(f"no answer within {self._request_timeout_ms} ms"))
        )

        def came(result: StoreResult | Exception) -> None:
            if isinstance(result, Exception):
                result = NoAnswer(f"{type(result).__name__}: {result}")
            once(result)

        self._background.run(lambda: perform(self._store, request), came)


def perform(store: ObjectStore, request: StoreRequest) -> StoreResult:
    """One request to the store. Blocks."""
    try:
        match request:
            case Get(name):
                stored = store.get(name)
                return Found(stored.data, stored.etag)
            case Create(name, data):
                return Written(store.create(name, data))
            case Swap(name, data, etag):
                return Written(store.swap(name, data, etag))
            case Delete(name):
                store.delete(name)
                return Done()
            case ListNames(prefix, limit):
                return Names(tuple(row.name for row in itertools.islice(store.list(prefix), limit)))
            case Pause():
                return Done()
    except ObjectNotFound:
        return Absent()
    except ObjectExists:
        return Exists()
    except ETagMismatch:
        return Mismatch()
    except ObjectStoreError as error:
        # Refused (credentials, a bucket that is gone) too: an operator may put it right, and until then we wait.
        return NoAnswer(str(error))
