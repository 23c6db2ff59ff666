"""The records of one partition from an offset on: straight from the manifest's objects as far as the tier goes, then by
Fetch from the broker, changing over at the exact offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.base.object_store import ETagMismatch, ObjectNotFound
from appliance.client.client import Client
from appliance.records.batch import check_batch, split_batches
from appliance.records.reader import Record, read_records
from appliance.tiering.reader import TierReader

FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 200
EARLIEST = -2


class PartitionFeed:
    """`position` is the next offset to be read. `tiered_records` counts what came from the object store."""

    def __init__(self, client: Client, tier: TierReader | None, tp: TopicPartition, position: int) -> None:
        self._client = client
        self._tier = tier
        self._tp = tp
        self.position = position
        self.tiered_records = 0
        self._cold: Iterator[list[Record]] | None = None
        self._hot_only = tier is None

    def next_records(self, max_wait_ms: int = FETCH_WAIT_MS) -> list[Record]:
        """The next records, in order; empty when there are none now.

        Raises:
            KafkaError, ConnectionLost, StoreUnavailable: reading failed; `position` has not moved.
            CorruptBatch: a batch is damaged.
        """
        if not self._hot_only:
            records = self._from_tier()
            if records is not None:
                return records
        return self._from_broker(max_wait_ms)

    def _from_tier(self) -> list[Record] | None:
        """The next records of the tier; None where it ends (then the broker goes on from the same offset)."""
        assert self._tier is not None
        if self._cold is None:
            self._cold = self._cold_records()
        try:
            records = next(self._cold, None)
        except (ObjectNotFound, ETagMismatch):
            # Merged, compacted or retired meanwhile: the manifest is read anew the next time.
            self._cold = None
            return []
        except BaseException:
            self._cold = None
            raise
        if records is None:
            # Behind the tiered end only new records come: the broker serves them, also if they are tiered later.
            self._cold, self._hot_only = None, True
            return None
        self.tiered_records += len(records)
        return records

    def _cold_records(self) -> Iterator[list[Record]]:
        assert self._tier is not None
        topic_id = self._client.metadata([self._tp.topic]).topic_id(self._tp.topic)
        manifest = self._tier.manifest(topic_id, self._tp.partition)
        if manifest is None or not manifest.start_offset <= self.position < manifest.end_offset:
            return
        for segment in self._tier.segments(manifest, self.position, manifest.end_offset):
            for batches in self._tier.read(segment):
                yield self._records_of(batches.records)
        self.position = max(self.position, manifest.end_offset)

    def _from_broker(self, max_wait_ms: int) -> list[Record]:
        fetched = self._client.fetch(self._tp, self.position, max_bytes=FETCH_BYTES, max_wait_ms=max_wait_ms)
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start = self._client.list_offsets({self._tp: EARLIEST})[self._tp].offset
            if log_start > self.position:
                # Retention was quicker than this task; what is left begins here.
                self.position = log_start
                return []
        if fetched.error != ErrorCode.NONE:
            raise KafkaError(fetched.error, f"Fetch of {self._tp} at {self.position}")
        return self._records_of(fetched.records)

    def _records_of(self, chunk: bytes | memoryview) -> list[Record]:
        records: list[Record] = []
        for batch in split_batches(memoryview(chunk)):
            header = check_batch(batch)
            if header.next_offset <= self.position:
                continue
            if not header.is_control:
                records += [record for record in read_records(batch) if record.offset >= self.position]
            self.position = header.next_offset
        return records
