"""A shard whose machine decides upon what is not committed yet: a number that each request makes larger."""

from __future__ import annotations

from collections.abc import Iterable

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call, Write
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from tests.unit.coordinator.test_shard import Adder, Bench, Sum, at

REFUSED = (ErrorCode.NOT_COORDINATOR, 0)
TOO_LATE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)


class ForeseeingAdder(Adder):
    """It asks what the sum will be, and 0 is answered with that, too; -1 has to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.foresight = self
        self.ahead: dict[str, int] = {}
        self.ended: list[bool] = []

    def begin(self, call: Call, key: str, writes: Iterable[Write[Sum]]) -> bool:
        if call.request.generation_id < 0:  # type: ignore[attr-defined]
            return False
        if key not in self.ahead:
            self.ahead[key] = self.sums.get(key, 0)
            for write in writes:
                self.follow(write)
        return True

    def follow(self, write: Write[Sum]) -> None:
        self.ahead[write.key] = write.records[-1].value

    def end(self, key: str, now: Moment, *, failed: bool) -> None:
        del self.ahead[key]
        self.ended.append(failed)

    def handle(self, call: Call, now: Moment) -> list:  # type: ignore[type-arg]
        committed = self.sums
        self.sums = {**committed, **self.ahead}
        try:
            return super().handle(call, now)
        finally:
            self.sums = committed


class ForeseeingBench(Bench):
    def __init__(self, limits: ShardLimits | None = None) -> None:
        self.machine = ForeseeingAdder()
        self.shard = CoordinatorShard(self.machine, limits or ShardLimits())

    def add(self, key: str, amount: int, now: Moment | None = None, *, after: str | None = "a") -> Call:
        return super().add(key, amount, now, after=after)


def test_what_is_decided_upon_a_write_that_waits_goes_into_its_batch() -> None:
    bench = ForeseeingBench()
    calls = [bench.add("a", amount) for amount in (1, 10, 100)]
    batch = bench.batch()
    assert [part.write.records[0].value for part in batch.parts] == [1, 11, 111]
    assert (bench.machine.sums, bench.answers()) == ({}, {})
    bench.shard.batch_done(batch, ErrorCode.NONE, at(1))
    assert bench.machine.sums == {"a": 111}
    assert bench.answers() == dict(zip(calls, [(0, 1), (0, 11), (0, 111)], strict=True))
    assert (bench.machine.ahead, bench.machine.ended) == ({}, [False])


def test_it_is_appended_when_no_earlier_batch_of_its_key_can_fail_any_more() -> None:
    bench = ForeseeingBench()
    bench.add("a", 1)
    first = bench.batch()
    bench.add("a", 10)
    assert bench.shard.take_batch(at(0)) is None
    bench.shard.batch_done(first, ErrorCode.NONE, at(1))
    second = bench.batch()
    bench.shard.batch_done(second, ErrorCode.NONE, at(2))
    assert (bench.machine.sums, bench.shard.idle) == ({"a": 11}, True)


def test_it_is_refused_with_the_write_that_it_was_decided_upon() -> None:
    bench = ForeseeingBench()
    calls = [bench.add("a", 1)]
    first = bench.batch()
    other = bench.add("b", 5, after=None)
    calls += [bench.add("a", 10), bench.add("a", 0)]
    bench.shard.batch_done(first, ErrorCode.NOT_LEADER_OR_FOLLOWER, at(1))
    assert bench.answers() == dict.fromkeys(calls, REFUSED)
    assert (bench.machine.ahead, bench.machine.ended) == ({}, [True])
    last = bench.batch()
    assert [part.write.records for part in last.parts] == [(Sum("b", 5),)]
    bench.shard.batch_done(last, ErrorCode.NONE, at(2))
    assert (bench.answers(), bench.machine.sums, bench.shard.idle) == ({other: (0, 5)}, {"b": 5}, True)


def test_an_answer_without_a_record_waits_for_those_that_it_rests_on() -> None:
    bench = ForeseeingBench()
    first, looks = bench.add("a", 1), bench.add("a", 0)
    assert bench.answers() == {}
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(1))
    assert bench.answers() == {first: (0, 1), looks: (0, 0)}


def test_who_comes_after_one_that_has_to_wait_waits_behind_it() -> None:
    bench = ForeseeingBench()
    bench.add("a", 5)
    waits, behind = bench.add("a", -1), bench.add("a", 10)
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(1))
    second = bench.batch()
    assert [part.write.records[0].value for part in second.parts] == [4, 14]
    bench.shard.batch_done(second, ErrorCode.NONE, at(2))
    answers = bench.answers()
    assert (answers[waits], answers[behind], bench.machine.sums) == ((0, 4), (0, 14), {"a": 14})


def test_nothing_more_is_built_on_a_write_that_has_timed_out() -> None:
    bench = ForeseeingBench(ShardLimits(write_timeout_ms=100))
    calls = [bench.add("a", 1)]
    batch = bench.batch()
    calls += [bench.add("a", 10, at(50)), bench.add("a", 0, at(60))]
    bench.shard.tick(at(150))
    assert bench.answers() == dict.fromkeys(calls, TOO_LATE)
    late = bench.add("a", 100, at(160))
    assert bench.answers() == {}
    bench.shard.batch_done(batch, ErrorCode.NONE, at(170))
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(180))
    bench.shard.batch_done(bench.batch(), ErrorCode.NONE, at(190))
    # What had timed out is in the log all the same.
    assert (bench.answers(), bench.machine.sums) == ({late: (0, 111)}, {"a": 111})


def test_at_the_end_who_waits_for_an_answer_without_a_record_is_sent_away_too() -> None:
    bench = ForeseeingBench()
    calls = [bench.add("a", amount) for amount in (1, 0, 10)]
    bench.shard.unload()
    assert bench.answers() == dict.fromkeys(calls, REFUSED)
