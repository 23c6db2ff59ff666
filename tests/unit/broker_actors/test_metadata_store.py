"""The I/O around the metadata log's protocol, and the controller's feed for brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.base.object_store import StoreRefused
from appliance.broker_actors.metadata_feed import KEPT_COMMITS, MetadataFeed
from appliance.broker_actors.metadata_store import MetadataStore, perform
from appliance.controller.commits import Commit, decode_commit, decode_snapshot
from appliance.controller.log_reader import LogPosition
from appliance.controller.records import ControllerClaimed, ProducerIdsAllocated
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
    StoreSteps,
    Swap,
    Written,
)
from appliance.tiering.directory import DirectoryStore
from appliance.wire.messages.internal_metadata import MetadataFetchRequest, MetadataFetchResponse
from tests.support.fault_store import FaultStore


class ManualLoop:
    """Background and clock that a test moves by hand. `run` waits in `jobs`."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.timers: list[tuple[int, list[Callable[[], None] | None]]] = []

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        cell: list[Callable[[], None] | None] = [callback]
        self.timers.append((self.now + delay_ms, cell))

        class Timer:
            def cancel(self) -> None:
                cell[0] = None

        return Timer()

    def work(self) -> None:
        """Do what helper threads would."""
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

    def advance(self, ms: int) -> None:
        self.now += ms
        due = [cell for at, cell in self.timers if at <= self.now]
        self.timers = [(at, cell) for at, cell in self.timers if at > self.now]
        for cell in due:
            if cell[0] is not None:
                cell[0]()


