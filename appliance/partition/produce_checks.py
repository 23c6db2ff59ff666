"""What a producer's batch must fulfil before it is appended. Pure."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from appliance.base.config import TopicConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.records.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader, parse_header
from appliance.records.reader import read_records

ZSTD = 4
ZSTD_FIRST_PRODUCE_VERSION = 7
UNKNOWN_CODECS_FROM = 5
LOG_APPEND_TIME = "LogAppendTime"
ANY_AGE_MS = 2**63 - 1
"""`message.timestamp.before.max.ms` when there is no bound."""
_MAGIC_AT = 16


def check_produced(records: Any, config: TopicConfig, now_ms: int, version: int) -> BatchHeader:
    """Check the records field (a view, or None) of one partition of a request; returns the header of its one batch.

    Raises:
        KafkaError: with Kafka's code and a message for the client.
    """
    if records is not None and len(records) >= HEADER_BYTES:
        header = parse_header(records)
        if _is_ordinary(header, len(records), config, now_ms, version) and crc32c(records[CRC_START:]) == header[4]:
            return header
    return _check_in_words(records, config, now_ms, version)


def _is_ordinary(header: BatchHeader, size: int, config: TopicConfig, now_ms: int, version: int) -> bool:
    """All questions of `_check_in_words` at once, but for the crc: whether nothing needs a closer look."""
    base, length, _, magic, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = header
    return (
        magic == MAGIC
        and length + LENGTH_END == size
        and size <= config.max_message_bytes
        # No codec above zstd, no bit above the codec: transactional, control, append time and unknown ones.
        and 0 <= attributes <= ZSTD
        and (attributes != ZSTD or version >= ZSTD_FIRST_PRODUCE_VERSION)
        and delta == count - 1
        and count > 0
        and base == 0
        and max_timestamp - now_ms <= config.message_timestamp_after_max_ms
        and (producer_id < 0 or (epoch >= 0 and sequence >= 0))
        and config.message_timestamp_before_max_ms >= ANY_AGE_MS
        and not config.is_compacted
    )


def _check_in_words(records: Any, config: TopicConfig, now_ms: int, version: int) -> BatchHeader:
    if records is None or len(records) == 0:
        raise _invalid("a produce request needs one record batch for each partition")
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != MAGIC:
        # Versions 0 and 1 had shorter headers.
        raise _invalid(
            f"produce requests of version {version} carry batches of magic {MAGIC}, not {records[_MAGIC_AT]}"
        )
    header = parse_header(records)
    size = header.length + LENGTH_END
    if size < HEADER_BYTES or size > len(records):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch says {size} bytes where {len(records)} are")
    if size < len(records):
        raise _invalid("a produce request has exactly one record batch for each partition")
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    if crc32c(records[CRC_START:]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the crc of the batch differs")
    _check_header(header)
    if header.codec == ZSTD and version < ZSTD_FIRST_PRODUCE_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or above")
    if header.timestamp_type:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets the timestamp type to LogAppendTime")
    if config.message_timestamp_type != LOG_APPEND_TIME:
        check_timestamps(header, config, now_ms)
    if config.is_compacted:
        _check_keys(records)
    return header


def _check_header(header: BatchHeader) -> None:
    if header.codec >= UNKNOWN_CODECS_FROM:
        raise _invalid(f"no compression codec has the number {header.codec}")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(f"{header.record_count} records, but the last offset delta is {header.last_offset_delta}")
    if header.is_control:
        raise _invalid("clients do not write control batches")
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch is 0, not {header.base_offset}")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}"
            )
    elif header.is_transactional:
        raise _invalid("a transactional batch without a producer id")


def check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """Compare the newest and the first timestamp of a batch with `message.timestamp.{before,after}.max.ms`.

    Raises:
        KafkaError: INVALID_TIMESTAMP.
    """
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
            f"({config.message_timestamp_after_max_ms}) after the broker's time",
        )
    if now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms "
            f"({config.message_timestamp_before_max_ms}) before the broker's time",
        )


class RecordsRefused(KafkaError):
    """Some records of a batch are to blame; `record_indexes` names them (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_indexes: list[int]) -> None:
        super().__init__(code, message)
        self.record_indexes = record_indexes


def _check_keys(records: memoryview) -> None:
    """A compacted topic keeps the last record of each key, so each record needs one."""
    keyless = [index for index, record in enumerate(read_records(records)) if record.key is None]
    if keyless:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key", keyless)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
