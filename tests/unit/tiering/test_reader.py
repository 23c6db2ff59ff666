from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.base.object_store import ObjectNotFound, StoreUnavailable
from appliance.tiering import reader as reader_module
from appliance.tiering.layout import CorruptObject
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.names import ObjectName, partition_folder
from appliance.tiering.reader import TierDataLoss, TierNotCovering, TierReader
from tests.support.fault_store import away
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import Tiered, offsets_of, records_of


@pytest.fixture
def tiered(tmp_path: Path) -> Tiered:
    """Offsets 0 to 59 in five objects."""
    tiered = Tiered(tmp_path)
    for _ in range(5):
        tiered.hosted.append_segment()
    tiered.tier()
    return tiered


@pytest.fixture
def reader(tiered: Tiered) -> TierReader:
    return TierReader(tiered.store)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "PAUSE_S", 0.0)


def read_range(reader: TierReader, start: int, end: int) -> list[int]:
    pieces = [found.records for found in reader.read_range(TOPIC_ID, 0, start, end)]
    return [offset for offset in offsets_of(pieces) if start <= offset < end]


def test_any_range_is_read_back_exactly(reader: TierReader) -> None:
    for start in range(0, 60, 7):
        for end in range(start, 61, 5):
            assert read_range(reader, start, end) == list(range(start, end))


def test_small_reads_give_the_same(tiered: Tiered) -> None:
    assert read_range(TierReader(tiered.store, read_bytes=37), 5, 55) == list(range(5, 55))


def test_a_read_goes_on_at_the_batch_that_the_last_one_cut_off_and_copies_nothing(tiered: Tiered) -> None:
    whole = [bytes(found.records) for found in TierReader(tiered.store).read_range(TOPIC_ID, 0, 0, 60)]
    for read_bytes in (37, 130, 300):
        found = list(TierReader(tiered.store, read_bytes=read_bytes).read_range(TOPIC_ID, 0, 0, 60))
        assert len(found) > len(whole)
        assert b"".join(piece.records for piece in found) == b"".join(whole)
        assert all(isinstance(piece.records, memoryview) for piece in found)


def test_bytes_at_the_end_that_are_no_whole_batch_are_an_error(reader: TierReader, tiered: Tiered) -> None:
    manifest = reader.manifest(TOPIC_ID, 0)
    assert manifest is not None
    segment = reader.segments(manifest, 12, 24)[0]
    real_get = reader._get
    reader._get = lambda source, position, length: real_get(source, position, length)[:-1]
    with pytest.raises(CorruptObject, match="are no batch"):
        list(reader.read(segment))


def test_segments_are_cut_to_the_range_and_can_be_sent_to_another_process(reader: TierReader) -> None:
    manifest = reader.manifest(TOPIC_ID, 0)
    assert manifest is not None
    segments = reader.segments(manifest, 10, 30)
    assert [(segment.start, segment.end) for segment in segments] == [(10, 12), (12, 24), (24, 30)]
    again = pickle.loads(pickle.dumps(segments[1]))
    values = [record.value for found in reader.read(again) for record in records_of(found.records)]
    assert values == [b"value %d" % offset for offset in range(12, 24)]
    two_batches = [offset for found in reader.read(again, 15, 17) for offset in offsets_of(found.records)]
    assert two_batches == list(range(12, 20))


def test_nothing_tiered_is_no_manifest(reader: TierReader) -> None:
    assert reader.manifest(TOPIC_ID, 5) is None


def test_what_retention_took_is_data_loss_and_never_a_silent_gap(reader: TierReader, tiered: Tiered) -> None:
    tiered.hosted.raise_log_start(20)
    tiered.tier()
    with pytest.raises(TierDataLoss, match="offset 5 is gone: the log starts at 20"):
        read_range(reader, 5, 30)
    assert read_range(reader, 20, 30) == list(range(20, 30))


def test_what_is_not_tiered_is_not_read_as_empty(reader: TierReader) -> None:
    with pytest.raises(TierNotCovering, match="up to 60"):
        read_range(reader, 50, 61)


def test_a_range_goes_on_when_objects_are_replaced_under_it(reader: TierReader, tiered: Tiered) -> None:
    found = reader.read_range(TOPIC_ID, 0, 0, 60)
    seen = offsets_of(next(found).records)
    old = tiered.object_name(2)
    name = str(ObjectName("seg", 24, 36, 1, 99))
    tiered.store.inner.create(partition_folder(TOPIC_ID, 0) + name, tiered.store.inner.get(old).data)
    items = list(tiered.manifest.items)
    item = items[2]
    assert isinstance(item, SegmentItem)
    items[2] = item._replace(name=name)
    tiered.write_manifest(replace(tiered.manifest, version=99, items=tuple(items)))
    tiered.store.inner.delete(old)
    for batches in found:
        seen += offsets_of(batches.records)
    assert seen == list(range(60))


def test_a_listed_object_that_is_not_there_ends_with_an_error(reader: TierReader, tiered: Tiered) -> None:
    tiered.store.inner.delete(tiered.object_name(1))
    with pytest.raises(TierNotCovering, match="its object is not there"):
        read_range(reader, 0, 60)
    manifest = reader.manifest(TOPIC_ID, 0)
    assert manifest is not None
    with pytest.raises(ObjectNotFound):
        list(reader.read(reader.segments(manifest, 12, 24)[0]))


def test_an_outage_is_waited_for_and_a_long_one_is_an_error(reader: TierReader, tiered: Tiered) -> None:
    failures = iter(range(4))
    tiered.store.rule = lambda operation, name: "refuse" if next(failures, None) is not None else None
    assert read_range(reader, 0, 60) == list(range(60))
    tiered.store.rule = away()
    with pytest.raises(StoreUnavailable):
        read_range(reader, 0, 60)
