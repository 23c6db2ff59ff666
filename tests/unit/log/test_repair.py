"""A damaged segment becomes what it was, byte for byte, or stays as it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from appliance.log.damage import damaged_ranges
from appliance.log.partition_log import PartitionLog
from appliance.log.repair import NotRepaired, SegmentRepair
from appliance.log.segment import Segment
from appliance.records.batch import split_batches
from appliance.records.control import ABORT, build_marker
from tests.support.logs import append, config_of, open_log, read_all

BATCHES = 60
RECORDS = 2


class Elsewhere:
    """A copy of the undamaged segment; `lost` offsets are not there."""

    def __init__(self, segment: Segment) -> None:
        self.content = segment.path.read_bytes()
        self.lost: set[int] = set()
        self.reads = 0

    def read(self, offset: int, end: int) -> bytes:
        """Like a fetch: from the batch on that holds the offset, and perhaps farther than asked; never much at once."""
        self.reads += 1
        found: list[bytes] = []
        for batch in split_batches(self.content):
            base = int.from_bytes(batch[:8], "big")
            last = base + int.from_bytes(batch[23:27], "big")
            if last >= offset and base not in self.lost:
                found.append(bytes(batch))
            if len(found) == 3:
                break
        return b"".join(found)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    log = open_log(tmp_path, config_of(segment_bytes=4_000, index_interval_bytes=400))
    for number in range(BATCHES):
        append(log, b"%03d" % number * 20, b"second")
    return log


def repair_of(segment: Segment, elsewhere: Elsewhere, *, dense: bool = True) -> SegmentRepair:
    ranges = damaged_ranges(segment)
    assert ranges
    return SegmentRepair(segment.disk, segment, ranges, elsewhere.read, dense=dense)


def leftovers(segment: Segment) -> list[str]:
    return [path.name for path in segment.directory.iterdir() if path.suffix in (".cleaned", ".swap")]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_damaged_comes_back(log: PartitionLog, seed: int) -> None:
    chance = random.Random(seed)
    segment = log.segments[chance.randrange(len(log.segments) - 1)]
    segment.retain()
    elsewhere, expected = Elsewhere(segment), read_all(log)
    index, time_index = (bytes(part.unstored()) for part in (segment.index, segment.time_index))
    content = bytearray(elsewhere.content)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(content) - 20)
        content[at : at + 20] = chance.randbytes(20) if chance.random() < 0.5 else bytes(20)
    segment.path.write_bytes(content)

    cleaned = repair_of(segment, elsewhere).run()
    replacement = log.replacement(cleaned, [segment])
    replacement.prepare()
    assert log.replace(replacement)
    replacement.finish(0)
    log.replaced(replacement)
    segment.release()

    (mended,) = [each for each in log.segments if each.base_offset == segment.base_offset]
    assert mended.path.read_bytes() == elsewhere.content
    assert damaged_ranges(mended) == [] and not mended.is_damaged
    assert read_all(log) == expected
    assert (bytes(mended.index.unstored()), bytes(mended.time_index.unstored())) == (index, time_index)
    assert leftovers(segment) == []
    log.close()
    assert read_all(open_log(log.directory.parent, config_of(segment_bytes=4_000))) == expected


def damage(segment: Segment, offset: int) -> None:
    position = next(at for at, header in segment.headers() if header.base_offset == offset)
    content = bytearray(segment.path.read_bytes())
    content[position + 70] ^= 0x41
    segment.path.write_bytes(content)


def test_what_is_missing_elsewhere_too_is_never_left_out(log: PartitionLog) -> None:
    segment = log.segments[0]
    segment.retain()
    elsewhere = Elsewhere(segment)
    for offset in (4, 6):
        damage(segment, offset)
    damaged = segment.path.read_bytes()
    elsewhere.lost = {6}
    with pytest.raises(NotRepaired, match="missing there too"):
        repair_of(segment, elsewhere).run()
    assert segment.path.read_bytes() == damaged and leftovers(segment) == []
    # Where the log is compacted that is how it may be.
    cleaned = repair_of(segment, elsewhere, dense=False).run()
    assert cleaned.size_bytes < len(damaged)


def test_damage_elsewhere_is_not_taken_over(log: PartitionLog) -> None:
    segment = log.segments[0]
    segment.retain()
    elsewhere = Elsewhere(segment)
    damage(segment, 4)
    elsewhere.content = segment.path.read_bytes()
    with pytest.raises(Exception, match="crc"):
        repair_of(segment, elsewhere).run()
    assert leftovers(segment) == []


def test_nothing_there_at_all_ends_it(log: PartitionLog) -> None:
    segment = log.segments[0]
    segment.retain()
    elsewhere = Elsewhere(segment)
    damage(segment, 4)
    elsewhere.content = b""
    with pytest.raises(NotRepaired, match="nothing is there at offset 4"):
        repair_of(segment, elsewhere).run()
    assert elsewhere.reads == 1


def test_an_abort_that_the_index_does_not_know_is_refused(log: PartitionLog) -> None:
    segment = log.segments[0]
    segment.retain()
    elsewhere = Elsewhere(segment)
    damage(segment, 4)
    marker = bytearray(build_marker(ABORT, 0, producer_id=1, producer_epoch=0, now_ms=0))
    marker[:8] = (4).to_bytes(8, "big")
    elsewhere.read = lambda offset, end: bytes(marker)  # type: ignore[method-assign]
    with pytest.raises(NotRepaired, match="abort at offset 4"):
        repair_of(segment, elsewhere, dense=False).run()
