from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.records.control import ABORT, build_marker
from appliance.tiering import fetcher as fetcher_module
from appliance.tiering.fetcher import RemoteLogReader
from appliance.tiering.layout import AbortedTransaction
from appliance.tiering.manifest import HoleItem, SegmentItem, encode_page, page_item
from appliance.tiering.names import ObjectName, partition_folder
from tests.support.fault_store import away
from tests.support.replicated import until
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import Tiered, offsets_of, records_of
from tests.support.tiering_kit import START_MS

END = 1 << 60


@pytest.fixture
def tiered(tmp_path: Path) -> Tiered:
    """Offsets 0 to 59: five segments of three batches of four records, one second between batches."""
    tiered = Tiered(tmp_path)
    for _ in range(5):
        for _ in range(3):
            first = tiered.hosted.log.log_end_offset
            tiered.hosted.append([b"value %d" % (first + n) for n in range(4)])
            tiered.background.pass_time(1_000)
        tiered.hosted.log.roll(0)
    tiered.tier()
    return tiered


def reader_of(tiered: Tiered, path: Path, **configs: object) -> RemoteLogReader:
    texts = {name.replace("_", "."): str(value) for name, value in configs.items()}
    return RemoteLogReader(tiered.store, tiered.clock, BrokerConfig(texts), path / "cache")


@pytest.fixture
def reader(tiered: Tiered, tmp_path: Path) -> Iterator[RemoteLogReader]:
    reader = reader_of(tiered, tmp_path)
    yield reader
    reader.close()


def read(reader: RemoteLogReader, offset: int, max_bytes: int = 1 << 20, max_offset: int = END) -> bytes:
    return reader.read(TOPIC_ID, 0, offset, max_bytes, max_offset)


