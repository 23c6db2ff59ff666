"""Who reads what: ranges of offsets cut into splits. Pure: no Spark, no socket, no bucket.

The caller fixes each partition's end first and reads the manifest after that; so whatever the manifest does not cover
up to the end is still with the brokers. Each split has an exact [start, end), the splits of a partition adjoin, and
whoever decodes a batch that crosses an edge drops what lies outside: every record is in one split.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from appliance.base.ids import TopicPartition
from spark.options import EARLIEST, LATEST, AtTimestamp, OffsetSpec

AUTO = "auto"
"""Of a split: from the object store as far as that reaches, the rest from brokers."""
HOT = "hot"
TIERED = "tiered"


class DataLoss(Exception):
    """Offsets that were asked for are not there any more."""


class TierGap(Exception):
    """`tier=tiered` was asked for, and part of the range is not in the tier yet."""


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """What the leader said before anything else was asked."""

    log_start_offset: int
    end_offset: int
    """High watermark, or the last stable offset for read_committed."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    tp: TopicPartition
    topic_id: uuid.UUID
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TierPiece:
    """Offsets [start, end) of one segment, whose data is `bytes` in size."""

    start: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TierRange:
    """What a manifest covers: [start, end), with records in `pieces` only."""

    start: int
    end: int
    pieces: tuple[TierPiece, ...] = ()


NOTHING_TIERED = TierRange(0, 0)


@dataclass(frozen=True, slots=True)
class Split:
    """The work of one Spark task: offsets [start, end) of one partition, from one tier."""

    tp: TopicPartition
    topic_id: uuid.UUID
    start: int
    end: int
    tier: str

    @property
    def offsets(self) -> int:
        return self.end - self.start


def resolve_ranges(
    bounds: Mapping[TopicPartition, PartitionBounds],
    topic_ids: Mapping[str, uuid.UUID],
    starting: OffsetSpec,
    ending: OffsetSpec,
    fail_on_data_loss: bool,
) -> list[Range]:
    """What was asked for, between what there is.

    Raises:
        DataLoss: an asked offset is not there (any more), and `fail_on_data_loss`.
        ValueError: offsets are given for partitions that are not read, or not for all; an end before its start.
    """
    ranges = []
    for spec in (starting, ending):
        if isinstance(spec, dict):
            check_partitions(spec, bounds)
    for tp, bound in sorted(bounds.items()):
        start = _resolve(tp, starting, bound, fail_on_data_loss)
        end = _resolve(tp, ending, bound, fail_on_data_loss)
        if start > end:
            raise ValueError(f"{tp}: the read begins at offset {start}, after its end at {end}")
        if start < end:
            ranges.append(Range(tp, topic_ids[tp.topic], start, end))
    return ranges


def resolve_starts(
    bounds: Mapping[TopicPartition, PartitionBounds], starting: OffsetSpec, fail_on_data_loss: bool
) -> dict[TopicPartition, int]:
    """Where a stream begins in each partition. Raises: DataLoss, ValueError: as `resolve_ranges`."""
    if isinstance(starting, dict):
        check_partitions(starting, bounds)
    return {tp: _resolve(tp, starting, bound, fail_on_data_loss) for tp, bound in sorted(bounds.items())}


def check_partitions(given: Mapping[TopicPartition, int], read: Iterable[TopicPartition]) -> None:
    """Raises: ValueError: offsets or times are given for partitions that are not read, or not for all that are."""
    odd = sorted(map(str, set(given) ^ set(read)))
    if odd:
        raise ValueError(f"offsets must be given for exactly the partitions that are read; differing: {', '.join(odd)}")


def offsets_at(
    spec: AtTimestamp, found: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, PartitionBounds]
) -> dict[TopicPartition, int]:
    """What brokers found for times (-1: no record is as late), within what there is.

    Raises:
        ValueError: nothing was found for a partition, and that is to be an error.
    """
    nothing = sorted(str(tp) for tp, offset in found.items() if offset < 0)
    if nothing and not spec.latest_if_none:
        raise ValueError(f"no record is as late as asked for in {', '.join(nothing)}")
    return {
        tp: bound.end_offset if found[tp] < 0 else min(max(found[tp], bound.log_start_offset), bound.end_offset)
        for tp, bound in bounds.items()
    }


