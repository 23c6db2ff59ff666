"""Logs for tests: opened with what a test needs, filled with batches that can be told apart."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import Any

from appliance.base.config import BrokerConfig, TopicConfig, topic_config
from appliance.base.disk import Disk, SystemDisk
from appliance.base.ids import TopicPartition
from appliance.base.randomness import SeededRandomness
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch, split_batches
from appliance.records.builder import build_batch
from appliance.records.reader import Record, read_records

TOPIC_ID = uuid.UUID("00000000-0000-0000-0000-00000000abcd")
TOPIC_PARTITION = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000

_DEFAULTS = topic_config({}, BrokerConfig({}))


class TestClock:
    """Time that stands still until a test moves it."""

    __test__ = False

    def __init__(self, now_ms: int = START_MS) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


def config_of(**changes: Any) -> TopicConfig:
    """A topic's config: not tiered, small segments, an index entry every 200 bytes, and the given changes."""
    plain = {"remote_storage_enable": False, "segment_bytes": 2_000, "index_interval_bytes": 200}
    return dataclasses.replace(_DEFAULTS, **(plain | changes))


def open_log(
    folder: Path,
    config: TopicConfig | None = None,
    *,
    clock: TestClock | None = None,
    disk: Disk | None = None,
    **options: Any,
) -> PartitionLog:
    return PartitionLog(
        folder / str(TOPIC_PARTITION),
        TOPIC_PARTITION,
        TOPIC_ID,
        config or config_of(),
        clock or TestClock(),
        disk or SystemDisk(),
        randomness=SeededRandomness(1),
        **options,
    )


def batch_of(*values: bytes, timestamp: int = START_MS, **options: Any) -> bytearray:
    """A batch of these values; each record is a millisecond later than the one before."""
    return bytearray(build_batch([(timestamp + n, None, value, ()) for n, value in enumerate(values)], **options))


def stage(log: PartitionLog, batch: bytearray, *, leader_epoch: int = 1, now_ms: int = START_MS) -> int:
    header = check_batch(batch)
    if header.producer_id >= 0 and not header.is_control:
        verdict = log.producer_state.check(header)
        assert verdict is None, verdict
    return log.stage(memoryview(batch), header, leader_epoch, now_ms)


def append(log: PartitionLog, *values: bytes, leader_epoch: int = 1, now_ms: int = START_MS, **options: Any) -> int:
    """One batch, written at once; returns its base offset."""
    options.setdefault("timestamp", now_ms)
    offset = stage(log, batch_of(*values, **options), leader_epoch=leader_epoch, now_ms=now_ms)
    log.write_staged()
    return offset


def fill(log: PartitionLog, count: int, *, size: int = 100, **options: Any) -> list[bytes]:
    """`count` batches of one record each; returns their values."""
    values = [b"%06d" % (log.log_end_offset + n) + bytes(size - 6) for n in range(count)]
    for value in values:
        append(log, value, **options)
    return values


def read_all(log: PartitionLog, start: int | None = None, max_bytes: int = 700) -> list[Record]:
    """Every record from `start` on, as a consumer fetches them: slice by slice, each batch with its crc checked."""
    offset = log.local_log_start_offset if start is None else start
    records: list[Record] = []
    while True:
        piece = log.read(offset, max_bytes, log.log_end_offset)
        if piece is None:
            return records
        for batch in split_batches(piece.read()):
            header = check_batch(batch)
            records += [record for record in read_records(batch) if record.offset >= offset]
            offset = header.next_offset
