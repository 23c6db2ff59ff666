from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.partition.fetch_position import MATCHES, Verdict, judge


def judged(last_epoch: int, offset: int, *, start: int = 0, local_start: int = 0) -> Verdict:
    """By a leader with epoch 1 from 0, epoch 4 from 10, epoch 6 from 20, ending at 30."""
    return judge(
        LeaderEpochCache(lambda: 30, [(1, 0), (4, 10), (6, 20)]),
        last_epoch,
        offset,
        log_start_offset=start,
        local_log_start_offset=local_start,
        log_end_offset=30,
    )


def test_a_position_on_the_leaders_history_matches() -> None:
    assert judged(6, 30) == judged(4, 20) == judged(1, 5) == judged(-1, 0) == MATCHES


def test_an_epoch_that_ended_earlier_here_diverges() -> None:
    assert judged(4, 25) == Verdict(diverging_epoch=4, diverging_end_offset=20)


def test_an_epoch_that_never_was_here_diverges_at_the_one_before() -> None:
    assert judged(5, 18) == Verdict(diverging_epoch=4, diverging_end_offset=20)
    assert judged(3, 5) == Verdict(diverging_epoch=1, diverging_end_offset=10)


def test_an_epoch_that_is_newer_than_all_is_out_of_range() -> None:
    assert judged(7, 30).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_outside_of_the_log_is_out_of_range_and_below_the_disk_is_in_the_tier() -> None:
    assert judged(-1, 31).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert judged(-1, 0, start=5, local_start=5).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert judged(1, 5, start=2, local_start=8).error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
