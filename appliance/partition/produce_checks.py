"""What a producer's batch must fulfil before it is appended, as Apache Kafka 4.3 sees it. Pure.

`check_produced` looks at the header, which is enough for nearly all batches. Where a rule is about single records
(`must_be_opened`), `check_records` unpacks them and names those to blame (KIP-467); for a large batch that is a helper
thread's work.
"""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from appliance.base.config import TopicConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.records.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader, parse_header
from appliance.records.errors import CorruptBatch
from appliance.records.reader import Record, read_records

ZSTD = 4
ZSTD_FIRST_PRODUCE_VERSION = 7
UNKNOWN_CODECS_FROM = 5
LOG_APPEND_TIME = "LogAppendTime"
ANY_AGE_MS = 2**63 - 1
"""`message.timestamp.before.max.ms` when there is no bound."""
OPENED_AT_ONCE_MAX_BYTES = 16_384
"""Larger batches, and packed ones, are opened in a helper thread."""
RECORD_ERRORS_MAX = 1_000
"""Records that an answer names; of a batch with more bad ones, the first."""
_NO_TIMESTAMP = -1
_MAGIC_AT = 16


def check_produced(records: Any, config: TopicConfig, now_ms: int, version: int) -> BatchHeader:
    """Check the records field (a view, or None) of one partition of a request; returns the header of its one batch.

    Raises:
        KafkaError: with Kafka's code and a message for the client.
    """
    if records is not None and len(records) >= HEADER_BYTES:
        header = parse_header(records)
        if is_ordinary(header, len(records), config, now_ms, version) and crc32c(records[CRC_START:]) == header[4]:
            return header
    return _check_in_words(records, config, version)


def is_ordinary(header: BatchHeader, size: int, config: TopicConfig, now_ms: int, version: int) -> bool:
    """All questions of `_check_in_words` at once, but for the crc: whether nothing needs a closer look."""
    base, length, _, magic, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = header
    return (
        magic == MAGIC
        and length + LENGTH_END == size
        and size <= config.max_message_bytes
        and size <= config.segment_bytes
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


def _check_in_words(records: Any, config: TopicConfig, version: int) -> BatchHeader:
    size = _check_frame(records, version)
    check_size(size, config)
    header = parse_header(records)
    if crc32c(records[CRC_START:]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the crc of the batch differs")
    _check_header(header)
    if header.codec == ZSTD and version < ZSTD_FIRST_PRODUCE_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or above")
    return header


def _check_frame(records: Any, version: int) -> int:
    """The size of the one batch that the records field holds; magic 0 and 1 had shorter headers."""
    available = 0 if records is None else len(records)
    if available > _MAGIC_AT and records[_MAGIC_AT] not in (0, 1, MAGIC):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {records[_MAGIC_AT]}")
    if available > _MAGIC_AT and records[_MAGIC_AT] != MAGIC:
        raise _invalid(
            f"produce requests of version {version} carry batches of magic {MAGIC}, not {records[_MAGIC_AT]}"
        )
    size = int.from_bytes(records[8:LENGTH_END], "big", signed=True) + LENGTH_END if available >= LENGTH_END else 0
    if available > _MAGIC_AT and size < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch says that it has {size} bytes")
    if available <= _MAGIC_AT or size != available:
        raise _invalid(
            f"a produce request has exactly one whole record batch for each partition; this one has {size} bytes "
            f"where {available} are"
        )
    return size


def check_size(size: int, config: TopicConfig) -> None:
    """Raises:
    KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE.
    """
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes; segment.bytes is {config.segment_bytes}"
        )


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


def must_be_opened(header: BatchHeader, config: TopicConfig, now_ms: int) -> bool:
    """Whether a rule asks about single records."""
    return (
        config.is_compacted
        or header.timestamp_type != 0
        or (
            config.message_timestamp_type != LOG_APPEND_TIME
            and (
                config.message_timestamp_before_max_ms < ANY_AGE_MS
                or header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
            )
        )
    )


def check_records(batch: bytes | memoryview, config: TopicConfig, now_ms: int) -> None:
    """Check the records of a batch whose header is in order, each.

    Raises:
        RecordsRefused: some of them break a rule; those without a key in a compacted topic, or of a wrong time.
        KafkaError: INVALID_RECORD, they are not the records that the header promises.
    """
    header = parse_header(batch)
    bad: list[tuple[int, str]] = []
    wrong_time = False
    try:
        for index, record in enumerate(read_records(batch)):
            if record.offset != index + header.base_offset:
                raise _invalid(f"record {index} of the batch has offset {record.offset}")
            if record.key is None and config.is_compacted:
                bad.append((index, "a compacted topic takes no record without a key"))
            elif (message := _timestamp_error(header, record, config, now_ms)) is not None:
                bad.append((index, message))
                wrong_time = True
    except CorruptBatch as error:
        raise _invalid(error.message or "the records cannot be read") from error
    if bad:
        code = ErrorCode.INVALID_TIMESTAMP if wrong_time else ErrorCode.INVALID_RECORD
        raise RecordsRefused(code, f"{len(bad)} records were refused: {bad[0][1]}", bad[:RECORD_ERRORS_MAX])


def _timestamp_error(header: BatchHeader, record: Record, config: TopicConfig, now_ms: int) -> str | None:
    if header.timestamp_type:
        return "only the broker sets the timestamp type to LogAppendTime"
    timestamp = record.timestamp
    if config.message_timestamp_type == LOG_APPEND_TIME or timestamp == _NO_TIMESTAMP:
        return None
    if timestamp - now_ms > config.message_timestamp_after_max_ms:
        return (
            f"timestamp {timestamp} is more than message.timestamp.after.max.ms "
            f"({config.message_timestamp_after_max_ms}) after the broker's time"
        )
    if now_ms - timestamp > config.message_timestamp_before_max_ms:
        return (
            f"timestamp {timestamp} is more than message.timestamp.before.max.ms "
            f"({config.message_timestamp_before_max_ms}) before the broker's time"
        )
    return None


class RecordsRefused(KafkaError):
    """Some records of a batch are to blame; `records` names them by index and says why (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
