from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from appliance.share_groups.config import PartitionLimits
from appliance.share_groups.runs import Acquired, Operation, ReadBatch, Said
from appliance.share_groups.share_partition import ACCEPT, GAP, REJECT, RELEASE, RENEW, SharePartition
from appliance.share_groups.state_stored import ACKNOWLEDGED, ARCHIVED, AVAILABLE, Batch

LIMITS = PartitionLimits(lock_duration_ms=1_000, delivery_count_limit=2, max_record_locks=10)


def partition(*acquired_by: str, records: int = 4) -> SharePartition:
    """Each of them has the next `records`."""
    made = SharePartition(LIMITS, 0)
    for number, member in enumerate(acquired_by):
        first = number * records
        made.acquire(member, first, [ReadBatch(first, first + records - 1)], 0, max_records=records)
    return made


def told(made: SharePartition, member: str, *said: Said, now_ms: int = 0) -> ErrorCode:
    operation = made.acknowledge(member, said, now_ms)
    if not isinstance(operation, Operation):
        return operation
    assert made.take_write() is not None
    assert made.written(ErrorCode.NONE) == [(operation, ErrorCode.NONE)]
    return ErrorCode.NONE


def test_batches_are_handed_out_whole_until_there_are_enough() -> None:
    made = SharePartition(LIMITS, 0)
    log = [ReadBatch(0, 2), ReadBatch(3, 5), ReadBatch(6, 8)]
    assert made.acquire("m", 0, log, 0, max_records=4, batch_size=3) == [Acquired(0, 2, 1), Acquired(3, 5, 1)]
    assert made.acquire("n", 6, log, 0, max_records=2, exactly=True) == [Acquired(6, 7, 1)]
    assert made.next_fetch_offset == 8


def test_no_more_than_the_limit_are_in_flight() -> None:
    made = partition("m", "n", "o")
    assert made.in_flight == 12, "the last batch is given whole"
    assert not made.can_acquire
    assert made.acquire("p", 12, [ReadBatch(12, 13)], 0, max_records=1) == []
    assert told(made, "m", Said(0, 3, [ACCEPT])) is ErrorCode.NONE
    assert made.acquire("p", 12, [ReadBatch(12, 13)], 0, max_records=1) == [Acquired(12, 13, 1)]


