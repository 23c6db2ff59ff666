"""The offsets of a stream: JSON as that of Spark's Kafka source, and how far a trigger goes. Pure.

`{"topic": {"0": 23}}`: the next offset to be read of each partition. Which tier an offset lies in is never in it, so a
batch that is replayed reads the same records wherever they are by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from appliance.base.ids import TopicPartition
from spark.plan import DataLoss, PartitionBounds, Range

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """In one order, for Spark compares texts."""
    table: Json = {}
    for tp, offset in sorted(offsets.items()):
        table.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return table


def from_json(table: Json) -> Offsets:
    return {TopicPartition(topic, int(number)): at for topic, row in table.items() for number, at in row.items()}


def lags_of(start: Offsets, latest: Offsets) -> Offsets:
    """What each partition has left to read."""
    return {tp: max(0, end - start.get(tp, 0)) for tp, end in latest.items()}


def next_end(start: Offsets, latest: Offsets, max_offsets: int | None, fail_on_data_loss: bool) -> Offsets:
    """Where a trigger ends that begins at `start`: at the latest offsets, or where `max_offsets` are shared out.

    Each partition gets its share of what is left to read; the smallest go first, so that none waits for ever. A new
    partition is read from its beginning; one that is gone is data loss.

    Raises:
        DataLoss: a partition is gone or ends before what was read, and `fail_on_data_loss`.
    """
    if fail_on_data_loss:
        for tp, offset in start.items():
            if tp not in latest:
                raise DataLoss(f"{tp} is gone; failOnDataLoss=false goes on without it")
            if latest[tp] < offset:
                raise DataLoss(f"{tp} ends at offset {latest[tp]}, but was read up to {offset}")
    lags = lags_of(start, latest)
    total = sum(lags.values())
    if max_offsets is None or total <= max_offsets:
        return {tp: max(end, start.get(tp, 0)) for tp, end in latest.items()}
    ends: Offsets = {}
    seen = given = 0
    for lag, tp in sorted((lag, tp) for tp, lag in lags.items()):
        seen += lag
        share = -(-max_offsets * seen // total) - given
        given += share
        ends[tp] = start.get(tp, 0) + min(share, lag)
    return ends


def ranges_between(
    start: Offsets,
    end: Offsets,
    bounds: Mapping[TopicPartition, PartitionBounds],
    topic_ids: Mapping[str, uuid.UUID],
    fail_on_data_loss: bool,
) -> list[Range]:
    """What lies between two offsets of a stream, as far as it is there.

    Raises:
        DataLoss: part of it is not there (any more), and `fail_on_data_loss`.
    """
    ranges = []
    for tp, stop in sorted(end.items()):
        begin = start.get(tp, 0)
        if begin >= stop:
            continue
        bound = bounds.get(tp)
        low, high = (stop, stop) if bound is None else (bound.log_start_offset, bound.end_offset)
        if fail_on_data_loss and (begin < low or stop > high):
            there = "is gone" if bound is None else f"holds [{low}, {high})"
            raise DataLoss(
                f"{tp}: [{begin}, {stop}) is to be read, the log {there}; failOnDataLoss=false reads the rest"
            )
        begin, stop = max(begin, low), min(stop, high)
        if begin < stop:
            ranges.append(Range(tp, topic_ids[tp.topic], begin, stop))
    return ranges
