"""Streams go from offset to offset: nothing is left out, nothing waits for ever, what is gone is named."""

from __future__ import annotations

import random
import uuid

import pytest

from appliance.base.ids import TopicPartition
from spark.offsets import Offsets, from_json, next_end, ranges_between, to_json
from spark.options import AtTimestamp
from spark.plan import DataLoss, PartitionBounds, offsets_at

A, B, C = (TopicPartition(topic, number) for topic, number in (("a", 0), ("a", 1), ("c", 10)))
IDS = {"a": uuid.UUID(int=1), "c": uuid.UUID(int=2)}


def test_offsets_are_the_json_of_sparks_kafka_source_in_one_order() -> None:
    assert to_json({C: 7, B: 1, A: 0}) == {"a": {"0": 0, "1": 1}, "c": {"10": 7}}
    assert list(to_json({C: 7, A: 0})) == ["a", "c"]
    assert from_json(to_json({C: 7, B: 1})) == {C: 7, B: 1}


def test_without_a_limit_a_trigger_goes_to_the_end() -> None:
    assert next_end({A: 3}, {A: 10, B: 4}, None, True) == {A: 10, B: 4}


def test_triggers_share_the_limit_and_every_partition_gets_to_its_end() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        latest: Offsets = {
            TopicPartition("t", number): chance.choice([0, 1, 2, 50, 400]) for number in range(chance.randint(1, 9))
        }
        limit = chance.choice([1, 7, 100, 600])
        at: Offsets = {}
        for _ in range(5_000):
            ends = next_end(at, latest, limit, True)
            moved = sum(ends[tp] - at.get(tp, 0) for tp in latest)
            assert 0 <= moved <= limit and all(at.get(tp, 0) <= ends[tp] <= latest[tp] for tp in latest), f"seed {seed}"
            if at == ends:
                break
            at = ends
        assert at == latest, f"seed {seed}: something was left waiting"


def test_small_partitions_do_not_wait_for_large_ones() -> None:
    ends = next_end({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10, True)
    assert (ends[A], ends[B]) == (9, 1)


def test_what_is_gone_is_data_loss_unless_the_user_says_otherwise() -> None:
    with pytest.raises(DataLoss, match="a-0 is gone"):
        next_end({A: 3}, {B: 4}, None, True)
    with pytest.raises(DataLoss, match="ends at offset 2"):
        next_end({A: 3}, {A: 2}, None, True)
    assert next_end({A: 3, B: 1}, {A: 2}, None, False) == {A: 3}


def test_a_range_that_retention_has_reached_is_data_loss() -> None:
    bounds = {A: PartitionBounds(5, 20)}
    assert [(r.start, r.end) for r in ranges_between({A: 5}, {A: 9}, bounds, IDS, True)] == [(5, 9)]
    with pytest.raises(DataLoss, match=r"\[3, 9\) is to be read, the log holds \[5, 20\)"):
        ranges_between({A: 3}, {A: 9}, bounds, IDS, True)
    assert [(r.start, r.end) for r in ranges_between({A: 3}, {A: 9}, bounds, IDS, False)] == [(5, 9)]
    with pytest.raises(DataLoss, match="is gone"):
        ranges_between({B: 0}, {B: 1}, bounds, IDS, True)
    assert ranges_between({A: 5, B: 0}, {A: 5, B: 1}, bounds, IDS, False) == []


def test_a_new_partition_is_read_from_its_first_offset() -> None:
    bounds = {A: PartitionBounds(0, 9), B: PartitionBounds(4, 9)}
    assert [(r.tp, r.start, r.end) for r in ranges_between({}, {A: 9}, bounds, IDS, True)] == [(A, 0, 9)]
    with pytest.raises(DataLoss):
        ranges_between({}, {B: 9}, bounds, IDS, True)


def test_times_become_offsets_within_the_log() -> None:
    bounds = {A: PartitionBounds(5, 20), B: PartitionBounds(0, 9)}
    assert offsets_at(AtTimestamp(7, True), {A: 3, B: -1}, bounds) == {A: 5, B: 9}
    with pytest.raises(ValueError, match="no record is as late as asked for in a-1"):
        offsets_at(AtTimestamp(7, False), {A: 3, B: -1}, bounds)
