"""One ingest request while it runs: its records' results, in the order of its records."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from appliance.base.errors import KafkaError
from appliance.client.cluster import TopicMetadata
from appliance.http_ingest.bodies import BadRecord, IngestRecord
from appliance.http_ingest.limits import HttpLimits
from appliance.http_ingest.producer import Producer

CLIENT_MISTAKES = frozenset({"INVALID_JSON", "INVALID_RECORD", "MESSAGE_TOO_LARGE"})
"""Errors of a record for which no broker was asked."""


class Delivered(NamedTuple):
    """`offset` is -1 with acks=0; `timestamp` in milliseconds."""

    partition: int
    offset: int
    timestamp: int


class Failed(NamedTuple):
    error: str
    message: str
    retryable: bool


Result = Delivered | Failed


class IngestCall:
    """Collects the results of one request. `acks` is 0, 1 or -1 (all)."""

    def __init__(self, producer: Producer, topic: TopicMetadata, acks: int, limits: HttpLimits) -> None:
        self._producer = producer
        self._topic = topic
        self._acks = acks
        self._limits = limits
        self._results: list[Result | None] = []
        self._missing = 0
        self._complete = asyncio.Event()

    @property
    def count(self) -> int:
        """Records so far."""
        return len(self._results)

    async def add(self, record: IngestRecord | BadRecord) -> None:
        """Take the next record; waits while the gateway's buffer is full. A record that fails is a result, no error."""
        index = len(self._results)
        if isinstance(record, BadRecord):
            self._results.append(Failed(record.error, record.message, retryable=False))
            return
        if record.size_in_bytes > self._limits.max_record_bytes:
            what = f"the record takes {record.size_in_bytes} bytes, the limit is {self._limits.max_record_bytes}"
            self._results.append(Failed("MESSAGE_TOO_LARGE", what, retryable=False))
            return
        if record.partition is not None and record.partition >= len(self._topic.partitions):
            what = f"{self._topic.name} has {len(self._topic.partitions)} partitions, there is no {record.partition}"
            self._results.append(Failed("INVALID_RECORD", what, retryable=False))
            return
        self._results.append(None)
        self._missing += 1
        slot = _Slot(self, index)
        try:
            await self._producer.wait_for_room()
            self._producer.send(self._topic, record, self._acks, slot)
        except KafkaError as error:
            slot.failed(error)

    async def finish(self) -> list[Result]:
        """The results of all records, once each has one; bounded by the producer's delivery time-out."""
        if self._missing:
            self._complete.clear()
            await self._complete.wait()
        return [result for result in self._results if result is not None]

    def settle(self, index: int, result: Result) -> None:
        self._results[index] = result
        self._missing -= 1
        if not self._missing:
            self._complete.set()


class _Slot:
    """The place of one record's result."""

    __slots__ = ("_call", "_index")

    def __init__(self, call: IngestCall, index: int) -> None:
        self._call = call
        self._index = index

    def delivered(self, partition: int, offset: int, timestamp: int) -> None:
        self._call.settle(self._index, Delivered(partition, offset, timestamp))

    def failed(self, error: KafkaError) -> None:
        what = error.message or error.code.name
        self._call.settle(self._index, Failed(error.code.name, what, error.code.retriable))
