from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from appliance.base.config import BrokerConfig, TopicConfig, topic_config
from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.produce_checks import (
    RECORD_ERRORS_MAX,
    RecordsRefused,
    check_produced,
    check_records,
    must_be_opened,
)
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


def test_a_magic_that_never_was_is_corrupt() -> None:
    for magic in (3, 255):
        unknown = batch()
        unknown[16] = magic
        assert error_of(unknown) == ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_or_cut_off_batch_is_corrupt() -> None:
    damaged = batch()
    damaged[-1] ^= 1
    assert error_of(damaged) == ErrorCode.CORRUPT_MESSAGE
    assert error_of(batch()[:-1]) == ErrorCode.INVALID_RECORD
    assert error_of(batch()[:40]) == ErrorCode.INVALID_RECORD
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


def refused(data: bytes | bytearray, topic: TopicConfig) -> tuple[ErrorCode, list[int]]:
    """As a handler asks: the header first, the records only when a rule is about them."""
    header = check_produced(memoryview(data), topic, NOW_MS, 9)
    if not must_be_opened(header, topic, NOW_MS):
        return ErrorCode.NONE, []
    try:
        check_records(bytes(data), topic, NOW_MS)
    except RecordsRefused as error:
        return error.code, [index for index, _ in error.records]
    except KafkaError as error:
        return error.code, []
    return ErrorCode.NONE, []


def at(*timestamps: int, key: bytes | None = b"k", **options: int) -> bytes:
    return build_batch([(NOW_MS + timestamp, key, b"value", ()) for timestamp in timestamps], **options)  # type: ignore[arg-type]


LATE = config(message_timestamp_after_max_ms=str(HOUR_MS))
EARLY = config(message_timestamp_before_max_ms=str(HOUR_MS))


@pytest.mark.parametrize("codec", range(5))
def test_timestamps_have_bounds_and_the_records_beyond_are_named(codec: int) -> None:
    assert refused(at(0, HOUR_MS + 1, 5, HOUR_MS + 7, codec=codec), LATE) == (ErrorCode.INVALID_TIMESTAMP, [1, 3])
    assert refused(at(HOUR_MS, codec=codec), LATE) == (ErrorCode.NONE, [])
    assert refused(at(0, -HOUR_MS - 1, codec=codec), EARLY) == (ErrorCode.INVALID_TIMESTAMP, [1])
    assert refused(at(-HOUR_MS, codec=codec), EARLY) == (ErrorCode.NONE, [])
    assert refused(at(-1 - NOW_MS), EARLY) == (ErrorCode.NONE, []), "no timestamp is none"


def test_records_are_only_opened_where_a_rule_asks_about_them() -> None:
    def opened(data: bytes | bytearray, topic: TopicConfig) -> bool:
        return must_be_opened(check_produced(memoryview(data), topic, NOW_MS, 9), topic, NOW_MS)

    assert not opened(batch(), config())
    assert not opened(batch(), LATE) and opened(at(HOUR_MS + 1), LATE)
    assert opened(batch(), EARLY) and opened(batch(), config(cleanup_policy="compact"))
    append_time = config(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1")
    assert not opened(batch(timestamp=5), append_time)


def test_clients_do_not_claim_append_time() -> None:
    data = batch()
    struct.pack_into(">h", data, 21, 0x08)
    assert refused(resealed(data), config()) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


def test_compacted_topics_want_keys_and_name_the_records_without() -> None:
    compacted = config(cleanup_policy="compact")
    data = build_batch([(NOW_MS, key, b"v", []) for key in (b"k", None, b"", None)])
    assert refused(data, compacted) == (ErrorCode.INVALID_RECORD, [1, 3])
    mixed = build_batch([(NOW_MS, None, b"v", []), (NOW_MS + 2 * HOUR_MS, b"k", b"v", [])])
    assert refused(mixed, config(cleanup_policy="compact", message_timestamp_after_max_ms=str(HOUR_MS))) == (
        ErrorCode.INVALID_TIMESTAMP,
        [0, 1],
    )


def test_an_answer_names_no_more_bad_records_than_the_limit() -> None:
    data = build_batch([(NOW_MS, None, b"v", [])] * (RECORD_ERRORS_MAX + 5))
    assert refused(data, config(cleanup_policy="compact"))[1] == list(range(RECORD_ERRORS_MAX))


def test_opened_records_must_be_those_that_the_header_promises() -> None:
    for damage in (b"\xff" * 20, b""):
        data = bytearray(bytes(batch())[:61] + damage)
        struct.pack_into(">i", data, 8, len(data) - 12)
        assert refused(resealed(data), EARLY) == (ErrorCode.INVALID_RECORD, [])


def test_a_batch_must_fit_into_a_segment() -> None:
    small = config(max_message_bytes=str(1 << 22), segment_bytes=str(1 << 20))
    assert error_of(batch(count=(1 << 20) // 8), small) == ErrorCode.RECORD_LIST_TOO_LARGE
    check_produced(memoryview(batch()), small, NOW_MS, 9)
