"""While one segment is sent the next one is scanned; the scan counts for that segment alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.tiering.events import UploadSegment
from appliance.tiering.log_source import segment_source
from appliance.tiering.names import SEGMENT, ObjectName
from appliance.tiering.scan import OpenTransaction
from appliance.tiering.uploader import NextSegment, ScanAhead, SegmentSource
from tests.support.tiering_kit import Hosted, ManualClock


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    """Three closed segments of five records and an active one."""
    hosted = Hosted(tmp_path, ManualClock())
    for number in range(3):
        hosted.append([b"value %d" % number] * 5)
        hosted.log.roll(0)
    hosted.append([b"active"])
    return hosted


def source_of(hosted: Hosted, start: int) -> SegmentSource:
    name = ObjectName(SEGMENT, start, start + 5, 1, 0)
    return segment_source(hosted, UploadSegment(name, start, 1_000), 0, 0)


def next_of(hosted: Hosted, start: int) -> NextSegment:
    found = source_of(hosted, start).next_segment
    assert found is not None
    return found


def test_the_scan_is_that_of_the_segment_behind(hosted: Hosted) -> None:
    ahead = ScanAhead(next_of(hosted, 0), 4096)
    source = source_of(hosted, 5)
    scan = ahead.take(NextSegment(source.file, 5, source.open_transactions), 5)
    assert scan is not None
    assert (scan.next_offset, scan.records, scan.listed_records) == (10, 5, 5)


def test_another_segment_or_another_part_of_it_is_scanned_anew(hosted: Hosted) -> None:
    mine = next_of(hosted, 0)
    ahead = ScanAhead(mine, 4096)
    assert ahead.take(next_of(hosted, 5), 10) is None
    assert ahead.take(mine, 7) is None, "an earlier leader has uploaded a part of it"
    assert ahead.take(replace(mine, open_transactions={7: OpenTransaction(3, 0)}), 5) is None
    grown = replace(mine.file, size_bytes=mine.file.size_bytes + 1)
    assert ahead.take(replace(mine, file=grown), 5) is None


def test_a_file_that_is_gone_or_damaged_is_left_to_its_own_upload(hosted: Hosted) -> None:
    mine = next_of(hosted, 0)
    mine.file.path.write_bytes(b"no batch" * 20)
    ahead = ScanAhead(mine, 4096)
    assert ahead.take(mine, 5) is None
    mine.file.path.unlink()
    ahead = ScanAhead(mine, 4096)
    assert ahead.take(mine, 5) is None


def test_the_active_segment_and_those_that_compaction_may_rewrite_are_not_scanned(
    hosted: Hosted, tmp_path: Path
) -> None:
    assert source_of(hosted, 10).next_segment is None
    compacted = Hosted(tmp_path / "compacted", ManualClock(), cleanup_policy="compact")
    for _ in range(3):
        compacted.append([b"value"] * 5)
        compacted.log.roll(0)
    assert source_of(compacted, 0).next_segment is None
