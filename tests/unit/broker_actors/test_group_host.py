"""The broker's side of group coordination, with a partition, a thread and a clock that do as they are told."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.broker_actors.group_host import GroupCoordinatorHost
from appliance.broker_actors.partition_coordinator import LOAD_POLL_MS, LOAD_RETRY_MS, REFUSED_POLL_MS
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.controller.image import MetadataImage, TopicState
from appliance.controller.records import PartitionState
from appliance.coordinator.calls import Call
from appliance.share_groups.machine import ShareGroups
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.schema import Struct

TOPIC_ID = uuid.UUID(int=9)


@dataclass
class Loop:
    """Clock, timers and threads of a loop that runs when it is told to."""

    now: int = 0
    timers: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    work_fails: Exception | None = None

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.now

    def monotonic_ms(self) -> int:
        return self.now

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        entry = (self.now + delay_ms, len(self.timers), callback)
        self.timers.append(entry)

        @dataclass
        class Timer:
            loop: Loop

            def cancel(self) -> None:
                if entry in self.loop.timers:
                    self.loop.timers.remove(entry)

        return Timer(self)

    def post(self, callback: Callable[[], None]) -> None:
        self.schedule(0, callback)

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def result() -> Any:
            if self.work_fails is not None:
                return self.work_fails
            try:
                return work()
            except Exception as error:
                return error

        self.post(lambda: done(result()))

    def advance(self, ms: int = 0) -> None:
        end = self.now + ms
        while due := [entry for entry in self.timers if entry[0] <= end]:
            entry = min(due, key=lambda each: each[:2])
            self.timers.remove(entry)
            self.now = max(self.now, entry[0])
            entry[2]()
        self.now = end


@dataclass
class Partition:
    topic: str = "__consumer_offsets"
    partition: int = 0
    leader_epoch: int = 0
    log: list[bytes] = field(default_factory=list)
    uncommitted: list[tuple[bytes, Callable[[ErrorCode, int], None] | None]] = field(default_factory=list)
    holds: bool = False
    refuses: ErrorCode = ErrorCode.NONE
    recovering: bool = False
    config: Any = field(default_factory=lambda: type("Config", (), {"max_message_bytes": 1_048_588})())

    @property
    def high_watermark(self) -> int:
        return len(self.log)

    @property
    def log_end_offset(self) -> int:
        return len(self.log) + len(self.uncommitted)

    def refusal(self) -> ErrorCode:
        return self.refuses

    def append_records(self, batch: bytes, on_committed: Callable[[ErrorCode, int], None]) -> None:
        if self.refuses is not ErrorCode.NONE:
            on_committed(self.refuses, -1)
            return
        self.uncommitted.append((batch, on_committed))
        if not self.holds:
            self.commit()

    def commit(self) -> None:
        uncommitted, self.uncommitted = self.uncommitted, []
        for batch, on_committed in uncommitted:
            self.log.append(batch)
            if on_committed is not None:
                on_committed(ErrorCode.NONE, 0)

    def read_committed_batches(self) -> Iterator[memoryview]:
        return (memoryview(batch) for batch in list(self.log))


def image_of(**topics: uuid.UUID) -> MetadataImage:
    states = {"__consumer_offsets": uuid.UUID(int=1), **topics}
    partition = PartitionState(partition=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    made = [TopicState(name, topic_id, partitions=(partition,)) for name, topic_id in states.items()]
    return MetadataImage(
        topics={topic.name: topic for topic in made}, topics_by_id={topic.topic_id: topic for topic in made}
    )


class Bench:
    def __init__(self, partition: Partition | None = None) -> None:
        self.loop = self.background = self.clock = Loop()
        self.config = BrokerConfig({"group.initial.rebalance.delay.ms": "0"})
        self.image = image_of(t=TOPIC_ID)
        self.partitions = self
        self.partition = partition or Partition()
        self.created: list[str] = []
        self.host = GroupCoordinatorHost(self, SeededRandomness(1))
        self.host.start()
        self.answers: list[Any] = []

    # What the host asks of its broker

    def on_image(self, callback: Callable[[MetadataImage], None]) -> Callable[[], None]:
        self.new_image = callback
        return lambda: None

    def on_leadership(self, topic: str, callback: Callable[[Any, bool], None]) -> None:
        assert topic == "__consumer_offsets"
        self.leadership = callback

    def create_internal_topic(self, name: str, done: Callable[[ErrorCode], None]) -> None:
        self.created.append(name)
        done(ErrorCode.NONE)

    # What tests do

    def lead(self) -> None:
        self.leadership(self.partition, True)

    def ready(self) -> Bench:
        self.lead()
        self.loop.advance()
        return self

    def submit(self, request: Struct, version: int = 3) -> Any:
        """The answer, if it comes at once."""
        answers: list[Any] = []
        self.host.submit(
            "g", Call(request, version, "c", "/1"), lambda each: (answers.append(each), self.answers.append(each))
        )
        return answers[0] if answers else None

    def commit(self, offset: int) -> Any:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])
        return self.submit(OffsetCommitRequest(group_id="g", topics=[topic]), 9)

    def join(self) -> Any:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.submit(request)
        self.loop.advance(1)
        return self.answers[-1]

    def heartbeat(self, joined: Any) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        error: int = self.submit(request).error_code
        return error

    @property
    def machine(self) -> AllGroupsMachine:
        view = self.host.view("g")
        assert isinstance(view, ShareGroups)
        assert isinstance(view.others, AllGroupsMachine)
        return view.others

    def offset(self) -> int:
        offset = self.machine.stored.offset("g", "t", 0)
        return -1 if offset is None else offset.offset


def error_of(commit: Any) -> int:
    error: int = commit.topics[0].partitions[0].error_code
    return error


def test_where_the_partition_is_not_led_nobody_is_served() -> None:
    bench = Bench()
    assert error_of(bench.commit(1)) == ErrorCode.NOT_COORDINATOR
    assert bench.host.view("g") is ErrorCode.NOT_COORDINATOR
    assert bench.host.views() == []


def test_while_the_log_is_read_everybody_is_told_to_come_back() -> None:
    bench = Bench()
    bench.lead()
    assert error_of(bench.commit(1)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.submit(HeartbeatRequest(group_id="g")).error_code == ErrorCode.NONE
    assert bench.host.views() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.loop.advance()
    assert bench.commit(1) is None
    bench.loop.advance()
    assert error_of(bench.answers[-1]) == ErrorCode.NONE


def test_what_is_decided_in_one_turn_is_written_in_one_batch() -> None:
    bench = Bench().ready()
    for offset in range(5):
        assert bench.commit(offset) is None
    bench.loop.advance()
    assert len(bench.partition.log) == 1
    assert bench.offset() == 4


def test_a_new_leader_finds_what_was_committed() -> None:
    bench = Bench().ready()
    bench.commit(7)
    bench.loop.advance()
    again = Bench(bench.partition).ready()
    assert again.offset() == 7


def test_a_new_leader_waits_until_all_of_its_log_is_committed() -> None:
    bench = Bench().ready()
    bench.partition.holds = True
    bench.commit(7)
    bench.loop.advance()
    bench.partition.uncommitted = [(batch, None) for batch, _ in bench.partition.uncommitted]
    again = Bench(bench.partition)
    again.lead()
    again.loop.advance(10 * LOAD_POLL_MS)
    assert again.host.view("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again.partition.commit()
    again.loop.advance(LOAD_POLL_MS)
    assert again.offset() == 7


def test_a_load_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.loop.work_fails = OSError("the disk is slow today")
    bench.lead()
    bench.loop.advance()
    assert bench.host.view("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "the disk is slow today" in caplog.text
    bench.loop.work_fails = None
    bench.loop.advance(LOAD_RETRY_MS)
    assert isinstance(bench.host.view("g"), ShareGroups)


def test_when_leadership_goes_those_who_wait_are_sent_away() -> None:
    bench = Bench().ready()
    bench.partition.holds = True
    bench.commit(7)
    bench.loop.advance()
    bench.leadership(bench.partition, False)
    assert error_of(bench.answers[-1]) == ErrorCode.NOT_COORDINATOR
    bench.partition.commit()
    bench.loop.advance(10_000)
    assert len(bench.answers) == 1
    assert bench.host.view("g") is ErrorCode.NOT_COORDINATOR


def test_a_leadership_that_goes_during_the_load_leaves_nothing() -> None:
    bench = Bench()
    bench.lead()
    bench.leadership(bench.partition, False)
    bench.loop.advance(LOAD_RETRY_MS)
    assert bench.host.view("g") is ErrorCode.NOT_COORDINATOR


def test_a_write_that_is_refused_is_told_at_once() -> None:
    bench = Bench().ready()
    bench.commit(1)
    bench.partition.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.loop.advance()
    assert error_of(bench.answers[-1]) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_broker_that_may_not_serve_just_now_sends_everybody_away() -> None:
    bench = Bench().ready()
    bench.partition.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(bench.commit(1)) == ErrorCode.NOT_COORDINATOR
    assert bench.host.view("g") is ErrorCode.NOT_COORDINATOR


def test_members_do_not_lose_their_place_while_nobody_can_reach_the_broker() -> None:
    bench = Bench().ready()
    joined = bench.join()
    bench.partition.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.loop.advance(30_000)
    bench.partition.refuses = ErrorCode.NONE
    bench.loop.advance(REFUSED_POLL_MS)
    assert bench.heartbeat(joined) == ErrorCode.NONE
    bench.loop.advance(6_000)
    assert bench.heartbeat(joined) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_missed_by_its_timer() -> None:
    bench = Bench().ready()
    joined = bench.join()
    bench.loop.advance(5_000)
    assert bench.heartbeat(joined) == ErrorCode.NONE
    bench.loop.advance(6_000)
    assert bench.machine.describe("g").group_state == "Empty"


def test_a_mistake_of_ours_is_logged_and_the_log_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench().ready()
    bench.commit(7)
    bench.loop.advance()
    bench.partition.holds = True
    bench.commit(8)

    def broken(self: AllGroupsMachine, call: Call, now: object) -> object:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(AllGroupsMachine, "handle", broken)
        assert bench.submit(HeartbeatRequest(group_id="g")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "a bug" in caplog.text
    assert error_of(bench.answers[0]) == ErrorCode.NONE
    assert error_of(bench.answers[1]) == ErrorCode.NOT_COORDINATOR
    bench.partition.holds = False
    bench.partition.commit()
    bench.loop.advance(LOAD_RETRY_MS)
    assert bench.offset() == 7


def test_offsets_of_a_topic_that_goes_are_forgotten() -> None:
    bench = Bench().ready()
    bench.commit(7)
    bench.loop.advance()
    bench.new_image(dataclasses.replace(bench.image, position=5))
    bench.loop.advance()
    assert bench.offset() == 7
    bench.new_image(image_of())
    bench.loop.advance()
    assert bench.offset() == -1


def test_the_topic_is_created_when_it_is_asked_for() -> None:
    bench = Bench()
    done: list[int] = []
    bench.host.create_topic(lambda: done.append(1))
    assert (bench.created, done) == (["__consumer_offsets"], [1])


def test_at_the_end_those_who_wait_are_answered() -> None:
    bench = Bench().ready()
    bench.partition.holds = True
    bench.commit(7)
    bench.host.close()
    assert error_of(bench.answers[-1]) == ErrorCode.NOT_COORDINATOR