def code_of(action: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action()
    return caught.value.code


def test_every_offset_is_read_back_from_the_batch_that_holds_it(reader: RemoteLogReader) -> None:
    for offset in range(60):
        records = records_of(read(reader, offset))
        assert records[0].offset == offset // 4 * 4
        assert records[-1].offset == offset // 12 * 12 + 11
        assert all(record.value == b"value %d" % record.offset for record in records)


def test_one_read_brings_no_more_than_the_loop_can_stand(
    reader: RemoteLogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(read(reader, 0, 100 << 20))
    monkeypatch.setattr(fetcher_module, "ANSWER_MAX_BYTES", whole - 1)
    found = reader.fetch(TOPIC_ID, 0, 0, 100 << 20, END)
    assert 0 < len(found.records) < whole
    assert offsets_of(reader.fetch(TOPIC_ID, 0, found.next_offset, 100 << 20, END).records)[0] == found.next_offset


def test_a_consumer_that_follows_sees_each_record_once(reader: RemoteLogReader) -> None:
    seen, offset = [], 0
    while offset < 60:
        found = reader.fetch(TOPIC_ID, 0, offset, 200, END)
        seen += offsets_of(found.records)
        offset = found.next_offset
    assert seen == list(range(60))


def test_limits_are_kept_but_for_the_first_batch(reader: RemoteLogReader) -> None:
    assert offsets_of(read(reader, 0, max_bytes=1)) == [0, 1, 2, 3]
    size = len(read(reader, 0, max_bytes=1))
    assert offsets_of(read(reader, 0, max_bytes=2 * size)) == list(range(8))
    assert offsets_of(read(reader, 0, max_offset=4)) == [0, 1, 2, 3]
    assert read(reader, 4, max_offset=4) == b""


def test_small_chunks_give_the_same_batches(tiered: Tiered, tmp_path: Path) -> None:
    reader = reader_of(tiered, tmp_path, tiering_chunk_bytes=4096)
    tiered.hosted.append([b"x" * 30_000, b"y"])
    tiered.hosted.append([b"z"])
    tiered.hosted.log.roll(0)
    tiered.tier()
    tiered.clock.elapsed_ms += 100_000
    assert [len(record.value or b"") for record in records_of(read(reader, 60, 1))] == [30_000, 1]
    assert offsets_of(read(reader, 60)) == [60, 61, 62]
    assert offsets_of(read(reader, 62)) == [62]
    reader.close()


def test_below_the_start_is_out_of_range_and_above_the_end_an_alarm(reader: RemoteLogReader, tiered: Tiered) -> None:
    tiered.hosted.raise_log_start(12)
    tiered.tier()
    assert code_of(lambda: read(reader, 11)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_of(read(reader, 12))[0] == 12
    assert code_of(lambda: read(reader, 60)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(lambda: reader.read(TOPIC_ID, 7, 0, 1, END)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_what_was_tiered_since_the_manifest_was_cached_is_found(reader: RemoteLogReader, tiered: Tiered) -> None:
    read(reader, 0)
    tiered.hosted.append_segment()
    tiered.tier()
    assert offsets_of(read(reader, 60))[0] == 60


def test_an_object_that_was_replaced_is_found_in_the_new_manifest(reader: RemoteLogReader, tiered: Tiered) -> None:
    read(reader, 0)
    old = tiered.object_name(0)
    body = tiered.store.inner.get(old).data
    name = str(ObjectName("seg", 0, 12, 1, 99))
    tiered.store.inner.create(partition_folder(TOPIC_ID, 0) + name, body)
    first = tiered.manifest.items[0]
    assert isinstance(first, SegmentItem)
    tiered.write_manifest(
        replace(tiered.manifest, version=99, items=(first._replace(name=name), *tiered.manifest.items[1:]))
    )
    tiered.store.inner.delete(old)
    reader.cache.forget(old)
    assert offsets_of(read(reader, 0)) == list(range(12))


def test_a_missing_object_is_a_storage_error(tiered: Tiered, reader: RemoteLogReader) -> None:
    tiered.store.inner.delete(tiered.object_name(0))
    assert code_of(lambda: read(reader, 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets_of(read(reader, 12))[0] == 12


def test_a_store_that_is_away_is_a_storage_error_and_no_more_than_that(tiered: Tiered, reader: RemoteLogReader) -> None:
    tiered.store.rule = away()
    assert code_of(lambda: read(reader, 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    tiered.store.rule = lambda operation, name: None
    assert offsets_of(read(reader, 0)) == list(range(12))


def test_a_chunk_is_got_once_and_then_comes_from_the_disk(reader: RemoteLogReader, tiered: Tiered) -> None:
    read(reader, 0)
    spent = tiered.store.calls.total()
    for _ in range(10):
        read(reader, 4)
    assert tiered.store.calls.total() == spent
    assert reader.cache.hits == 10


def test_reading_in_order_reads_ahead_up_to_the_end_of_the_object(tiered: Tiered, tmp_path: Path) -> None:
    for _ in range(40):
        tiered.hosted.append([b"x" * 1_000])
    tiered.hosted.log.roll(0)
    tiered.tier()
    reader = reader_of(tiered, tmp_path, tiering_chunk_bytes=4096)
    name = tiered.object_name(5)
    offset = 60
    for _ in range(8):
        offset = reader.fetch(TOPIC_ID, 0, offset, 1_200, END).next_offset
    reader._chunks._threads.shutdown(wait=True)
    ahead = max(number for chunk_name, number in reader.cache._chunks if chunk_name == name)
    assert ahead >= (offset - 60) * 1_000 // 4096 + 3
    reader.close()


def test_what_is_read_ahead_comes_four_chunks_a_request_and_all_of_it_is_right(tiered: Tiered, tmp_path: Path) -> None:
    for number in range(40):
        tiered.hosted.append([b"%03d" % number * 330])
    tiered.hosted.log.roll(0)
    tiered.tier()
    reader = reader_of(tiered, tmp_path, tiering_chunk_bytes=4096)
    name, asked = tiered.object_name(5), []

    def note(operation: str, wanted: str) -> None:
        if operation == "get" and wanted == name:
            asked.append(wanted)

    tiered.store.rule = note
    offset, found = 60, b""
    while offset < 100:
        answer = reader.fetch(TOPIC_ID, 0, offset, 1_200, END)
        offset, found = answer.next_offset, found + answer.records
        until(lambda: not reader._chunks._ahead and not reader._chunks._under_way, "what is read ahead")
    assert [record.value for record in records_of(found)] == [b"%03d" % number * 330 for number in range(40)]
    assert -(-len(found) // 4096) == 11
    assert len(asked) == 5, "the tail, the first chunk, and then four, four and two"
    reader.close()


def test_aborted_transactions_come_with_the_batches_that_they_touch(tiered: Tiered, tmp_path: Path) -> None:
    hosted = tiered.hosted
    hosted.append([b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    hosted.append([b"b"])
    hosted.log.roll(0)
    hosted.append([b"c"])
    hosted.append_batch(build_marker(ABORT, 1, producer_id=1, producer_epoch=0, now_ms=0))
    hosted.log.roll(0)
    tiered.tier()
    reader = reader_of(tiered, tmp_path)
    assert reader.fetch(TOPIC_ID, 0, 60, 1 << 20, END).aborted == [AbortedTransaction(1, 60, 63)]
    assert reader.fetch(TOPIC_ID, 0, 61, 1 << 20, END).aborted == [AbortedTransaction(1, 60, 63)]
    assert reader.fetch(TOPIC_ID, 0, 0, 1 << 20, END).aborted == []
    reader.close()


def test_a_range_without_records_is_stepped_over(reader: RemoteLogReader, tiered: Tiered) -> None:
    items = tiered.manifest.items
    tiered.write_manifest(
        replace(tiered.manifest, version=99, items=(items[0], HoleItem(12, 36, "compacted"), *items[3:]))
    )
    found = reader.fetch(TOPIC_ID, 0, 20, 1 << 20, END)
    assert offsets_of(found.records)[0] == 36
    assert found.next_offset == 48


def test_items_in_pages_are_found(reader: RemoteLogReader, tiered: Tiered) -> None:
    manifest = tiered.manifest
    inner_items, outer_first = manifest.items[:2], manifest.items[2]
    folder = partition_folder(TOPIC_ID, 0)
    inner_data = encode_page(TOPIC_ID, 0, inner_items)
    inner = page_item(str(ObjectName("page", 0, 24, 1, 50)), inner_data, inner_items)
    outer_data = encode_page(TOPIC_ID, 0, [inner, outer_first])
    outer = page_item(str(ObjectName("page", 0, 36, 1, 51)), outer_data, [inner, outer_first])
    tiered.store.inner.create(folder + inner.name, inner_data)
    tiered.store.inner.create(folder + outer.name, outer_data)
    tiered.write_manifest(replace(manifest, version=99, items=(outer, *manifest.items[3:])))
    for offset in range(60):
        assert offsets_of(read(reader, offset))[0] == offset // 4 * 4
    found = reader.offset_for_timestamp(TOPIC_ID, 0, START_MS + 4_000)
    assert found is not None and found.offset == 16


def test_the_first_record_of_a_time_is_found(reader: RemoteLogReader) -> None:
    for number in range(15):
        found = reader.offset_for_timestamp(TOPIC_ID, 0, START_MS + 1_000 * number + 2)
        assert found == (4 * number + 2, START_MS + 1_000 * number + 2)
    between = reader.offset_for_timestamp(TOPIC_ID, 0, START_MS + 500)
    assert between is not None and between.offset == 4
    oldest = reader.offset_for_timestamp(TOPIC_ID, 0, 0)
    assert oldest is not None and oldest.offset == 0
    assert reader.offset_for_timestamp(TOPIC_ID, 0, START_MS + 1_000_000) is None
    assert reader.offset_for_timestamp(TOPIC_ID, 9, 0) is None


def test_times_out_of_order_are_found_by_the_first_record_that_is_late_enough(tiered: Tiered, tmp_path: Path) -> None:
    hosted = tiered.hosted
    for timestamp in (9_000, 2_000, 7_000, 1_000):
        hosted.append([b"x"], timestamp=START_MS + 100_000 + timestamp)
    hosted.log.roll(0)
    tiered.tier()
    reader = reader_of(tiered, tmp_path)
    found = reader.offset_for_timestamp(TOPIC_ID, 0, START_MS + 100_000 + 5_000)
    assert found is not None and found.offset == 60
    reader.close()


def test_a_time_below_the_cut_of_an_item_is_not_found_there(reader: RemoteLogReader, tiered: Tiered) -> None:
    tiered.hosted.raise_log_start(14)
    tiered.tier()
    found = reader.offset_for_timestamp(TOPIC_ID, 0, START_MS)
    assert found is not None and found.offset == 14


def test_what_was_read_counts_against_the_rate_wherever_it_came_from(tiered: Tiered, tmp_path: Path) -> None:
    limited = reader_of(tiered, tmp_path, remote_log_manager_fetch_max_bytes_per_second=100)
    try:
        assert (limited.wait_ms(), limited.waits_ms()) == (0, (0.0, 0))
        size = len(read(limited, 0))
        assert size > 100
        wait_ms = limited.wait_ms()
        assert wait_ms == round((size - 100) / 100 * 1_000)
        assert limited.waits_ms() == (float(wait_ms), wait_ms)
        tiered.background.pass_time(wait_ms + 1_000)
        assert limited.wait_ms() == 0
        again = len(read(limited, 0))
        assert again == size and limited.wait_ms() > 0, "from the chunk cache"
        limited.limit_rate(1 << 40)
        assert limited.wait_ms() == 0
    finally:
        limited.close()
