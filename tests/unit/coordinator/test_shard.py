"""The runtime with a machine that counts: `add` adds to a number, which is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Effect, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import EVENTS_PER_TICK_MAX, Batch, CoordinatorShard, ShardLimits
from appliance.records.reader import read_records
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.schema import Struct


@dataclass(frozen=True)
class Sum:
    key: str
    value: int


@dataclass
class Adder:
    """Each request adds its generation id to the number of its group."""

    deadlines: Deadlines[str, str] = field(default_factory=Deadlines)
    sums: dict[str, int] = field(default_factory=dict)
    happened: list[object] = field(default_factory=list)
    follow_up: object = None
    only_alone: bool = False

    def handle(self, call: Call, now: Moment) -> list[Effect[Sum]]:
        request: Any = call.request
        if request.generation_id == 0:
            return [Answer(call, HeartbeatResponse())]
        record = Sum(request.group_id, self.sums.get(request.group_id, 0) + request.generation_id)
        answer = Answer(call, HeartbeatResponse(throttle_time_ms=record.value))
        return [Write(record.key, (record,), (answer,), self.follow_up, self.only_alone)]

    def due(self, event: str, now: Moment) -> list[Effect[Sum]]:
        self.happened.append(event)
        return [Write("timer", (Sum("timer", now.monotonic_ms),))]

    def replay(self, record: Sum) -> None:
        self.sums[record.key] = record.value

    def written(self, write: Write[Sum], now: Moment) -> list[Effect[Sum]]:
        self.happened.append(("written", write.follow_up, dict(self.sums)))
        return []

    def not_written(self, write: Write[Sum], error: ErrorCode, now: Moment) -> list[Effect[Sum]]:
        self.happened.append(("not written", write.follow_up, error))
        return []

    def unload(self) -> list[Effect[Sum]]:
        return []

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        return HeartbeatResponse(error_code=error)

    def encode(self, record: Sum) -> tuple[bytes, bytes | None]:
        return record.key.encode(), record.value.to_bytes(8, "big")


def at(ms: int) -> Moment:
    return Moment(1_000_000 + ms, ms)


class Bench:
    def __init__(self, limits: ShardLimits | None = None) -> None:
        self.machine = Adder()
        self.shard = CoordinatorShard(self.machine, limits or ShardLimits())

    def add(self, key: str, amount: int, now: Moment | None = None, *, after: str | None = None) -> Call:
        call = Call(HeartbeatRequest(group_id=key, generation_id=amount))
        self.shard.submit(call, now or at(0), after_writes_of=after)
        return call

    def answers(self) -> dict[Call, tuple[int, int]]:
        return {
            each.call: (each.response.error_code, each.response.throttle_time_ms) for each in self.shard.take_answers()
        }  # type: ignore[attr-defined]

    def batch(self) -> Batch[Sum]:
        batch = self.shard.take_batch(at(0))
        assert batch is not None
        return batch


def test_an_answer_without_a_write_leaves_at_once() -> None:
    bench = Bench()
    call = bench.add("a", 0)
    assert bench.answers() == {call: (0, 0)}
    assert bench.shard.take_batch(at(0)) is None


def test_state_changes_and_the_answer_leaves_when_the_record_is_committed() -> None:
    bench = Bench()
    call = bench.add("a", 5)
    batch = bench.batch()
    assert (bench.machine.sums, bench.answers(), bench.shard.idle) == ({}, {}, False)
    bench.shard.batch_done(batch, ErrorCode.NONE, at(1))
    assert (bench.machine.sums, bench.answers(), bench.shard.idle) == ({"a": 5}, {call: (0, 5)}, True)


def test_writes_that_wait_leave_in_one_batch_with_the_time_of_the_wall() -> None:
    bench = Bench()
    bench.add("a", 1)
    bench.add("b", 2)
    records = list(read_records(bench.batch().payload))
    assert [(record.key, record.timestamp) for record in records] == [(b"a", 1_000_000), (b"b", 1_000_000)]
    assert bench.shard.take_batch(at(0)) is None


def test_a_batch_has_a_limit() -> None:
    bench = Bench(ShardLimits(batch_max_bytes=250))
    for _ in range(5):
        bench.add("a", 1)
    sizes = []
    while (batch := bench.shard.take_batch(at(0))) is not None:
        assert len(batch.payload) <= 250
        sizes.append(len(batch.parts))
    assert sizes == [2, 2, 1]


def test_a_write_that_is_larger_than_any_batch_is_an_error_of_ours() -> None:
    bench = Bench(ShardLimits(batch_max_bytes=150))
    call = bench.add("a", 1)
    assert bench.answers() == {call: (ErrorCode.UNKNOWN_SERVER_ERROR, 0)}
    assert bench.shard.take_batch(at(0)) is None
    assert bench.answers() == {}


def test_a_write_that_fails_changes_nothing_and_its_client_is_told() -> None:
    bench = Bench()
    bench.machine.follow_up = "next"
    call = bench.add("a", 5)
    bench.shard.batch_done(bench.batch(), ErrorCode.NOT_LEADER_OR_FOLLOWER, at(1))
    assert bench.answers() == {call: (ErrorCode.NOT_COORDINATOR, 0)}
    assert bench.machine.sums == {}
    assert bench.machine.happened == [("not written", "next", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_the_machine_goes_on_after_its_record_was_replayed() -> None:
    bench = Bench()
    bench.machine.follow_up = "next"
    bench.add("a", 5)
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(1))
    assert bench.machine.happened == [("written", "next", {"a": 5})]


def test_a_write_without_a_decision_is_answered_in_time_but_counts_when_it_is_committed() -> None:
    bench = Bench(ShardLimits(write_timeout_ms=100))
    bench.machine.follow_up = "next"
    call = bench.add("a", 5)
    batch = bench.batch()
    waiting = bench.add("a", 7, at(50))
    assert bench.shard.next_due_ms() == 100
    bench.shard.tick(at(100))
    assert bench.answers() == {call: (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)}
    assert bench.shard.next_due_ms() == 150
    bench.shard.batch_done(batch, ErrorCode.NONE, at(120))
    assert bench.machine.sums == {"a": 5}
    assert bench.machine.happened == [("not written", "next", ErrorCode.REQUEST_TIMED_OUT)]
    bench.shard.tick(at(150))
    assert bench.answers() == {waiting: (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)}
    assert bench.shard.next_due_ms() is None


def test_who_needs_the_outcome_of_earlier_writes_waits_for_it() -> None:
    bench = Bench()
    bench.add("a", 1)
    bench.add("b", 1)
    second = bench.add("a", 10, after="a")
    third = bench.add("a", 100, after="a")
    free = bench.add("c", 7, after="c")
    first_batch = bench.batch()
    bench.shard.batch_done(first_batch, ErrorCode.NONE, at(0))
    bench.answers()
    second_batch = bench.batch()
    assert [part.write.records[0] for part in second_batch.parts] == [Sum("a", 11)]
    bench.shard.batch_done(second_batch, ErrorCode.NONE, at(0))
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(0))
    assert bench.machine.sums == {"a": 111, "b": 1, "c": 7}
    assert set(bench.answers()) == {second, third}
    assert free not in bench.answers()


def test_a_failed_write_also_ends_the_wait() -> None:
    bench = Bench()
    bench.add("a", 1)
    waiting = bench.add("a", 10, after="a")
    bench.shard.batch_done(bench.batch(), ErrorCode.NOT_ENOUGH_REPLICAS, at(0))
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(0))
    assert bench.answers()[waiting] == (0, 10)


def test_a_write_that_wants_to_be_alone_is_dropped_when_it_is_not() -> None:
    bench = Bench()
    bench.add("a", 1)
    bench.machine.only_alone = True
    bench.add("a", 10)
    bench.add("b", 10)
    assert [part.write.key for part in bench.batch().parts] == ["a", "b"]


def test_there_is_a_limit_to_what_waits() -> None:
    bench = Bench(ShardLimits(queued_writes_max=2, parked_calls_max=1))
    for _ in range(2):
        bench.add("a", 1)
    full = bench.add("a", 1)
    assert bench.answers() == {full: (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)}
    bench = Bench(ShardLimits(parked_calls_max=1))
    bench.add("a", 1)
    bench.add("a", 1, after="a")
    full = bench.add("a", 1, after="a")
    assert bench.answers() == {full: (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)}


def test_what_is_due_is_done() -> None:
    bench = Bench()
    bench.machine.deadlines.set("x", 30, "event")
    assert bench.shard.next_due_ms() == 30
    bench.shard.tick(at(30))
    assert bench.machine.happened == ["event"]
    assert bench.batch().parts[0].write.records == (Sum("timer", 30),)


def test_of_many_things_that_are_due_some_wait_for_the_next_tick() -> None:
    bench = Bench()
    for number in range(EVENTS_PER_TICK_MAX + 1):
        bench.machine.deadlines.set(f"x{number}", 30, "event")
    bench.shard.tick(at(30))
    assert len(bench.machine.happened) == EVENTS_PER_TICK_MAX
    assert bench.shard.next_due_ms() == 30
    bench.shard.tick(at(30))
    assert len(bench.machine.happened) == EVENTS_PER_TICK_MAX + 1


def test_at_the_end_everybody_who_waits_is_sent_away_and_nothing_happens_any_more() -> None:
    bench = Bench()
    under_way = bench.add("a", 1)
    batch = bench.batch()
    queued, parked = bench.add("b", 1), bench.add("a", 1, after="a")
    bench.shard.unload()
    gone = (ErrorCode.NOT_COORDINATOR, 0)
    assert bench.answers() == {under_way: gone, queued: gone, parked: gone}
    bench.machine.deadlines.set("x", 0, "event")
    bench.shard.batch_done(batch, ErrorCode.NONE, at(9))
    bench.shard.tick(at(9))
    bench.shard.decide(lambda: [Write("a", (Sum("a", 1),))], at(9))
    late = bench.add("a", 1)
    bench.shard.unload()
    assert bench.answers() == {late: gone}
    assert (bench.machine.sums, bench.machine.happened, bench.shard.take_batch(at(9))) == ({}, [], None)
