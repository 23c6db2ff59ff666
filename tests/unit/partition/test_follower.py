from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.partition.events import (
    AppendFetched,
    FetchAnswer,
    FetchLater,
    RaiseLogStart,
    StartAnew,
    StartFromTier,
    TruncateTo,
)
from appliance.partition.follower import FIRST_BACKOFF_MS, FetchPosition, PartitionFollower


def follower_of(
    end_offset: int, *epochs: tuple[int, int], high_watermark: int = 0, start: int = 0
) -> PartitionFollower:
    """In leader epoch 9; `epochs`: (epoch, start offset) of its own log."""
    return PartitionFollower(
        leader_id=2,
        leader_epoch=9,
        epochs=LeaderEpochCache(lambda: end_offset, epochs),
        log_start_offset=0,
        log_end_offset=end_offset,
        high_watermark=high_watermark,
        backoff_max_ms=1_000,
    )


def answer_at(offset: int, error: ErrorCode = ErrorCode.NONE, *, leader_epoch: int = 9, **fields: int) -> FetchAnswer:
    return FetchAnswer(leader_epoch, offset, error, **fields)  # type: ignore[arg-type]


def test_it_names_the_epoch_of_its_last_record_and_not_the_newest_it_has_heard_of() -> None:
    assert follower_of(10, (3, 0), (5, 6), (8, 10)).position == FetchPosition(9, 10, 5)


def test_an_empty_log_has_no_last_epoch() -> None:
    assert follower_of(0).position == FetchPosition(9, 0, -1)


def test_its_high_watermark_is_the_smaller_of_the_leaders_and_its_own_end() -> None:
    follower = follower_of(10, (3, 0))
    assert follower.answered(answer_at(10, high_watermark=25, has_records=True)) == [AppendFetched()]
    assert follower.high_watermark == 10
    assert follower.appended(20) == 20
    assert follower.appended(30) == 25


def test_its_high_watermark_never_goes_back_on_what_the_leader_says() -> None:
    follower = follower_of(10, (3, 0), high_watermark=8)
    follower.answered(answer_at(10, high_watermark=5))
    assert follower.high_watermark == 8


def test_it_cuts_to_the_smaller_of_both_ends_of_the_epoch() -> None:
    # Its own epoch 3 ends at 6, the leader's at 8.
    follower = follower_of(10, (3, 0), (5, 6))
    assert follower.answered(answer_at(10, diverging_epoch=3, diverging_end_offset=8)) == [TruncateTo(6)]
    # Its own epoch 3 ends at 6, the leader's at 4.
    assert follower.answered(answer_at(10, diverging_epoch=3, diverging_end_offset=4)) == [TruncateTo(4)]
    # It does not know epoch 4 itself; its own next smaller one ends at 6.
    assert follower.answered(answer_at(10, diverging_epoch=4, diverging_end_offset=9)) == [TruncateTo(6)]


def test_a_cut_goes_below_the_high_watermark_where_the_epochs_say_so() -> None:
    follower = follower_of(10, (3, 0), (5, 6), high_watermark=9)
    assert follower.answered(answer_at(10, diverging_epoch=3, diverging_end_offset=8)) == [TruncateTo(6)]
    assert follower.cut(0, 6) == 6


def test_a_divergence_that_would_cut_nothing_is_not_asked_about_again_at_once() -> None:
    follower = follower_of(10, (3, 0))
    effects = follower.answered(answer_at(10, diverging_epoch=3, diverging_end_offset=12))
    assert [type(effect) for effect in effects] == [FetchLater]


def test_below_the_leaders_start_it_begins_anew_there() -> None:
    follower = follower_of(10, (3, 0))
    assert follower.answered(answer_at(10, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=50)) == [StartAnew(50)]


def test_above_the_leaders_end_with_a_history_that_fits_it_waits() -> None:
    effects = follower_of(10, (3, 0)).answered(answer_at(10, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=0))
    assert effects == [FetchLater(FIRST_BACKOFF_MS, ErrorCode.OFFSET_OUT_OF_RANGE)]


def test_below_the_leaders_disk_it_begins_where_the_tier_says() -> None:
    answer = answer_at(0, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, log_start_offset=3)
    assert follower_of(0).answered(answer) == [StartFromTier(3)]


def test_the_leaders_log_start_is_taken_over_but_not_beyond_its_own_end() -> None:
    follower = follower_of(10, (3, 0))
    assert follower.answered(answer_at(10, log_start_offset=4)) == [RaiseLogStart(4)]
    assert follower.answered(answer_at(10, log_start_offset=30)) == [RaiseLogStart(10)]
    assert follower.answered(answer_at(10, log_start_offset=30)) == []


def test_an_answer_of_another_epoch_or_for_another_offset_is_passed_over() -> None:
    follower = follower_of(10, (3, 0))
    assert follower.answered(answer_at(10, leader_epoch=8, has_records=True, high_watermark=10)) == []
    assert follower.answered(answer_at(7, has_records=True, high_watermark=10)) == []
    assert follower.high_watermark == 0


def test_waits_double_up_to_their_limit_and_begin_anew_after_an_answer() -> None:
    follower = follower_of(10, (3, 0))
    refused = answer_at(10, ErrorCode.UNKNOWN_LEADER_EPOCH)
    waits = []
    for _ in range(8):
        (effect,) = follower.answered(refused)
        assert isinstance(effect, FetchLater)
        waits.append(effect.delay_ms)
    assert waits == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    follower.answered(answer_at(10))
    assert follower.answered(refused) == [FetchLater(20, ErrorCode.UNKNOWN_LEADER_EPOCH)]
