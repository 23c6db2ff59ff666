from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from appliance.base.config import BrokerConfig, TopicConfig, topic_config
from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.produce_checks import RecordsRefused, check_produced
from appliance.records.builder import build_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def config(**overrides: str) -> TopicConfig:
    return topic_config({name.replace("_", "."): value for name, value in overrides.items()}, BrokerConfig())


def batch(*, key: bytes | None = b"k", timestamp: int = NOW_MS, count: int = 2, **options: int) -> bytearray:
    return bytearray(build_batch([(timestamp, key, b"value", [])] * count, **options))  # type: ignore[arg-type]


def resealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def error_of(data: bytes | bytearray | None, topic: TopicConfig | None = None, version: int = 9) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_produced(None if data is None else memoryview(data), topic or config(), NOW_MS, version)
    return caught.value.code


def test_a_good_batch_passes() -> None:
    header = check_produced(memoryview(batch()), config(), NOW_MS, 9)
    assert (header.record_count, header.last_offset_delta) == (2, 1)


def test_no_records_are_invalid() -> None:
    assert error_of(None) == ErrorCode.INVALID_RECORD
    assert error_of(b"") == ErrorCode.INVALID_RECORD


def test_old_magic_is_invalid() -> None:
    for magic in (0, 1):
        old = batch()
        old[16] = magic
        assert error_of(old) == ErrorCode.INVALID_RECORD


def test_a_damaged_or_cut_off_batch_is_corrupt() -> None:
    damaged = batch()
    damaged[-1] ^= 1
    assert error_of(damaged) == ErrorCode.CORRUPT_MESSAGE
    assert error_of(batch()[:-1]) == ErrorCode.CORRUPT_MESSAGE
    assert error_of(batch()[:40]) == ErrorCode.CORRUPT_MESSAGE
    negative = batch()
    struct.pack_into(">i", negative, 8, -5)
    assert error_of(negative) == ErrorCode.CORRUPT_MESSAGE


def test_only_one_batch_for_each_partition() -> None:
    assert error_of(batch() + batch()) == ErrorCode.INVALID_RECORD


def test_a_batch_above_the_limit_is_too_large_and_one_at_it_is_not() -> None:
    size = len(batch())
    assert error_of(batch(), config(max_message_bytes=str(size - 1))) == ErrorCode.MESSAGE_TOO_LARGE
    check_produced(memoryview(batch()), config(max_message_bytes=str(size)), NOW_MS, 9)


def test_the_record_count_must_fit_the_offsets() -> None:
    for count, delta in ((3, 1), (2, 2), (0, -1), (-1, -2)):
        data = batch()
        struct.pack_into(">i", data, 57, count)
        struct.pack_into(">i", data, 23, delta)
        assert error_of(resealed(data)) == ErrorCode.INVALID_RECORD


def test_clients_write_no_control_batches_and_no_foreign_offsets() -> None:
    assert error_of(batch(control=True, producer_id=1, producer_epoch=0, base_sequence=0)) == ErrorCode.INVALID_RECORD
    assert error_of(batch(base_offset=5)) == ErrorCode.INVALID_RECORD


def test_a_producer_id_comes_with_epoch_and_sequence() -> None:
    assert error_of(batch(producer_id=7, producer_epoch=0, base_sequence=-1)) == ErrorCode.INVALID_RECORD
    assert error_of(batch(producer_id=7, producer_epoch=-1, base_sequence=0)) == ErrorCode.INVALID_RECORD


def test_zstd_needs_a_newer_request() -> None:
    assert error_of(batch(codec=4), version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    check_produced(memoryview(batch(codec=4)), config(), NOW_MS, 7)


def test_unknown_codecs_are_invalid() -> None:
    data = batch()
    struct.pack_into(">h", data, 21, 5)
    assert error_of(resealed(data)) == ErrorCode.INVALID_RECORD


def test_timestamps_have_bounds() -> None:
    late = config(message_timestamp_after_max_ms=str(HOUR_MS))
    assert error_of(batch(timestamp=NOW_MS + HOUR_MS + 1), late) == ErrorCode.INVALID_TIMESTAMP
    check_produced(memoryview(batch(timestamp=NOW_MS + HOUR_MS)), late, NOW_MS, 9)
    early = config(message_timestamp_before_max_ms=str(HOUR_MS))
    assert error_of(batch(timestamp=NOW_MS - HOUR_MS - 1), early) == ErrorCode.INVALID_TIMESTAMP


def test_under_log_append_time_the_clients_timestamps_do_not_matter() -> None:
    topic = config(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1")
    check_produced(memoryview(batch(timestamp=5)), topic, NOW_MS, 9)


def test_clients_do_not_claim_append_time() -> None:
    data = batch()
    struct.pack_into(">h", data, 21, 0x08)
    assert error_of(resealed(data)) == ErrorCode.INVALID_TIMESTAMP


def test_compacted_topics_want_keys_and_name_the_records_without() -> None:
    data = build_batch([(NOW_MS, b"k", b"v", []), (NOW_MS, None, b"v", [])])
    with pytest.raises(RecordsRefused) as caught:
        check_produced(memoryview(data), config(cleanup_policy="compact"), NOW_MS, 9)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert caught.value.record_indexes == [1]
