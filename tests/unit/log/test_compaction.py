"""Which log has its turn, how far it is cleaned, what becomes one segment."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from appliance.log.compaction import Cleanable, SourceSegment, cleanable_part, filthiest, group_segments
from appliance.log.scan import RELATIVE_OFFSET_MAX
from tests.support.logs import START_MS


@dataclass
class FakeSegment:
    base_offset: int
    next_offset: int
    size_bytes: int = 100
    max_timestamp: int = START_MS
    first_batch_timestamp: int = START_MS


def closed(count: int, **changes: int) -> list[FakeSegment]:
    return [FakeSegment(n * 10, n * 10 + 10, **changes) for n in range(count)]


def part(segments: list[FakeSegment], **changes: int) -> Cleanable:
    end = segments[-1].next_offset + 5 if segments else 5
    values = {
        "cleaned_offset": -1,
        "log_start_offset": 0,
        "log_end_offset": end,
        "stable_offset": end,
        "min_compaction_lag_ms": 0,
        "max_compaction_lag_ms": 2**63 - 1,
        "now_ms": START_MS,
    }
    return cleanable_part(segments, **(values | changes))


def test_what_was_never_cleaned_is_dirty_from_the_log_start() -> None:
    found = part(closed(3))
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 30)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 300, 1.0)


def test_dirt_begins_where_the_last_round_ended() -> None:
    found = part(closed(4), cleaned_offset=20)
    assert (found.first_dirty_offset, found.clean_bytes, found.cleanable_bytes) == (20, 200, 200)
    assert found.ratio == 0.5


@pytest.mark.parametrize("cleaned_offset", [5, 900])
def test_an_end_outside_of_the_log_means_the_log_start(cleaned_offset: int) -> None:
    segments = closed(4)[1:]
    found = part(segments, cleaned_offset=cleaned_offset, log_start_offset=10)
    assert found.first_dirty_offset == 10 and found.cleanable_bytes == 300


def test_a_segment_above_the_stable_offset_is_not_touched() -> None:
    found = part(closed(4), stable_offset=29)
    assert found.first_uncleanable_offset == 20 and found.cleanable_bytes == 200
    assert part(closed(4), stable_offset=30).first_uncleanable_offset == 30


def test_young_records_end_what_can_be_cleaned() -> None:
    segments = closed(4)
    segments[2].max_timestamp = START_MS + 600
    found = part(segments, min_compaction_lag_ms=500, now_ms=START_MS + 1_000)
    assert found.first_uncleanable_offset == 20
    assert part(segments, min_compaction_lag_ms=500, now_ms=START_MS + 1_100).first_uncleanable_offset == 40


def test_a_log_is_due_above_its_ratio_or_when_a_record_has_waited_too_long() -> None:
    half = part(closed(4), cleaned_offset=20)
    assert half.is_due(0.49) and not half.is_due(0.5)
    late = part(closed(4), cleaned_offset=20, max_compaction_lag_ms=100, now_ms=START_MS + 101)
    assert late.delay_ms == 1 and late.is_due(1.0)
    assert not part(closed(4), cleaned_offset=20, max_compaction_lag_ms=100, now_ms=START_MS + 100).is_due(1.0)


def test_a_log_without_anything_to_clean_is_never_due() -> None:
    assert not part(closed(2), cleaned_offset=20, max_compaction_lag_ms=1, now_ms=START_MS + 100).is_due(0.0)
    assert not part([]).is_due(0.0)


def test_the_dirtiest_due_log_comes_first() -> None:
    logs = [
        ("a", Cleanable(0, 10, 50, 50, 0), 0.1),
        ("b", Cleanable(0, 10, 10, 90, 0), 0.95),
        ("c", Cleanable(0, 10, 40, 60, 0), 0.5),
    ]
    chosen = filthiest(logs)
    assert chosen is not None and chosen[0] == "c"
    assert filthiest([("b", Cleanable(0, 10, 10, 90, 0), 0.95)]) is None


def sources(*sizes: int, index_bytes: int = 10, offsets: int = 10) -> list[SourceSegment]:
    return [SourceSegment(n * offsets, (n + 1) * offsets, size, index_bytes) for n, size in enumerate(sizes)]


def bases(groups: list[list[SourceSegment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_become_one_while_they_fit() -> None:
    found = group_segments(sources(40, 40, 40, 100, 0, 1), segment_bytes=100, index_bytes=1_000)
    assert bases(found) == [[0, 10], [20], [30, 40], [50]]


def test_indexes_must_fit_too() -> None:
    found = group_segments(sources(1, 1, 1, index_bytes=40), segment_bytes=100, index_bytes=100)
    assert bases(found) == [[0, 10], [20]]


def test_offsets_must_stay_within_31_bits_unless_there_are_no_records() -> None:
    far = RELATIVE_OFFSET_MAX // 2 + 1
    assert bases(group_segments(sources(1, 1, 1, offsets=far), segment_bytes=100, index_bytes=100)) == [
        [0, far],
        [2 * far],
    ]
    assert len(group_segments(sources(1, 0, 0, 0, offsets=far), segment_bytes=100, index_bytes=100)) == 1


def test_a_group_has_a_limit() -> None:
    assert len(group_segments(sources(*[0] * 130), segment_bytes=100, index_bytes=10_000)) == 3
