"""The broker's reads below the local log. Blocks: helper threads only.

    offset -> item of the cached manifest -> tail, once per object -> position -> chunks -> whole batches

An object that is gone, or an offset that no item covers, makes the manifest be read again, once.
What was read counts against `remote.log.manager.fetch.max.bytes.per.second`: `wait_ms` is asked before a read begins.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.object_store import (
    ETagMismatch,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
    RangeNotSatisfiable,
)
from appliance.records.batch import parse_header, split_batches
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records
from appliance.tiering.batch_range import wanted_batches
from appliance.tiering.chunk_cache import ChunkCache
from appliance.tiering.chunk_reader import ChunkReader
from appliance.tiering.layout import AbortedTransaction, CorruptObject
from appliance.tiering.manifest import CorruptManifest, Manifest, SegmentItem
from appliance.tiering.read_rate import ReadRate
from appliance.tiering.tier_cache import TierCache, TierObject

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

ANSWER_MAX_BYTES = 1 << 20
"""More is not read at once, whatever a reader would take: the loop and the interpreter are held up by each copy."""
SEARCH_BYTES = 128 << 10
"""How much is unpacked at once when looking for a time."""


class RemoteRead(NamedTuple):
    """What one read brought."""

    records: bytes | memoryview
    """Whole batches; the first may begin below the offset that was asked for."""
    next_offset: int
    """Where to go on."""
    aborted: list[AbortedTransaction]
    """The aborted transactions that overlap the batches, by first offset."""


class RemoteOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int


class RemoteLogReader:
    """Reads of all partitions of a broker. Any thread may call any method but `close`."""

    def __init__(self, store: ObjectStore, clock: Clock, config: BrokerConfig, cache_directory: Path) -> None:
        """`cache_directory` is the reader's own: it is emptied. Raises: OSError."""
        self.cache = ChunkCache(cache_directory, config.get("tiering.chunk.cache.bytes"))
        self._chunks = ChunkReader(store, self.cache, config.get("tiering.chunk.bytes"))
        self._tier = TierCache(store, clock, config.get("tiering.manifest.cache.max.age.ms"))
        self._clock = clock
        self._rate = ReadRate(
            config.get("remote.log.manager.fetch.max.bytes.per.second"),
            config.get("remote.log.manager.fetch.quota.window.num"),
            config.get("remote.log.manager.fetch.quota.window.size.seconds") * 1_000,
        )
        self._rate_lock = threading.Lock()

    def close(self) -> None:
        """Stop reading ahead."""
        self._chunks.close()

    def limit_rate(self, max_bytes_per_second: int) -> None:
        """`remote.log.manager.fetch.max.bytes.per.second`, which may change at any time."""
        self._rate.max_bytes_per_second = max_bytes_per_second

    def wait_ms(self) -> int:
        """How long no `fetch` should begin; counts as one that had to wait. Does not block."""
        now_ms = self._clock.monotonic_ms()
        with self._rate_lock:
            wait_ms = self._rate.wait_ms(now_ms)
            if wait_ms:
                self._rate.waits.record(wait_ms, now_ms)
        return wait_ms

    def waits_ms(self) -> tuple[float, int]:
        """How long reads of the last minute had to wait, on average and at most."""
        with self._rate_lock:
            return self._rate.waits.average_and_longest_ms(self._clock.monotonic_ms())

    def read(self, topic_id: uuid.UUID, partition: int, offset: int, max_bytes: int, max_offset: int) -> bytes:
        """The batches of `fetch`, without what belongs to them."""
        return bytes(self.fetch(topic_id, partition, offset, max_bytes, max_offset).records)

    def fetch(self, topic_id: uuid.UUID, partition: int, offset: int, max_bytes: int, max_offset: int) -> RemoteRead:
        """Whole batches from the one that holds `offset` on, below `max_offset`, at least one if there is any.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE below the tier's start; KAFKA_STORAGE_ERROR when no object covers the
                offset, or the store does not answer.
        """
        if offset >= max_offset:
            return RemoteRead(b"", offset, [])

        def action(manifest: Manifest) -> RemoteRead | None:
            if offset < manifest.start_offset:
                return None
            return self._fetch(manifest, offset, min(max_bytes, ANSWER_MAX_BYTES), max_offset)

        found = self._twice(topic_id, partition, action)
        if found is not None:
            with self._rate_lock:
                self._rate.read(len(found.records), self._clock.monotonic_ms())
            return found
        manifest = self.manifest(topic_id, partition)
        if manifest is not None and offset < manifest.start_offset:
            message = f"offset {offset} lies below the log start {manifest.start_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        _log.error("%s-%d: offset %d is neither on the disk nor in the tier", topic_id, partition, offset)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no object of the tier covers offset {offset}")

    def offset_for_timestamp(self, topic_id: uuid.UUID, partition: int, timestamp: int) -> RemoteOffset | None:
        """The first record in the tier whose timestamp is at least `timestamp`; None when there is none.

        Raises: KafkaError(KAFKA_STORAGE_ERROR): the store does not answer, or what it has is damaged.
        """
        return self._twice(topic_id, partition, lambda manifest: self._search(manifest, timestamp))

    def manifest(self, topic_id: uuid.UUID, partition: int) -> Manifest | None:
        """The cached manifest, at most `tiering.manifest.cache.max.age.ms` old; None when nothing was ever tiered.

        Raises: KafkaError(KAFKA_STORAGE_ERROR).
        """
        try:
            return self._tier.manifest(topic_id, partition)
        except (ObjectStoreError, CorruptManifest) as error:
            raise _storage_error(error) from error

    def _twice(
        self, topic_id: uuid.UUID, partition: int, action: Callable[[Manifest], _Result | None]
    ) -> _Result | None:
        """What `action` finds with the cached manifest, else with the newest one."""
        for again in (False, True):
            try:
                manifest = self._tier.manifest(topic_id, partition, again=again)
                found = action(manifest) if manifest is not None else None
                if found is not None:
                    return found
            except _Gone as error:
                self._tier.forget_object(error.name)
                self.cache.forget(error.name)
                if again:
                    raise _storage_error(error) from error
            except (ObjectStoreError, CorruptManifest, CorruptObject, CorruptBatch) as error:
                raise _storage_error(error) from error
        return None

    def _fetch(self, manifest: Manifest, offset: int, max_bytes: int, max_offset: int) -> RemoteRead | None:
        position, end = offset, min(max_offset, manifest.end_offset)
        found = None
        for item in self._tier.leaves(manifest, offset):
            if position >= end:
                break
            found = RemoteRead(b"", item.end, [])
            if isinstance(item, SegmentItem):
                source = self._object(manifest, item)
                found = self._read_segment(source, max(position, item.start), min(end, item.end), max_bytes)
                if found.records:
                    return found
                found = RemoteRead(b"", item.end, [])
            position = item.end
        return found

    def _read_segment(self, source: TierObject, start: int, end: int, max_bytes: int) -> RemoteRead:
        """Wanted batches of one object; no records when compaction left none in [start, end)."""
        position = source.tail.position_of(start)
        found: list[bytes | memoryview] = []
        held: bytes | memoryview = b""
        found_bytes, next_offset = 0, start
        while piece := self._read(source, position):
            if found:
                # No more is copied than may be wanted.
                piece = piece[: max_bytes - found_bytes]
            position += len(piece)
            held = b"".join((held, piece)) if held else piece
            wanted = wanted_batches(held, next_offset, end, max_bytes - found_bytes, min_one=not found)
            if wanted.stop > wanted.begin:
                found.append(held[wanted.begin : wanted.stop])
                found_bytes, next_offset = found_bytes + wanted.stop - wanted.begin, wanted.next_offset
            held = held[wanted.stop :]
            if wanted.is_complete or found_bytes >= max_bytes:
                break
        records = found[0] if len(found) == 1 else b"".join(found)
        return RemoteRead(records, next_offset, source.tail.aborted_between(start, next_offset))

    def _search(self, manifest: Manifest, timestamp: int) -> RemoteOffset | None:
        for item in self._tier.leaves_younger_than(manifest, timestamp):
            source = self._object(manifest, item)
            offset = max(source.tail.offset_before(timestamp), item.start)
            while offset < item.end:
                read = self._read_segment(source, offset, item.end, SEARCH_BYTES)
                for batch in split_batches(read.records):
                    if parse_header(batch).max_timestamp < timestamp:
                        continue
                    for record in read_records(batch):
                        if record.timestamp >= timestamp and record.offset >= item.start:
                            return RemoteOffset(record.offset, record.timestamp)
                if not read.records:
                    break
                offset = read.next_offset
        return None

    def _object(self, manifest: Manifest, item: SegmentItem) -> TierObject:
        try:
            return self._tier.object(manifest, item)
        except (ObjectNotFound, RangeNotSatisfiable) as error:
            raise _Gone(item.name, error) from error

    def _read(self, source: TierObject, position: int) -> memoryview:
        try:
            return self._chunks.read(source, position)
        except (ObjectNotFound, ETagMismatch, RangeNotSatisfiable) as error:
            raise _Gone(source.name, error) from error


class _Gone(Exception):
    """An object that the manifest listed is not there any more, or not as it was."""

    def __init__(self, name: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.name = name


def _storage_error(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"reading from the object store: {error}")
