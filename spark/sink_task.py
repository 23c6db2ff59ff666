"""What a task of a writer does with its rows: batches for each partition, in a transaction if exactly once is wanted.

Exactly once: the task's transactional id is that of the sink and the task's number, so a new attempt fences the one
before it. In the transaction goes an offset of a group of the same name: the number of the batch plus one. An attempt
that finds its batch there has nothing to do, for rows and offset became visible as one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from appliance.base.clock import SystemClock
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.partitioner import partition_for_key
from appliance.records.builder import NewRecord, build_batch
from spark.sink_client import SinkClient
from spark.sink_options import SinkOptions

RECORD_OVERHEAD_BYTES = 20
"""What a record needs beside its fields, more or less."""

Row = tuple[str, int | None, NewRecord]


class TaskWriter:
    """Writes rows in batches with sequences, so that a batch which is sent again is there once."""

    def __init__(
        self, client: SinkClient, options: SinkOptions, producer: tuple[int, int], transactional_id: str | None
    ) -> None:
        self._client = client
        self._options = options
        self._producer = producer
        self._transactional_id = transactional_id
        self._waiting: dict[TopicPartition, list[NewRecord]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._partitions: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self.rows = 0

    def write(self, rows: Iterable[Row]) -> None:
        """Take rows and send full batches. Raises: KafkaError, ConnectionLost, CallTimedOut."""
        for topic, partition, record in rows:
            tp = TopicPartition(topic, self._partition(topic, record[1]) if partition is None else partition)
            self._waiting.setdefault(tp, []).append(record)
            size = self._bytes.get(tp, 0) + _size_of(record)
            self._bytes[tp] = size
            self.rows += 1
            if size >= self._options.batch_bytes:
                self._send(tp)

    def flush(self) -> None:
        """Send what waits; returns when all of it is acknowledged. Raises: as `write`."""
        for tp in sorted(self._waiting):
            self._send(tp)

    def _partition(self, topic: str, key: bytes | None) -> int:
        if key is not None:
            return partition_for_key(key, self._count(topic))
        return self._sticky.setdefault(topic, 0) % self._count(topic)

    def _count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            found = self._client.metadata([topic]).topics.get(topic)
            if found is None or found.error != ErrorCode.NONE:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error, topic)
            count = self._partitions[topic] = len(found.partitions)
        return count

    def _send(self, tp: TopicPartition) -> None:
        records = self._waiting.pop(tp)
        del self._bytes[tp]
        if self._transactional_id is not None and tp not in self._sequences:
            self._client.add_partition(self._transactional_id, self._producer, tp)
        sequence = self._sequences.get(tp, 0)
        batch = build_batch(
            records,
            codec=self._options.codec,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=self._transactional_id is not None,
        )
        self._client.produce_as(tp, batch, self._transactional_id)
        self._sequences[tp] = (sequence + len(records)) & 0x7FFFFFFF
        # Records without a key go to one partition until a batch is full, then to the next, as Kafka's clients do.
        self._sticky[tp.topic] = self._sticky.get(tp.topic, 0) + 1


def write_at_least_once(options: SinkOptions, rows: Iterator[Row]) -> int:
    """Write all rows; how many there were. Raises: KafkaError, ConnectionLost, CallTimedOut."""
    with _connected(options) as client:
        writer = TaskWriter(client, options, client.new_producer(None, 0), None)
        writer.write(rows)
        writer.flush()
    return writer.rows


def write_exactly_once(options: SinkOptions, rows: Iterator[Row], name: str, batch_id: int) -> int | None:
    """Write all rows in one transaction; how many, or None if an earlier attempt did.

    Args:
        options, rows: what to write how.
        name: of the sink and the task, the same for all attempts and replays.
        batch_id: numbers of batches rise.

    Raises:
        KafkaError: PRODUCER_FENCED when a later attempt runs; ConnectionLost, CallTimedOut.
    """
    first = next(rows, None)
    if first is None:
        return 0
    assert options.topic is not None
    marker = TopicPartition(options.topic, 0)
    with _connected(options) as client:
        # First the epoch, then the question: whoever ran before cannot commit any more once it is answered.
        producer = client.new_producer(name, options.transaction_timeout_ms)
        if client.committed_offset(name, marker) > batch_id:
            return None
        writer = TaskWriter(client, options, producer, name)
        try:
            writer.write(itertools.chain([first], rows))
            writer.flush()
            client.commit_offset(name, producer, name, marker, batch_id + 1)
        except BaseException:
            _abort(client, name, producer)
            raise
        client.end_transaction(name, producer, commit=True)
    return writer.rows


def _connected(options: SinkOptions) -> SinkClient:
    return SinkClient(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_ms=options.request_timeout_ms,
        security=options.security.for_client(),
    )


def _abort(client: SinkClient, name: str, producer: tuple[int, int]) -> None:
    try:
        client.end_transaction(name, producer, commit=False)
    except Exception:
        # The next attempt's epoch or the transaction's time-out ends it as well; the first error is the one to tell.
        return


def rows_of(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> Iterator[Row]:
    """Rows of Arrow batches with the columns of Spark's Kafka sink.

    Raises:
        ValueError: a row has no topic.
    """
    clock = SystemClock()
    for batch in batches:
        count = batch.num_rows
        nothing: list[Any] = [None] * count
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in SINK_COLUMNS}
        now_ms = clock.now_ms()
        times = nothing
        if options.keep_timestamps and "timestamp" in columns:
            times = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
        topics = [options.topic] * count if options.topic is not None else columns.get("topic", nothing)
        for topic, partition, key, value, headers, time_ms in zip(
            topics,
            columns.get("partition", nothing),
            columns.get("key", nothing),
            columns["value"],
            columns.get("headers", nothing),
            times,
            strict=True,
        ):
            if topic is None:
                raise ValueError("a row has no topic, and neither has the option topic")
            pairs = [(header["key"], header["value"]) for header in headers] if headers else []
            record = (now_ms if time_ms is None else time_ms, _bytes(key), _bytes(value), pairs)
            yield topic, partition, record


SINK_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")


def _bytes(cell: str | bytes | None) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else cell


def _size_of(record: NewRecord) -> int:
    _, key, value, headers = record
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") + 4 for name, content in headers) if headers else size
