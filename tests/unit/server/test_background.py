from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.base.background import BackgroundFull
from appliance.broker_actors.event_loop import new_event_loop
from appliance.server.background import LoopBackground

WAIT_S = 10


class Loop:
    """A loop on a thread, with a background."""

    def __init__(self, **options: Any) -> None:
        self.loop = new_event_loop()
        self.background = LoopBackground(self.loop, **options)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.background.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop(threads=2, queue_limit=3)
    yield running
    running.stop()


def test_work_runs_in_a_helper_thread_and_its_end_is_told_on_the_loop(loop: Loop) -> None:
    told: queue.Queue[tuple[object, str, str]] = queue.Queue()

    def work() -> str:
        return threading.current_thread().name

    def done(result: str | Exception) -> None:
        told.put((result, threading.current_thread().name, loop.thread.name))

    loop.background.post(lambda: loop.background.run(work, done))
    worker, told_on, loop_thread = told.get(timeout=WAIT_S)
    assert told_on == loop_thread
    assert worker not in (loop_thread, threading.current_thread().name)


def test_an_exception_is_a_result(loop: Loop) -> None:
    told: queue.Queue[object] = queue.Queue()

    def work() -> None:
        raise ValueError("on purpose")

    loop.background.post(lambda: loop.background.run(work, told.put))
    assert isinstance(told.get(timeout=WAIT_S), ValueError)


def test_a_full_queue_refuses_at_the_next_tick(loop: Loop) -> None:
    told: queue.Queue[object] = queue.Queue()
    release = threading.Event()

    def start() -> None:
        for _ in range(4):
            loop.background.run(lambda: release.wait(WAIT_S), told.put)

    loop.background.post(start)
    assert isinstance(told.get(timeout=WAIT_S), BackgroundFull)
    release.set()
    assert [told.get(timeout=WAIT_S) for _ in range(3)] == [True, True, True]


def test_after_the_end_nothing_is_told(loop: Loop) -> None:
    told: queue.Queue[object] = queue.Queue()
    started, release = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait(WAIT_S)

    loop.background.post(lambda: loop.background.run(work, told.put))
    assert started.wait(WAIT_S)
    closing = threading.Thread(target=loop.background.close)
    closing.start()
    release.set()
    closing.join(WAIT_S)
    flushed = threading.Event()
    loop.background.post(flushed.set)
    assert flushed.wait(WAIT_S)
    assert told.empty()


def test_a_posted_callback_that_fails_harms_nobody(loop: Loop) -> None:
    fine = threading.Event()

    def fail() -> None:
        raise RuntimeError("on purpose")

    loop.background.post(fail)
    loop.background.post(fine.set)
    assert fine.wait(WAIT_S)


def test_posting_to_a_loop_that_has_ended_is_no_error() -> None:
    running = Loop()
    running.stop()
    running.background.post(lambda: None)
