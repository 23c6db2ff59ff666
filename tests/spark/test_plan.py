"""Ranges are cut into splits that adjoin: no offset is read twice, none is left out."""

from __future__ import annotations

import itertools
import random
import uuid

import pytest

from appliance.base.ids import TopicPartition
from spark.options import EARLIEST, LATEST
from spark.plan import (
    HOT,
    NOTHING_TIERED,
    TIERED,
    DataLoss,
    PartitionBounds,
    Range,
    Split,
    TierGap,
    TierPiece,
    TierRange,
    even_cuts,
    plan_splits,
    resolve_ranges,
    spread,
)

TP = TopicPartition("flights", 0)
ID = uuid.UUID(int=7)
MIB = 1024 * 1024


def piece(start: int, end: int, size: int = 1000) -> TierPiece:
    return TierPiece(start, end, size)


def planned(start: int, end: int, tier_range: TierRange, tier: str = "auto") -> list[tuple[int, int, str]]:
    splits = plan_splits(Range(TP, ID, start, end), tier_range, tier, MIB)
    return [(split.start, split.end, split.tier) for split in splits]


TWO = TierRange(0, 70, (piece(0, 40), piece(40, 70)))


def test_what_the_manifest_covers_is_tiered_and_the_rest_is_hot() -> None:
    assert planned(0, 100, TWO) == [(0, 40, TIERED), (40, 70, TIERED), (70, 100, HOT)]


def test_segments_are_cut_at_both_edges_of_the_range() -> None:
    assert planned(10, 50, TWO) == [(10, 40, TIERED), (40, 50, TIERED)]


def test_without_a_manifest_everything_is_hot() -> None:
    assert planned(5, 9, NOTHING_TIERED) == [(5, 9, HOT)]


def test_ranges_without_records_are_read_by_nobody() -> None:
    holes = TierRange(0, 90, (piece(0, 40), piece(60, 80)))
    assert planned(0, 100, holes) == [(0, 40, TIERED), (60, 80, TIERED), (90, 100, HOT)]
    assert planned(40, 60, holes) == []


def test_a_manifest_that_begins_later_leaves_the_range_to_the_broker() -> None:
    assert planned(0, 100, TierRange(50, 90, (piece(50, 90),))) == [(0, 100, HOT)]


def test_hot_only_and_tiered_only() -> None:
    assert planned(0, 40, TWO, HOT) == [(0, 40, HOT)]
    assert planned(0, 40, TWO, TIERED) == [(0, 40, TIERED)]
    with pytest.raises(TierGap, match=r"\[0, 70\)"):
        planned(0, 71, TWO, TIERED)


def test_large_segments_are_read_by_several_tasks() -> None:
    large = TierRange(0, 1000, (piece(0, 1000, 10 * MIB),))
    splits = plan_splits(Range(TP, ID, 0, 1000), large, "auto", 3 * MIB)
    assert [(split.start, split.end) for split in splits] == [(0, 250), (250, 500), (500, 750), (750, 1000)]


def test_whatever_the_manifest_no_record_is_read_twice_or_left_out() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        edges = sorted(chance.sample(range(200), chance.randrange(2, 12)))
        pieces = tuple(
            piece(low, high, chance.choice([1, 5 * MIB]))
            for low, high in itertools.pairwise(edges)
            if chance.random() < 0.8
        )
        tiered = TierRange(edges[0], edges[-1], pieces)
        start = chance.randrange(200)
        end = chance.randrange(start + 1, 260)
        splits = plan_splits(Range(TP, ID, start, end), tiered, "auto", MIB)
        splits = spread(splits, chance.choice([0, 3, 20]), chance.choice([0, 7]))
        read = [offset for split in splits for offset in range(split.start, split.end)]
        assert len(read) == len(set(read)), f"seed {seed}: an offset is read twice"
        assert not set(read) - set(range(start, end)), f"seed {seed}: an offset outside of the range is read"
        with_records = set(range(start, end))
        if tiered.start <= start < tiered.end:
            with_records -= set(range(tiered.start, tiered.end))
            with_records |= {offset for p in pieces for offset in range(max(p.start, start), min(p.end, end))}
        assert with_records <= set(read), f"seed {seed}: a gap"


def test_even_cuts_leave_no_piece_empty() -> None:
    assert even_cuts(0, 3, 10) == [(0, 1), (1, 2), (2, 3)]
    assert even_cuts(5, 6, 1) == [(5, 6)]


def test_splits_are_spread_over_the_wished_number_of_tasks() -> None:
    splits = [Split(TP, ID, 0, 900, HOT), Split(TP, ID, 900, 1000, HOT)]
    assert len(spread(splits, 10, 0)) == 10
    assert all(split.offsets <= 33 for split in spread(splits, 0, 33))
    assert spread(splits, 0, 0) == splits


BOUNDS = {TopicPartition("a", 0): PartitionBounds(5, 20), TopicPartition("a", 1): PartitionBounds(0, 0)}
IDS = {"a": ID}


def test_earliest_to_latest_is_what_there_is_and_empty_partitions_have_no_range() -> None:
    assert resolve_ranges(BOUNDS, IDS, EARLIEST, LATEST, True) == [Range(TopicPartition("a", 0), ID, 5, 20)]


def test_given_offsets_are_exact() -> None:
    starting = {TopicPartition("a", 0): 7, TopicPartition("a", 1): EARLIEST}
    ending = {TopicPartition("a", 0): 9, TopicPartition("a", 1): LATEST}
    assert resolve_ranges(BOUNDS, IDS, starting, ending, True) == [Range(TopicPartition("a", 0), ID, 7, 9)]


def test_offsets_that_are_gone_are_an_error_unless_the_user_says_otherwise() -> None:
    starting = {TopicPartition("a", 0): 3, TopicPartition("a", 1): 0}
    with pytest.raises(DataLoss, match="offset 3"):
        resolve_ranges(BOUNDS, IDS, starting, LATEST, True)
    assert resolve_ranges(BOUNDS, IDS, starting, LATEST, False) == [Range(TopicPartition("a", 0), ID, 5, 20)]
    ending = {TopicPartition("a", 0): 21, TopicPartition("a", 1): 0}
    with pytest.raises(DataLoss, match="offset 21"):
        resolve_ranges(BOUNDS, IDS, EARLIEST, ending, True)


def test_an_end_before_its_start_is_refused() -> None:
    starting = {TopicPartition("a", 0): 9, TopicPartition("a", 1): 0}
    ending = {TopicPartition("a", 0): 8, TopicPartition("a", 1): LATEST}
    with pytest.raises(ValueError, match="a-0: the read begins at offset 9, after its end at 8"):
        resolve_ranges(BOUNDS, IDS, starting, ending, True)
    assert resolve_ranges(BOUNDS, IDS, starting, starting, True) == [], "nothing is asked for"


def test_offsets_for_other_partitions_than_those_read_are_refused() -> None:
    with pytest.raises(ValueError, match="a-1"):
        resolve_ranges(BOUNDS, IDS, {TopicPartition("a", 0): 7}, LATEST, True)
