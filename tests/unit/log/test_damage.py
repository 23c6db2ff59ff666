"""Damage below the recovery point: found when somebody reads there, told with its offsets, never cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.log.damage import RANGES_MAX, DamageBook, damaged_ranges
from appliance.log.partition_log import PartitionLog
from appliance.log.segment import Segment
from appliance.records.errors import CorruptBatch
from tests.support.logs import append, config_of, open_log, read_all

BATCHES = 60
RECORDS = 2


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    log = open_log(tmp_path, config_of(segment_bytes=4_000, index_interval_bytes=400))
    for number in range(BATCHES):
        append(log, b"%03d" % number * 20, b"second")
    assert len(log.segments) > 1
    return log


def place_of(segment: Segment, offset: int) -> tuple[int, int]:
    """Position and size of the batch that begins at an offset."""
    return next((at, header.size_in_bytes) for at, header in segment.headers() if header.base_offset == offset)


def damage(segment: Segment, offset: int, within: int) -> None:
    position, _ = place_of(segment, offset)
    content = bytearray(segment.path.read_bytes())
    content[position + within] ^= 0x41
    segment.path.write_bytes(content)


HEADER, LENGTH, BODY = 16, 9, 70


def looked_into(log: PartitionLog) -> None:
    """What the broker does now and then."""
    book = log.segments[0]._files.damage
    for segment in book.take_suspects():
        book.found(segment, damaged_ranges(segment))


@pytest.mark.parametrize("within", [HEADER, LENGTH, BODY])
@pytest.mark.parametrize("offset", [0, 6, 14, 24])
def test_the_offsets_that_are_lost_are_named(log: PartitionLog, offset: int, within: int) -> None:
    segment = log.segments[0]
    assert damaged_ranges(segment) == []
    damage(segment, offset, within)
    (found,) = damaged_ranges(segment)
    assert found.start_offset == offset
    assert offset + RECORDS <= found.end_offset
    if within == BODY:
        assert found.end_offset == offset + RECORDS, "the header still says where the next batch is"
    else:
        indexed = [segment.base_offset + each + 1 for each in segment.index.offsets]
        behind = min([each for each in indexed if each > offset + RECORDS], default=segment.next_offset)
        assert found.end_offset <= behind


def test_several_places_are_told_apart(log: PartitionLog) -> None:
    segment = log.segments[0]
    for offset in (2, 8, 10, 20):
        damage(segment, offset, BODY)
    assert [(start, end) for start, end, *_ in damaged_ranges(segment)] == [(2, 4), (8, 10), (10, 12), (20, 22)]


def test_so_many_places_and_no_more(tmp_path: Path) -> None:
    log = open_log(tmp_path, config_of(segment_bytes=1 << 20))
    for _ in range(RANGES_MAX + 20):
        append(log, b"x", b"y")
    for number in range(RANGES_MAX + 10):
        damage(log.segments[0], RECORDS * number, 65)
    found = damaged_ranges(log.segments[0])
    assert len(found) == RANGES_MAX + 1
    assert found[-1].end_offset == log.segments[0].next_offset


@pytest.mark.parametrize("within", [HEADER, BODY])
def test_reads_before_and_behind_the_damage_go_on(log: PartitionLog, within: int) -> None:
    segment = log.segments[0]
    expected = read_all(log)
    damage(segment, 6, within)
    if within == BODY:
        # Nobody checks a crc on the way to a client; the client does, and so does whoever opens batches here.
        with pytest.raises(CorruptBatch):
            list(log.batches(0))
    else:
        with pytest.raises(CorruptBatch):
            log.read(6, 1_000, log.log_end_offset)
    looked_into(log)
    ((start, end, *_),) = log.damage
    assert start == 6
    before = log.read(0, 10_000, log.log_end_offset)
    assert before is not None and before.length == end_before(log, 6)
    for offset in range(6, end):
        with pytest.raises(CorruptBatch):
            log.read(offset, 1_000, log.log_end_offset)
    assert read_all(log, end) == [record for record in expected if record.offset >= end]
    assert log.log_end_offset == BATCHES * RECORDS


def end_before(log: PartitionLog, offset: int) -> int:
    end = 0
    try:
        for at, header in log.segments[0].headers():
            if header.base_offset >= offset:
                break
            end = at + header.size_in_bytes
    except CorruptBatch:
        pass
    return end


def test_damage_goes_with_its_segment(log: PartitionLog) -> None:
    segment = log.segments[0]
    damage(segment, 6, HEADER)
    with pytest.raises(CorruptBatch):
        log.read(6, 1_000, log.log_end_offset)
    looked_into(log)
    assert log.damage
    log.raise_log_start(segment.next_offset)
    log.delete_local_segments_below(segment.next_offset)
    assert log.damage == []
    assert segment._files.damage.is_empty


def test_a_segment_is_looked_into_once(log: PartitionLog) -> None:
    book = DamageBook()
    segment = log.segments[0]
    for _ in range(3):
        book.suspect(segment)
    assert book.take_suspects() == [segment]
    book.found(segment, [])
    book.suspect(segment)
    assert book.take_suspects() == []
