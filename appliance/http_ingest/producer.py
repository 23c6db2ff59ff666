"""The gateway's producer: records in from many requests, batches out to their leaders, a result back for each.

Each partition has a queue of its own and one Produce request on its way at a time, so order is kept and whatever
arrives meanwhile becomes the next batch: under load batches grow by themselves, and a lone record waits for nothing.
Records with acks=all are written idempotently (KIP-98), with a producer id for each partition: a retry cannot double
them, and a partition whose outcome stays in doubt starts anew without disturbing the others.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import NamedTuple

from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.cluster import TopicMetadata
from appliance.client.partitioner import partition_for_key
from appliance.http_ingest.bodies import IngestRecord
from appliance.http_ingest.cluster import Cluster
from appliance.http_ingest.limits import HttpLimits
from appliance.http_ingest.partition_queue import Delivery, PartitionQueue

ACKS_ALL = -1


class Producer:
    """For one event loop. `acks` is 0, 1 or -1 (all)."""

    def __init__(self, cluster: Cluster, limits: HttpLimits, clock: Clock) -> None:
        self._cluster = cluster
        self._limits = limits
        self._clock = clock
        self._queues: dict[_QueueKey, PartitionQueue] = {}
        self._sticky: dict[str, int] = {}
        self._buffered_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that no broker has answered for yet."""
        return self._buffered_bytes

    async def topic(self, name: str) -> TopicMetadata:
        """See `Cluster.topic`."""
        return await self._cluster.topic(name)

    async def wait_for_room(self) -> None:
        """Wait until fewer bytes than the limit are buffered.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, nothing became free within `max_block_ms`.
        """
        if self._buffered_bytes < self._limits.max_buffered_bytes:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(future)
        try:
            async with asyncio.timeout(self._limits.max_block_ms / 1000):
                await future
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the gateway's buffer is full") from None
        finally:
            if future in self._room:
                self._room.remove(future)

    def send(self, topic: TopicMetadata, record: IngestRecord, acks: int, delivery: Delivery) -> None:
        """Queue a record; `delivery` gets its result later.

        The caller has waited for room, and a partition that the record names is one of the topic's.
        """
        partition = self._partition_of(topic, record)
        key = _QueueKey(topic.name, partition, acks)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PartitionQueue(
                TopicPartition(topic.name, partition),
                acks,
                self._cluster,
                self._limits,
                self._clock,
                self._released,
                self._batch_taken,
            )
        size = record.size_in_bytes
        self._buffered_bytes += size
        queue.add(record, size, delivery)

    async def flush(self) -> None:
        """Wait until everything queued has its result; bounded by the delivery time-out."""
        await asyncio.gather(*(queue.idle() for queue in self._queues.values()))

    def _partition_of(self, topic: TopicMetadata, record: IngestRecord) -> int:
        count = len(topic.partitions)
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, count)
        # KIP-480: records without a key stay with one partition until its batch leaves, so batches are large.
        partition = self._sticky.get(topic.name, -1)
        if not 0 <= partition < count:
            partition = self._sticky[topic.name] = random.randrange(count)
        return partition

    def _batch_taken(self, tp: TopicPartition) -> None:
        if self._sticky.get(tp.topic) == tp.partition:
            del self._sticky[tp.topic]

    def _released(self, size: int) -> None:
        self._buffered_bytes -= size
        while self._room and self._buffered_bytes < self._limits.max_buffered_bytes:
            future = self._room.popleft()
            if not future.done():
                future.set_result(None)
                break


class _QueueKey(NamedTuple):
    topic: str
    partition: int
    acks: int
