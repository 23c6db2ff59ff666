"""The records of one partition on their way: batches, sequences, retries, splits."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.connection import ConnectionLost, error_of
from appliance.http_ingest.bodies import IngestRecord
from appliance.http_ingest.cluster import Cluster
from appliance.http_ingest.limits import HttpLimits
from appliance.records.builder import build_batch
from appliance.wire.api import ApiKey
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

LAST_VERSION_WITH_NAMES = 12
RETRY_BACKOFF_MS = 50
RETRY_BACKOFF_MAX_MS = 1_000
MAX_SEQUENCE = 0x7FFFFFFF
NO_OFFSET = -1


class Delivery(Protocol):
    """Where the result of one record goes."""

    def delivered(self, partition: int, offset: int, timestamp: int) -> None: ...

    def failed(self, error: KafkaError) -> None: ...


class _Entry(NamedTuple):
    record: IngestRecord
    timestamp: int
    size: int
    delivery: Delivery


@dataclass(slots=True)
class _Identity:
    producer_id: int = -1
    producer_epoch: int = -1
    next_sequence: int = 0

    @property
    def is_known(self) -> bool:
        return self.producer_id >= 0


class PartitionQueue:
    """Records of one partition and one `acks`; a task runs while there are any."""

    def __init__(
        self,
        tp: TopicPartition,
        acks: int,
        cluster: Cluster,
        limits: HttpLimits,
        clock: Clock,
        released: Callable[[int], None],
        batch_taken: Callable[[TopicPartition], None],
    ) -> None:
        self._tp = tp
        self._acks = acks
        self._cluster = cluster
        self._limits = limits
        self._clock = clock
        self._released = released
        self._batch_taken = batch_taken
        self._entries: deque[_Entry] = deque()
        self._identity = _Identity()
        self._task: asyncio.Task[None] | None = None

    def add(self, record: IngestRecord, size: int, delivery: Delivery) -> None:
        timestamp = self._clock.now_ms() if record.timestamp is None else record.timestamp
        self._entries.append(_Entry(record, timestamp, size, delivery))
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def idle(self) -> None:
        """Wait until nothing is queued."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            while self._entries:
                await self._deliver(self._take(), self._clock.monotonic_ms() + self._limits.delivery_timeout_ms)
        finally:
            self._task = None

    def _take(self) -> list[_Entry]:
        batch = [self._entries.popleft()]
        size = batch[0].size
        while self._entries and size + self._entries[0].size <= self._limits.max_batch_bytes:
            size += self._entries[0].size
            batch.append(self._entries.popleft())
        self._batch_taken(self._tp)
        return batch

    async def _deliver(self, entries: list[_Entry], deadline_ms: int) -> None:
        """Bring a batch to the log, in pieces if it is too large as a whole; every entry gets its result."""
        while entries:
            try:
                answer = await self._produce(entries, deadline_ms)
            except KafkaError as error:
                self._fail(entries, error)
                return
            code = error_of(answer.error_code)
            if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._succeed(entries, answer)
                return
            if code == ErrorCode.MESSAGE_TOO_LARGE and len(entries) > 1:
                half = len(entries) // 2
                await self._deliver(entries[:half], deadline_ms)
                entries = entries[half:]
                continue
            faulty = {row.batch_index: row.batch_index_error_message for row in answer.record_errors}
            if faulty and len(faulty) < len(entries):
                # The broker names the records that it will not have; the others go again without them.
                for index, message in faulty.items():
                    self._fail([entries[index]], KafkaError(code, message))
                entries = [entry for index, entry in enumerate(entries) if index not in faulty]
                continue
            self._fail(entries, KafkaError(code, answer.error_message))
            return

    async def _produce(self, entries: list[_Entry], deadline_ms: int) -> PartitionProduceResponse:
        """The leader's final answer to a batch.

        Raises:
            KafkaError: no final answer before the deadline; whether the batch was written is not known.
        """
        backoff_ms = RETRY_BACKOFF_MS
        in_doubt = False
        batch: bytes | None = None
        while True:
            try:
                if batch is None:
                    batch = await self._batch_of(entries)
                answer = await self._ask_leader(batch, len(entries))
                code = error_of(answer.error_code)
                if code in _LOST_IDENTITY and not in_doubt:
                    # The broker forgot this producer (its records expired); nothing of ours is in doubt: a new id.
                    self._identity, batch = _Identity(), None
                    error = KafkaError(code, answer.error_message)
                elif not code.retriable:
                    if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                        self._advance(len(entries))
                    elif in_doubt:
                        self._identity = _Identity()
                    return answer
                else:
                    error = KafkaError(code, answer.error_message)
                    in_doubt = in_doubt or code in _IN_DOUBT
                    self._cluster.forget(self._tp.topic)
            except ConnectionLost as lost:
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(lost))
                in_doubt = in_doubt or batch is not None
                self._cluster.forget(self._tp.topic)
            except KafkaError as refused:
                if not refused.code.retriable:
                    raise
                error = refused
            if self._clock.monotonic_ms() + backoff_ms >= deadline_ms:
                if in_doubt:
                    # The next batch must not be taken for this one's missing successor.
                    self._identity = _Identity()
                raise error
            await asyncio.sleep(random.uniform(0.8, 1.2) * backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, RETRY_BACKOFF_MAX_MS)

    async def _batch_of(self, entries: list[_Entry]) -> bytes:
        if self._acks == -1 and not self._identity.is_known:
            self._identity = await self._new_identity()
        identity = self._identity
        return build_batch(
            [(entry.timestamp, entry.record.key, entry.record.value, entry.record.headers) for entry in entries],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=identity.next_sequence if identity.is_known else -1,
        )

    def _advance(self, count: int) -> None:
        if self._identity.is_known:
            # Sequences go from 0 to 2^31 - 1 and around.
            self._identity.next_sequence = (self._identity.next_sequence + count) & MAX_SEQUENCE

    async def _new_identity(self) -> _Identity:
        connection = await self._cluster.any_broker()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        version = connection.version_of(ApiKey.INIT_PRODUCER_ID, at_most=5)
        answer = await connection.call(request, version, self._limits.request_timeout_ms / 1000)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_of(answer.error_code), "no producer id")
        return _Identity(answer.producer_id, answer.producer_epoch)

    async def _ask_leader(self, batch: bytes, count: int) -> PartitionProduceResponse:
        connection = await self._cluster.leader(self._tp)
        data = PartitionProduceData(index=self._tp.partition, records=memoryview(batch))
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=self._limits.request_timeout_ms,
            topic_data=[TopicProduceData(name=self._tp.topic, partition_data=[data])],
        )
        version = connection.version_of(ApiKey.PRODUCE, at_most=LAST_VERSION_WITH_NAMES)
        if self._acks == 0:
            connection.send(request, version)
            return PartitionProduceResponse(index=self._tp.partition, base_offset=NO_OFFSET)
        answer = await connection.call(request, version, self._limits.request_timeout_ms / 1000)
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if topic.name == self._tp.topic and partition.index == self._tp.partition:
                    return partition
        raise ConnectionLost(f"{connection.address} answered for another partition than {self._tp}")

    def _succeed(self, entries: list[_Entry], answer: PartitionProduceResponse) -> None:
        base = answer.base_offset
        for index, entry in enumerate(entries):
            timestamp = answer.log_append_time_ms if answer.log_append_time_ms >= 0 else entry.timestamp
            entry.delivery.delivered(self._tp.partition, base + index if base >= 0 else NO_OFFSET, timestamp)
            self._released(entry.size)

    def _fail(self, entries: list[_Entry], error: KafkaError) -> None:
        for entry in entries:
            entry.delivery.failed(error)
            self._released(entry.size)


_LOST_IDENTITY = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_IN_DOUBT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Answers after which the records may lie in the log."""