def test_what_nobody_gets_is_passed_over() -> None:
    made = SharePartition(LIMITS, 0)
    log = [ReadBatch(2, 3), ReadBatch(4, 4, is_delivered=False), ReadBatch(6, 6)]
    assert made.acquire("m", 0, log, 0, max_records=9) == [Acquired(2, 3, 1), Acquired(6, 6, 1)]
    assert made.start_offset == 2
    assert told(made, "m", Said(2, 3, [ACCEPT]), Said(6, 6, [GAP])) is ErrorCode.NONE
    assert made.start_offset == 7


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Said(3, 2, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Said(-1, 2, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Said(0, 2, [ACCEPT, ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Said(0, 2, []), ErrorCode.INVALID_REQUEST),
        (Said(0, 0, [9]), ErrorCode.INVALID_REQUEST),
        (Said(0, 8, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Said(3, 4, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(said: Said, error: ErrorCode) -> None:
    made = partition("m", "n")
    before = repr(made.runs)
    assert made.acknowledge("m", [said], 0) is error
    assert repr(made.runs) == before


def test_who_says_something_twice_is_refused_the_second_time() -> None:
    made = partition("m")
    assert isinstance(made.acknowledge("m", [Said(0, 1, [ACCEPT])], 0), Operation)
    assert made.acknowledge("m", [Said(1, 2, [ACCEPT])], 0) is ErrorCode.INVALID_RECORD_STATE
    assert made.acknowledge("m", [Said(2, 3, [ACCEPT]), Said(2, 2, [ACCEPT])], 0) is ErrorCode.INVALID_REQUEST
    assert made.acknowledge("m", [Said(2, 3, [ACCEPT]), Said(3, 3, [ACCEPT])], 0) is ErrorCode.INVALID_RECORD_STATE
    assert isinstance(made.acknowledge("m", [Said(2, 3, [ACCEPT])], 0), Operation)


def test_the_share_coordinator_hears_of_everything_in_one_write_at_a_time() -> None:
    made = partition("m", "n")
    first = made.acknowledge("m", [Said(0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT])], 0)
    write = made.take_write()
    assert write is not None
    assert (write.start_offset, write.delivery_complete_count) == (1, 2)
    assert write.batches == (Batch(1, 1, AVAILABLE, 1), Batch(2, 2, ARCHIVED, 1), Batch(3, 3, ACKNOWLEDGED, 1))
    second = made.acknowledge("n", [Said(4, 4, [ACCEPT])], 0)
    assert made.take_write() is None, "the first is still on its way"
    assert made.written(ErrorCode.NONE) == [(first, ErrorCode.NONE)]
    write = made.take_write()
    assert write is not None and write.batches == (Batch(4, 4, ACKNOWLEDGED, 1),)
    assert made.written(ErrorCode.NONE) == [(second, ErrorCode.NONE)]
    assert made.take_write() is None


def test_after_a_write_that_failed_the_member_has_its_records_and_the_next_write_says_everything() -> None:
    made = partition("m")
    assert told(made, "m", Said(3, 3, [ACCEPT])) is ErrorCode.NONE
    operation = made.acknowledge("m", [Said(0, 0, [ACCEPT])], 0)
    made.take_write()
    assert made.written(ErrorCode.COORDINATOR_NOT_AVAILABLE) == [(operation, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert isinstance(made.acknowledge("m", [Said(1, 1, [ACCEPT])], 0), Operation)
    write = made.take_write()
    assert write is not None
    assert write.start_offset == 0
    assert Batch(3, 3, ACKNOWLEDGED, 1) in write.batches


def test_locks_end_and_a_record_that_came_back_too_often_is_given_up() -> None:
    made = partition("m")
    assert made.next_due_ms == 1_000
    assert isinstance(made.acknowledge("m", [Said(0, 0, [RENEW])], 600), Operation)
    assert made.locks_over(1_000)
    assert made.next_due_ms == 1_600
    assert made.acquire("n", 1, [ReadBatch(0, 3)], 1_000, max_records=9) == [Acquired(1, 3, 2)]
    assert made.release("n")
    assert [(run.first, run.state) for run in made.runs] == [(0, 1), (1, ARCHIVED)]
    assert not made.locks_over(1_500)


def test_renewing_can_be_forbidden() -> None:
    made = partition("m")
    made.limits = PartitionLimits(renewing=False)
    assert made.acknowledge("m", [Said(0, 0, [RENEW])], 0) is ErrorCode.INVALID_RECORD_STATE


def test_the_log_may_lose_records_at_both_ends() -> None:
    made = partition("m", "n")
    assert made.log_begins_at(2)
    assert (made.start_offset, made.next_fetch_offset) == (2, 8)
    assert told(made, "m", Said(0, 3, [ACCEPT])) is ErrorCode.NONE, "what is gone is passed over"
    made.log_ends_at(6)
    assert (made.start_offset, made.end_offset) == (4, 5)
    assert made.log_begins_at(20)
    assert (made.start_offset, made.next_fetch_offset, made.in_flight) == (20, 20, 0)
    assert not made.log_begins_at(20)


def test_a_state_is_read_back_with_its_holes() -> None:
    batches = [Batch(5, 6, ACKNOWLEDGED, 1), Batch(9, 9, AVAILABLE, 1), Batch(11, 12, ARCHIVED, 2)]
    made = SharePartition.loaded(LIMITS, 5, batches)
    assert (made.start_offset, made.end_offset, made.next_fetch_offset) == (7, 12, 7)
    taken = made.acquire("m", 7, [ReadBatch(0, 14)], 0, max_records=20)
    assert taken == [Acquired(7, 8, 1), Acquired(9, 9, 2), Acquired(10, 10, 1), Acquired(13, 14, 1)]
