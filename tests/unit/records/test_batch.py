"""The header of a batch: parsed, checked, stamped, and cut out of a stream of batches."""

from __future__ import annotations

import struct

import pytest

from appliance.base.errors import ErrorCode
from appliance.records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    check_batch,
    parse_header,
    set_log_append_time,
    split_batches,
    stamp,
)
from appliance.records.builder import build_batch
from appliance.records.control import COMMIT, build_marker
from appliance.records.reader import read_records


def batch_of(count: int, **options: int) -> bytearray:
    return bytearray(build_batch([(1000 + n, b"k", b"v%d" % n, ()) for n in range(count)], **options))


def test_a_header_tells_all_that_is_in_the_61_bytes() -> None:
    header = check_batch(batch_of(3, producer_id=9, producer_epoch=2, base_sequence=5, base_offset=70))
    assert header.magic == 2
    assert (header.base_offset, header.last_offset, header.next_offset) == (70, 72, 73)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 5, 7)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1000, 1002, 3)
    assert not header.is_transactional and not header.is_control and not header.has_delete_horizon
    assert (header.codec, header.timestamp_type, header.partition_leader_epoch) == (0, 0, -1)
    assert header.size_in_bytes == len(batch_of(3))


def test_a_sequence_goes_on_at_0_after_2_to_31_minus_1() -> None:
    header = parse_header(batch_of(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_without_a_producer_there_is_no_last_sequence() -> None:
    assert parse_header(batch_of(2)).last_sequence == -1


def test_a_marker_is_transactional_and_control() -> None:
    header = check_batch(build_marker(COMMIT, 3, producer_id=1, producer_epoch=0, now_ms=5))
    assert header.is_transactional and header.is_control and header.base_sequence == -1


def test_stamping_changes_offset_and_epoch_and_keeps_the_crc_valid() -> None:
    batch = batch_of(2)
    stamp(memoryview(batch), 123, 7)
    header = check_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (123, 7)


def test_log_append_time_is_the_time_of_all_records() -> None:
    batch = batch_of(2)
    header = set_log_append_time(memoryview(batch), 5_000)
    assert (header.timestamp_type, header.max_timestamp) == (1, 5_000)
    assert check_batch(batch) == header
    assert [record.timestamp for record in read_records(batch)] == [5_000, 5_000]


@pytest.mark.parametrize("position", range(16, len(batch_of(1))))
def test_any_flipped_bit_from_the_magic_on_is_noticed(position: int) -> None:
    batch = batch_of(1)
    batch[position] ^= 0x04
    with pytest.raises(CorruptBatch):
        check_batch(batch)


def test_an_old_magic_is_an_invalid_record_and_not_corruption() -> None:
    batch = batch_of(1)
    batch[16] = 1
    with pytest.raises(CorruptBatch) as refusal:
        check_batch(batch)
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_a_wrong_crc_is_a_corrupt_message() -> None:
    batch = batch_of(1)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch) as refusal:
        check_batch(batch)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_less_than_a_header_is_no_batch(size: int) -> None:
    with pytest.raises(CorruptBatch):
        check_batch(batch_of(1)[:size])


def test_a_batch_must_fill_the_view() -> None:
    with pytest.raises(CorruptBatch):
        check_batch(batch_of(1) + b"\0")
    with pytest.raises(CorruptBatch):
        check_batch(batch_of(1)[:-1])


def test_batches_are_split_without_a_copy() -> None:
    stream = batch_of(1) + batch_of(4) + batch_of(2)
    parts = list(split_batches(stream))
    assert [parse_header(part).record_count for part in parts] == [1, 4, 2]
    assert all(part.obj is stream for part in parts)


@pytest.mark.parametrize("cut", [1, 30, HEADER_BYTES, len(batch_of(4)) - 1])
def test_a_batch_that_is_cut_off_at_the_end_is_left_out(cut: int) -> None:
    stream = batch_of(1) + batch_of(4)[:cut]
    assert [parse_header(part).record_count for part in split_batches(stream)] == [1]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_that_no_batch_can_have_stops_the_splitting(length: int) -> None:
    stream = batch_of(1) + batch_of(1)
    struct.pack_into(">i", stream, len(batch_of(1)) + 8, length)
    parts = split_batches(stream)
    next(parts)
    with pytest.raises(CorruptBatch):
        next(parts)