def test_each_answer_of_the_store_has_its_word(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert perform(store, Get("a")) == Absent()
    written = perform(store, Create("a", b"1"))
    assert isinstance(written, Written)
    assert perform(store, Create("a", b"2")) == Exists()
    assert perform(store, Get("a")) == Found(b"1", written.etag)
    assert perform(store, Swap("a", b"3", "other")) == Mismatch()
    assert isinstance(perform(store, Swap("a", b"3", written.etag)), Written)
    assert perform(store, Swap("x", b"3", "other")) in (Absent(), Mismatch())
    perform(store, Create("b", b""))
    assert perform(store, ListNames("", 1)) == Names(("a",))
    assert perform(store, Delete("a")) == Done()
    assert perform(store, Get("a")) == Absent()


def test_no_usable_answer_and_a_refusal_are_no_answer(tmp_path: Path) -> None:
    store = FaultStore(DirectoryStore(tmp_path), lambda operation, name: "refuse")
    assert perform(store, Create("a", b"1")) == NoAnswer("a: 503 Slow Down")
    assert perform(store, Get("a")) == NoAnswer("a: 503 Slow Down")

    class Refusing(FaultStore):
        def create(self, name: str, data: bytes | memoryview) -> str:
            raise StoreRefused("access denied")

    assert perform(Refusing(DirectoryStore(tmp_path)), Create("a", b"1")) == NoAnswer("access denied")


def asking(*requests: StoreRequest) -> StoreSteps[list[StoreAnswer]]:
    answers = []
    for request in requests:
        answers.append((yield request))
    return answers


def test_steps_run_to_their_end_and_know_when_requests_left(tmp_path: Path) -> None:
    loop, results = ManualLoop(), []
    MetadataStore(DirectoryStore(tmp_path), loop, loop, 100).run(asking(Get("a"), Pause(50), Get("b")), results.append)
    loop.work()
    loop.advance(49)
    assert not loop.jobs
    loop.advance(1)
    loop.work()
    assert results == [[StoreAnswer(Absent(), 0), StoreAnswer(Done(), 0), StoreAnswer(Absent(), 50)]]


def test_a_store_that_hangs_counts_as_unanswered_and_what_it_says_later_is_not_heard(tmp_path: Path) -> None:
    loop, results = ManualLoop(), []
    MetadataStore(DirectoryStore(tmp_path), loop, loop, 100).run(asking(Create("a", b"1"), Get("a")), results.append)
    loop.advance(100)
    late, loop.jobs = loop.jobs[:1], loop.jobs[1:]
    loop.work()
    for work, done in late:
        done(work())
    assert results == [[StoreAnswer(NoAnswer("no answer within 100 ms"), 0), StoreAnswer(Absent(), 100)]]


def test_an_exception_of_the_steps_ends_them(tmp_path: Path) -> None:
    def failing() -> StoreSteps[None]:
        yield Get("a")
        raise ValueError("the log does not fit")

    loop, results = ManualLoop(), []
    MetadataStore(DirectoryStore(tmp_path), loop, loop, 100).run(failing(), results.append)
    loop.work()
    assert [str(result) for result in results] == ["the log does not fit"]


def test_after_the_end_nothing_goes_on(tmp_path: Path) -> None:
    loop, results = ManualLoop(), []
    steps = MetadataStore(DirectoryStore(tmp_path), loop, loop, 100)
    steps.run(asking(Get("a")), results.append)
    steps.close()
    loop.work()
    assert results == []


class Answered:
    """In place of a `Pending`."""

    def __init__(self) -> None:
        self.response: MetadataFetchResponse | None = None
        self.closed: Callable[[], None] = lambda: None

    def answer(self, response: MetadataFetchResponse) -> None:
        assert self.response is None
        self.response = response

    def on_close(self, callback: Callable[[], None]) -> None:
        self.closed = callback


class Feeding:
    """A feed and the log that it follows."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.feed = MetadataFeed(self.loop, self.loop, 1)
        self.at = LogPosition()
        self.feed.begin(self.at)

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.at.next_number
            record = ControllerClaimed(1, 1, "h", 1) if number == 0 else ProducerIdsAllocated(1, 1, number)
            commit = Commit(number, 1, 1, 0, number.to_bytes(16, "big"), self.at.nonce, (record,))
            self.at = self.at.after(commit)
            self.feed.committed(commit, self.at)

    def fetch(self, position: int, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> Any:
        pending = Answered()
        request = MetadataFetchRequest(position=position, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
        answer = self.feed.fetch(request, pending)  # type: ignore[arg-type]
        return pending if answer is pending else answer


def numbers(response: MetadataFetchResponse | None) -> list[int]:
    assert response is not None
    return [decode_commit(data).number for data in response.commits]


def test_a_follower_gets_the_commits_that_it_lacks() -> None:
    feeding = Feeding()
    feeding.commit(5)
    assert numbers(feeding.fetch(-1)) == [0, 1, 2, 3, 4]
    assert numbers(feeding.fetch(2)) == [3, 4]
    assert feeding.fetch(2).position == 4


def test_an_answer_is_bounded_but_never_empty() -> None:
    feeding = Feeding()
    feeding.commit(5)
    assert numbers(feeding.fetch(1, max_bytes=1)) == [2]


def test_a_follower_without_news_waits_for_the_next_commit() -> None:
    feeding = Feeding()
    feeding.commit(2)
    pending = feeding.fetch(1, max_wait_ms=500)
    assert pending.response is None
    feeding.commit()
    assert numbers(pending.response) == [2]
    feeding.loop.advance(1_000)


def test_a_wait_ends_in_time_with_nothing() -> None:
    feeding = Feeding()
    feeding.commit(2)
    pending = feeding.fetch(1, max_wait_ms=500)
    feeding.loop.advance(500)
    assert (numbers(pending.response), pending.response.position) == ([], 1)


def test_a_follower_that_went_away_is_forgotten() -> None:
    feeding = Feeding()
    feeding.commit()
    pending = feeding.fetch(0, max_wait_ms=500)
    pending.closed()
    feeding.commit()
    assert pending.response is None


def test_who_is_too_far_behind_gets_a_snapshot() -> None:
    feeding = Feeding()
    feeding.commit(KEPT_COMMITS + 10)
    response = feeding.fetch(3)
    assert response.commits == []
    assert decode_snapshot(response.snapshot).number == KEPT_COMMITS + 9
    assert feeding.fetch(KEPT_COMMITS + 5).snapshot is None


def test_after_a_take_over_everybody_who_is_behind_gets_a_snapshot() -> None:
    feeding = Feeding()
    feeding.commit(3)
    feeding.feed.begin(feeding.at)
    assert feeding.fetch(1).snapshot is not None
    assert feeding.fetch(2).snapshot is None


def test_a_follower_ahead_of_the_log_is_told_so() -> None:
    feeding = Feeding()
    feeding.commit()
    response = feeding.fetch(7)
    assert response.error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert "rolled back" in response.error_message