def _resolve(tp: TopicPartition, spec: OffsetSpec, bound: PartitionBounds, fail_on_data_loss: bool) -> int:
    if isinstance(spec, AtTimestamp):
        raise TypeError("times are to be turned into offsets first")
    offset = spec[tp] if isinstance(spec, dict) else spec
    if offset == EARLIEST:
        return bound.log_start_offset
    if offset == LATEST:
        return bound.end_offset
    if bound.log_start_offset <= offset <= bound.end_offset:
        return offset
    if fail_on_data_loss:
        there = f"[{bound.log_start_offset}, {bound.end_offset})"
        raise DataLoss(
            f"{tp}: offset {offset} is asked for, the log holds {there}; failOnDataLoss=false reads the rest"
        )
    return min(max(offset, bound.log_start_offset), bound.end_offset)


def plan_splits(range_: Range, tier_range: TierRange, tier: str, split_bytes: int) -> list[Split]:
    """Cut one range: segments by offset up to a cursor, the rest is hot.

    Args:
        range_: what is to be read.
        tier_range: what the manifest covers of it.
        tier: `auto`, `hot` (nothing from the object store) or `tiered` (nothing from brokers).
        split_bytes: a segment larger than this is read by several tasks.

    Raises:
        TierGap: `tier` is `tiered`, and the manifest does not cover the range.
    """
    splits: list[Split] = []
    cursor = range_.start
    if tier != HOT and tier_range.start <= cursor < tier_range.end:
        for piece in tier_range.pieces:
            start, end = max(piece.start, range_.start), min(piece.end, range_.end)
            if start < end:
                splits += _cut_piece(range_, piece, start, end, split_bytes)
        # What no piece covers up to here holds no records; compaction leaves such ranges.
        cursor = min(tier_range.end, range_.end)
    if cursor < range_.end:
        if tier == TIERED:
            there = f"[{tier_range.start}, {tier_range.end})"
            raise TierGap(
                f"{range_.tp}: the tier holds {there}, {range_.end} is asked for; tier=auto reads the rest hot"
            )
        splits.append(Split(range_.tp, range_.topic_id, cursor, range_.end, HOT))
    return splits


def _cut_piece(range_: Range, piece: TierPiece, start: int, end: int, split_bytes: int) -> list[Split]:
    share = piece.bytes * (end - start) // max(1, piece.end - piece.start)
    parts = min(max(1, -(-share // split_bytes)), end - start)
    return [Split(range_.tp, range_.topic_id, low, high, TIERED) for low, high in even_cuts(start, end, parts)]


def even_cuts(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """[start, end) in `parts` adjoining pieces, none empty when there are offsets enough."""
    parts = max(1, min(parts, end - start))
    edges = [start + (end - start) * number // parts for number in range(parts + 1)]
    return list(itertools.pairwise(edges))


def spread(splits: Sequence[Split], min_partitions: int, max_records: int) -> list[Split]:
    """Cut further: no split above `max_records` offsets, and about `min_partitions` splits in all (0 = no wish).

    As with Spark's Kafka source, larger splits are cut into more.
    """
    if max_records:
        splits = [
            _part(split, cut)
            for split in splits
            for cut in even_cuts(split.start, split.end, -(-split.offsets // max_records))
        ]
    total = sum(split.offsets for split in splits)
    if len(splits) >= min_partitions or not total:
        return list(splits)
    result: list[Split] = []
    for split in splits:
        wish = max(1, round(min_partitions * split.offsets / total))
        result += [_part(split, cut) for cut in even_cuts(split.start, split.end, wish)]
    return result


def _part(split: Split, cut: tuple[int, int]) -> Split:
    return Split(split.tp, split.topic_id, cut[0], cut[1], split.tier)
