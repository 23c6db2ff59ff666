"""What a replica does next on its way to another directory."""

from __future__ import annotations

from appliance.partition.future_replica import (
    COPY_BYTES,
    HOLD_AFTER,
    WAIT_MAX_MS,
    BeginAnew,
    Copy,
    CutTo,
    Extent,
    FutureReplica,
    Prepare,
    Wait,
    agreed_end,
)
from appliance.partition.replication_quota import ReplicationQuota

FAST = 1 << 62


def next_step(log: Extent, future: Extent) -> object:
    return FutureReplica(ReplicationQuota()).next_step(log, future, FAST, 0)


def test_what_is_missing_is_copied() -> None:
    assert next_step(Extent(0, 10, [(1, 0)]), Extent(0, 4, [(1, 0)])) == Copy(COPY_BYTES)
    assert next_step(Extent(0, 10, [(1, 0)]), Extent(0, 0, [])) == Copy(COPY_BYTES)


def test_when_nothing_is_missing_it_is_made_durable() -> None:
    assert next_step(Extent(0, 10, [(1, 0)]), Extent(0, 10, [(1, 0)])) == Prepare(hold=False)
    assert next_step(Extent(5, 5, []), Extent(5, 5, [])) == Prepare(hold=False)


def test_flushes_wait_for_the_swap_when_they_have_been_faster_too_often() -> None:
    rules, extent = FutureReplica(ReplicationQuota()), Extent(0, 10, [(1, 0)])
    for _ in range(HOLD_AFTER):
        assert rules.next_step(extent, extent, FAST, 0) == Prepare(hold=False)
        rules.prepared()
    assert rules.next_step(extent, extent, FAST, 0) == Prepare(hold=True)


def test_a_second_brings_no_more_than_is_allowed() -> None:
    rules, log, future = FutureReplica(ReplicationQuota()), Extent(0, 10, [(1, 0)]), Extent(0, 4, [(1, 0)])
    assert rules.next_step(log, future, 1_000, 0) == Copy(1_000)
    rules.copied(500, 1_000, 0)
    step = rules.next_step(log, future, 1_000, 0)
    assert isinstance(step, Wait) and 0 < step.ms <= 500
    assert rules.next_step(log, future, 1_000, 500) == Copy(1_000)
    rules.copied(1_000_000, 1_000, 500)
    assert rules.next_step(log, future, 1_000, 500) == Wait(WAIT_MAX_MS)


def test_the_limit_is_one_for_all_replicas_of_a_broker() -> None:
    quota = ReplicationQuota()
    one, other = FutureReplica(quota), FutureReplica(quota)
    one.copied(500, 1_000, 0)
    assert isinstance(other.next_step(Extent(0, 10, []), Extent(0, 4, []), 1_000, 0), Wait)


def test_it_begins_anew_where_retention_was_faster() -> None:
    assert next_step(Extent(8, 10, [(1, 8)]), Extent(0, 4, [(1, 0)])) == BeginAnew()


def test_it_is_cut_where_the_log_in_use_was() -> None:
    log = Extent(0, 10, [(1, 0), (3, 4)])
    assert next_step(log, Extent(0, 8, [(1, 0), (2, 6)])) == CutTo(4)
    assert next_step(log, Extent(0, 8, [(1, 0)])) == CutTo(4)
    assert next_step(Extent(0, 3, [(1, 0)]), Extent(0, 8, [(1, 0)])) == CutTo(3)


def test_it_begins_anew_when_nothing_is_the_same() -> None:
    assert next_step(Extent(0, 10, [(3, 0)]), Extent(0, 8, [(2, 0)])) == BeginAnew()
    assert next_step(Extent(5, 10, [(1, 0), (3, 5)]), Extent(5, 8, [(1, 0), (2, 5)])) == BeginAnew()
    assert next_step(Extent(0, 0, []), Extent(0, 8, [(2, 0)])) == BeginAnew()


def test_an_epoch_of_which_the_beginning_is_gone_is_still_the_same() -> None:
    assert agreed_end(Extent(5, 10, [(1, 5)]), Extent(0, 8, [(1, 0)])) == 8
    assert agreed_end(Extent(5, 10, [(1, 5), (4, 10)]), Extent(0, 8, [(0, 0), (1, 2)])) == 8
