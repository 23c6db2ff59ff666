"""One sink task: read from the committed offset on, convert, put, flush, then commit; in that order."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial

from appliance.base.errors import KafkaError
from appliance.base.ids import TopicPartition
from appliance.base.object_store import StoreUnavailable
from appliance.client.client import Client
from appliance.client.connection import ConnectionLost
from appliance.client.security import service_security
from appliance.records.reader import Record
from appliance.tiering.reader import TierReader
from appliance.tiering.stores import open_store
from connectors.api import RetriableError, SinkRecord, SinkTask
from connectors.converters import converter_for
from connectors.plugins import connector_class
from connectors.runtime.feed import PartitionFeed
from connectors.runtime.group_offsets import GroupOffsets
from connectors.runtime.source_loop import until_done
from connectors.runtime.tasks import RUNNING, Report, TaskReport, TaskSpec
from connectors.runtime.topics import ensure_topic

COMMIT_INTERVAL_S = 1.0
IDLE_WAIT_S = 0.05


def run_sink_task(spec: TaskSpec, stopping: threading.Event, report: Report) -> None:
    """Runs until `stopping`. Raises whatever the task or a converter raises; the caller reports it."""
    task = connector_class(spec.config["connector.class"]).task_class()
    assert isinstance(task, SinkTask)
    security = service_security(spec.listener_configs)
    with Client(spec.bootstrap_servers, client_id=spec.client_id, security=security) as client:
        loop = _SinkLoop(client, spec, task, stopping, report)
        task.start(spec.config)
        try:
            loop.run()
        finally:
            task.stop()


class _SinkLoop:
    def __init__(
        self, client: Client, spec: TaskSpec, task: SinkTask, stopping: threading.Event, report: Report
    ) -> None:
        self._client = client
        self._spec = spec
        self._task = task
        self._stopping = stopping
        self._report = report
        self._group = GroupOffsets(client, f"connect-{spec.connector}")
        self._key = converter_for(spec.config, "key")
        self._value = converter_for(spec.config, "value")
        self._moved = 0
        self._feeds: dict[TopicPartition, PartitionFeed] = {}
        self._committed_s = time.monotonic()

    def run(self) -> None:
        if until_done(self._stopping, self._open) is None:
            return
        self._tell()
        while not self._stopping.is_set():
            moved = False
            for tp, feed in self._feeds.items():
                records = until_done(self._stopping, partial(_read, feed))
                if records:
                    self._put([self._convert(tp, record) for record in records])
                    moved = True
            if not moved:
                self._stopping.wait(IDLE_WAIT_S)
            if time.monotonic() - self._committed_s >= COMMIT_INTERVAL_S:
                self._commit(closing=False)
        self._commit(closing=True)

    def _open(self) -> bool:
        mine = self._partitions()
        committed = self._group.fetch(mine) if mine else {}
        missing = [tp for tp in mine if tp not in committed]
        starts = self._client.list_offsets(dict.fromkeys(missing, -2)) if missing else {}
        positions = {tp: committed[tp] if tp in committed else starts[tp].offset for tp in mine}
        tier = TierReader(open_store(self._spec.object_store)) if self._spec.object_store else None
        self._feeds = {tp: PartitionFeed(self._client, tier, tp, offset) for tp, offset in positions.items()}
        self._task.open(positions)
        return True

    def _partitions(self) -> list[TopicPartition]:
        """Every n-th partition of the topics, n being the number of tasks."""
        names = [name.strip() for name in self._spec.config["topics"].split(",") if name.strip()]
        everything = [
            TopicPartition(name, number) for name in names for number in range(ensure_topic(self._client, name, -1))
        ]
        return everything[self._spec.task_id :: self._spec.task_count]

    def _convert(self, tp: TopicPartition, record: Record) -> SinkRecord:
        return SinkRecord(
            tp,
            record.offset,
            record.timestamp,
            self._key.from_bytes(record.key),
            self._value.from_bytes(record.value),
            record.headers,
            record,
        )

    def _put(self, records: list[SinkRecord]) -> None:
        until_done(self._stopping, lambda: self._task.put(records))
        self._moved += len(records)
        self._tell()

    def _commit(self, closing: bool) -> None:
        self._committed_s = time.monotonic()
        if closing:
            # One try: what does not get through now is read and put again by whoever comes next.
            with contextlib.suppress(RetriableError, KafkaError, ConnectionLost):
                last = self._task.flush(True)
                if last:
                    self._group.commit(last)
            return
        safe = until_done(self._stopping, lambda: self._task.flush(False))
        if safe:
            until_done(self._stopping, lambda: self._group.commit(safe))

    def _tell(self) -> None:
        tiered = sum(feed.tiered_records for feed in self._feeds.values())
        self._report(TaskReport(RUNNING, records=self._moved, tiered_records=tiered))


def _read(feed: PartitionFeed) -> list[Record]:
    try:
        return feed.next_records()
    except StoreUnavailable as error:
        raise RetriableError(f"the object store is away: {error}") from error
