"""One source task: poll, convert, write, then commit the source offset; in that order, so that nothing is lost.

At least once: a task that is killed after its records were written and before their offset was committed writes them
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from appliance.base.errors import KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.client.partitioner import partition_for_key
from appliance.client.security import service_security
from appliance.records.builder import NewRecord, build_batch
from connectors.api import RetriableError, SourceRecord, SourceTask
from connectors.converters import Converter, converter_for
from connectors.plugins import connector_class
from connectors.runtime.source_offsets import OFFSET_TOPIC_PARTITIONS, SourceOffsets
from connectors.runtime.tasks import RUNNING, Report, TaskReport, TaskSpec
from connectors.runtime.topics import CompactedTopic, ensure_topic

MAX_BATCH_BYTES = 512 * 1024
RETRY_PAUSE_S = 0.5
RETRY_PAUSE_MAX_S = 10.0
T = TypeVar("T")


def run_source_task(spec: TaskSpec, stopping: threading.Event, report: Report) -> None:
    """Runs until `stopping`. Raises whatever the task or a converter raises; the caller reports it."""
    task = connector_class(spec.config["connector.class"]).task_class()
    assert isinstance(task, SourceTask)
    security = service_security(spec.listener_configs)
    with Client(spec.bootstrap_servers, client_id=spec.client_id, security=security) as client:
        offsets = until_done(
            stopping,
            lambda: SourceOffsets(CompactedTopic(client, spec.offset_topic, OFFSET_TOPIC_PARTITIONS), spec.connector),
        )
        if offsets is None:
            return
        loop = _SourceLoop(client, spec, offsets, stopping)
        task.start(spec.config, offsets, stopping)
        moved = 0
        report(TaskReport(RUNNING))
        try:
            while not stopping.is_set():
                records = until_done(stopping, task.poll)
                if records:
                    moved += loop.write(records)
                    report(TaskReport(RUNNING, records=moved))
        finally:
            task.stop()


class _SourceLoop:
    def __init__(self, client: Client, spec: TaskSpec, offsets: SourceOffsets, stopping: threading.Event) -> None:
        self._client = client
        self._offsets = offsets
        self._stopping = stopping
        self._key: Converter = converter_for(spec.config, "key")
        self._value: Converter = converter_for(spec.config, "value")
        self._new_partitions = int(spec.config.get("topic.creation.default.partitions", "-1"))
        self._partition_counts: dict[str, int] = {}
        self._round_robin = 0

    def write(self, records: Sequence[SourceRecord]) -> int:
        """Write records and commit where they end; returns how many. A stop in between leaves the offset as it was."""
        by_partition: dict[TopicPartition, list[NewRecord]] = {}
        for record in records:
            tp, made = self._convert(record)
            by_partition.setdefault(tp, []).append(made)
        for tp, rows in by_partition.items():
            for batch in _batches(rows):
                self._retry(partial(self._client.produce, tp, batch))
        ends = {_frozen(record.source_partition): record for record in records}
        for record in ends.values():
            self._retry(partial(self._offsets.commit, record.source_partition, record.source_offset))
        return 0 if self._stopping.is_set() else len(records)

    def _retry(self, work: Callable[[], object]) -> None:
        if not self._stopping.is_set():
            until_done(self._stopping, work)

    def _convert(self, record: SourceRecord) -> tuple[TopicPartition, NewRecord]:
        key, value = self._key.to_bytes(record.key), self._value.to_bytes(record.value)
        timestamp = time.time_ns() // 1_000_000 if record.timestamp is None else record.timestamp
        count = self._partition_count(record.topic)
        if record.partition is not None:
            partition = record.partition
        elif key is not None:
            partition = partition_for_key(key, count)
        else:
            partition = self._round_robin % count
        return TopicPartition(record.topic, partition), (timestamp, key, value, record.headers)

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            made = until_done(self._stopping, lambda: ensure_topic(self._client, topic, self._new_partitions))
            count = self._partition_counts[topic] = made or 1
        return count


def _batches(rows: Sequence[NewRecord]) -> list[bytes]:
    batches: list[bytes] = []
    pending: list[NewRecord] = []
    size = 0
    for row in rows:
        length = 40 + len(row[1] or b"") + len(row[2] or b"")
        if pending and size + length > MAX_BATCH_BYTES:
            batches.append(build_batch(pending))
            pending, size = [], 0
        pending.append(row)
        size += length
    batches.append(build_batch(pending))
    return batches


def _frozen(source_partition: dict[str, object]) -> str:
    return repr(sorted(source_partition.items()))


def until_done(stopping: threading.Event, work: Callable[[], T]) -> T | None:
    """Do something until it works; None if the task is to stop before that.

    What can be cured by waiting (brokers away, a retriable error) is tried again with growing pauses for as long as the
    task runs; everything else is raised.
    """
    pause_s = RETRY_PAUSE_S
    while not stopping.is_set():
        try:
            return work()
        except (ConnectionLost, CallTimedOut, RetriableError):
            pass
        except KafkaError as error:
            if not error.code.retriable:
                raise
        stopping.wait(pause_s)
        pause_s = min(2 * pause_s, RETRY_PAUSE_MAX_S)
    return None
