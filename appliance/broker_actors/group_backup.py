"""What groups have committed goes to the object store each `tiering.groups.interval.ms`, and comes back to a lost log.

Internal topics are not tiered, so each led partition of `__consumer_offsets` is backed up as what compaction would
leave of it, each of `__share_group_state` as its states: one object, replaced by compare-and-swap, and left alone once
a later leader has written it. A leader that had the partition's log and has it no more reads it back before it serves.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
)
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.internal_topics import BACKED_UP, SHARE_STATE
from appliance.controller.image import MetadataImage
from appliance.coordinator.backup import (
    BackupHead,
    CorruptBackup,
    LastRecords,
    encode_backup,
    next_backup,
    parse_backup,
)
from appliance.log.errors import LogWriteFailed
from appliance.records.batch import parse_header
from appliance.share_groups.backup import LastStates
from appliance.tiering.names import groups_name

_log = logging.getLogger(__name__)

RETRY_MS = 1_000
BATCHES_PER_SLICE = 8
"""So many restored batches are appended before the event loop gets its turn again."""


@dataclass(slots=True)
class _Led:
    hosted: HostedPartition
    leader_epoch: int
    known: LastRecords | LastStates
    read_to: int = -1
    """All below is in `known`."""
    stored_to: int = -1
    """All below is in the object store."""
    ended: bool = False


class GroupBackup:
    """All methods are called on the loop's thread; the log is read and the store asked in helper threads."""

    def __init__(
        self,
        store: ObjectStore,
        background: Background,
        clock: Clock,
        config: BrokerConfig,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._image = image
        self._store = store
        self._background = background
        self._clock = clock
        self._interval_ms: int = config.get("tiering.groups.interval.ms")
        self._led: dict[tuple[uuid.UUID, int], _Led] = {}
        self._round_goes_on = False
        self._closed = False

    def leading(self, hosted: HostedPartition) -> None:
        """This broker begins to lead a partition."""
        if hosted.topic not in BACKED_UP:
            return
        self.stopped(hosted)
        known = LastStates() if hosted.topic == SHARE_STATE else LastRecords()
        led = self._led[hosted.topic_id, hosted.partition] = _Led(hosted, hosted.leader_epoch, known)
        if hosted.recovering:
            self._restore(led)

    def stopped(self, hosted: HostedPartition) -> None:
        """It leads the partition no longer."""
        led = self._led.pop((hosted.topic_id, hosted.partition), None)
        if led is not None:
            led.ended = True

    def start(self) -> None:
        """Back up from now on."""
        if self._closed:
            return
        self._background.schedule(self._interval_ms, self.start)
        self.tick()

    def close(self) -> None:
        """Nothing more is begun."""
        self._closed = True

    def tick(self) -> None:
        """Back up what has changed, one partition after the other, unless the round before still goes on."""
        if not self._round_goes_on:
            self._round_goes_on = True
            self._next([led for _, led in sorted(self._led.items())])

    # Backing up

    def _next(self, rest: list[_Led]) -> None:
        while rest and not self._closed:
            led = rest.pop(0)
            hosted = led.hosted
            end = hosted.high_watermark
            if led.ended or hosted.recovering or hosted.refusal() or end <= max(led.stored_to, 0):
                continue
            self._background.run(partial(self._store_one, led, end), lambda result: self._went_on(result, rest))
            return
        self._round_goes_on = False

    def _went_on(self, result: Exception | None, rest: list[_Led]) -> None:
        if isinstance(result, Exception):
            _log.warning("committed offsets are not backed up now: %s", result)
        self._next(rest)

    def _store_one(self, led: _Led, end: int) -> None:
        """In a helper thread. Raises: ObjectStoreError, CorruptBackup, CorruptBatch, OSError."""
        hosted = led.hosted
        if led.read_to < end:
            # What the share coordinator has cut says nothing that a later record does not.
            start = max(led.read_to, hosted.log.local_log_start_offset)
            led.known.read(hosted.log.batches(start, end))
            led.read_to = end
        topic = self._image().topics_by_id.get(hosted.topic_id)
        partitions = len(topic.partitions) if topic is not None else 0
        head = BackupHead(hosted.topic, hosted.topic_id, hosted.partition, partitions, led.leader_epoch, 0, end)
        name = groups_name(hosted.topic_id, hosted.partition)
        try:
            stored = self._store.get(name)
            etag: str | None = stored.etag
            wanted = next_backup(parse_backup(stored.data)[0], head)
        except ObjectNotFound:
            etag, wanted = None, head
        if wanted is not None:
            data = encode_backup(wanted, led.known.records, self._clock.now_ms())
            try:
                if etag is None:
                    self._store.create(name, data)
                else:
                    self._store.swap(name, data, etag)
            except (ObjectExists, ETagMismatch, ObjectNotFound):
                # Somebody else was faster, or our own write of before: the next round looks again.
                return
        led.stored_to = end

    # Restoring

    def _restore(self, led: _Led) -> None:
        """The log is gone: nobody is served before what was backed up is in it again."""
        hosted = led.hosted

        def read() -> list[memoryview]:
            try:
                return parse_backup(self._store.get(groups_name(hosted.topic_id, hosted.partition)).data)[1]
            except ObjectNotFound:
                return []

        def done(result: list[memoryview] | Exception) -> None:
            if led.ended or self._closed:
                return
            if isinstance(result, Exception):
                expected = isinstance(result, ObjectStoreError | CorruptBackup)
                _log.error("%r waits for its backup: %s", hosted, result, exc_info=None if expected else result)
                self._background.schedule(RETRY_MS, lambda: None if led.ended else self._restore(led))
                return
            self._append(led, result, 0)

        self._background.run(read, done)

    def _append(self, led: _Led, batches: list[memoryview], at: int) -> None:
        if led.ended or self._closed:
            return
        hosted, now_ms = led.hosted, self._clock.now_ms()
        try:
            for batch in batches[at : at + BATCHES_PER_SLICE]:
                view = memoryview(bytearray(batch))
                hosted.log.stage(view, parse_header(view), led.leader_epoch, now_ms)
            if hosted.log.has_staged:
                hosted.log.write_staged()
        except (OSError, LogWriteFailed) as error:
            hosted.go_offline(f"the backup of its groups cannot be written: {error}")
            return
        if at + BATCHES_PER_SLICE < len(batches):
            self._background.schedule(1, lambda: self._append(led, batches, at + BATCHES_PER_SLICE))
            return
        records = sum(parse_header(batch).record_count for batch in batches)
        _log.info("%r: %d records of groups restored from the object store", hosted, records)
        hosted.recovered()
