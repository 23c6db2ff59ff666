"""The coordinators of groups on this broker: one for each partition of `__consumer_offsets` that it leads.

Thin: the deciding is in `appliance.groups`, the order of writes and answers in `appliance.coordinator`. Here they get
a log to write to, a thread to load in, timers and the time. All methods are called on the loop's thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.controller.image import MetadataImage, TopicState
from appliance.coordinator.calls import Call
from appliance.coordinator.failures import told
from appliance.coordinator.loader import LoadSummary, load
from appliance.coordinator.moment import Moment
from appliance.coordinator.partitioner import partition_for
from appliance.coordinator.shard import Batch, CoordinatorShard, ShardLimits
from appliance.groups.config import group_config
from appliance.groups.machine import GroupMachine
from appliance.groups.records import replay_into
from appliance.groups.refusals import refuse
from appliance.groups.stored import GroupRecord, StoredGroups
from appliance.server.handlers.find_coordinator import OFFSETS_TOPIC
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

LOAD_POLL_MS = 20
"""How often a new leader looks whether all that it found in its log is committed."""
LOAD_RETRY_MS = 1_000
"""How long a load that failed waits for its next try."""
REFUSED_POLL_MS = 500
"""How often timers look whether a broker that may not serve just now may serve again."""

SendAnswer = Callable[[Struct], None]


class OffsetsPartition(Protocol):
    """A partition of `__consumer_offsets`, as `HostedPartition` is one."""

    partition: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int

    @property
    def config(self) -> Any: ...

    def refusal(self) -> ErrorCode: ...

    def append_records(self, batch: bytes, on_committed: Callable[[ErrorCode, int], None]) -> None: ...

    def read_committed_batches(self) -> Iterator[memoryview]: ...


class Partitions(Protocol):
    """Where leadership comes from, as `PartitionHost` tells it."""

    def on_leadership(self, topic: str, callback: Callable[[Any, bool], None]) -> None: ...


class HostBroker(Protocol):
    """What a broker gives to its coordinators."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def background(self) -> Background: ...

    @property
    def partitions(self) -> Any: ...

    @property
    def image(self) -> MetadataImage: ...

    def on_image(self, callback: Callable[[MetadataImage], None]) -> Any: ...

    def create_internal_topic(self, name: str, done: Callable[[ErrorCode], None]) -> None: ...


class GroupCoordinatorHost:
    """`broker.groups`."""

    def __init__(self, broker: HostBroker, randomness: Randomness | None = None) -> None:
        self._broker = broker
        self.randomness = randomness or SystemRandomness()
        self.config = group_config(broker.config.get)
        self.background = broker.background
        self._coordinators: dict[int, PartitionCoordinator] = {}
        self._topics_by_id: Mapping[uuid.UUID, TopicState] = {}
        self._stop_images: Any = None

    def start(self) -> None:
        """Follow the leadership of `__consumer_offsets` from now on."""
        self._topics_by_id = self._broker.image.topics_by_id
        self._stop_images = self._broker.on_image(self._image_changed)
        self._broker.partitions.on_leadership(OFFSETS_TOPIC, self._leadership)

    def close(self) -> None:
        """Send everybody who waits to another broker."""
        if self._stop_images is not None:
            self._stop_images()
        for coordinator in self._coordinators.values():
            coordinator.end()
        self._coordinators.clear()

    def moment(self) -> Moment:
        """The time on both clocks."""
        clock = self._broker.clock
        return Moment(clock.now_ms(), clock.monotonic_ms())

    def limits_of(self, hosted: OffsetsPartition) -> ShardLimits:
        """Bounds of the coordinator of this partition."""
        config = self._broker.config
        return ShardLimits(
            batch_max_bytes=hosted.config.max_message_bytes,
            codec=config.get("offsets.topic.compression.codec"),
            write_timeout_ms=config.get("offsets.commit.timeout.ms"),
        )

    # What handlers ask for

    def submit(self, group_id: str, call: Call, answer: SendAnswer, *, after_writes: bool = False) -> None:
        """Let the group's coordinator decide; `answer` is called once, perhaps at once."""
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            answer(refuse(call, ErrorCode.NOT_COORDINATOR))
        else:
            coordinator.submit(call, answer, group_id if after_writes else None)

    def view(self, group_id: str) -> GroupMachine | ErrorCode:
        """The groups of the partition that this group belongs to, or why they cannot be looked at here."""
        coordinator = self._coordinator_of(group_id)
        return ErrorCode.NOT_COORDINATOR if coordinator is None else coordinator.view()

    def views(self) -> list[GroupMachine] | ErrorCode:
        """All groups that this broker coordinates."""
        views = [coordinator.view() for _, coordinator in sorted(self._coordinators.items())]
        if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in views:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [view for view in views if isinstance(view, GroupMachine)]

    def create_topic(self, done: Callable[[], None]) -> None:
        """Have `__consumer_offsets` created; `done` is called when it is there, or could not be created."""

        def created(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _log.warning("%s could not be created: %s", OFFSETS_TOPIC, error.name)
            done()

        self._broker.create_internal_topic(OFFSETS_TOPIC, created)

    def _coordinator_of(self, group_id: str) -> PartitionCoordinator | None:
        topic = self._broker.image.topics.get(OFFSETS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        return self._coordinators.get(partition_for(group_id, len(topic.partitions)))

    # What changes

    def _leadership(self, hosted: OffsetsPartition, leads: bool) -> None:
        before = self._coordinators.pop(hosted.partition, None)
        if before is not None:
            before.end()
        if leads:
            coordinator = self._coordinators[hosted.partition] = PartitionCoordinator(self, hosted)
            coordinator.load()

    def _image_changed(self, image: MetadataImage) -> None:
        before, self._topics_by_id = self._topics_by_id, image.topics_by_id
        if before is image.topics_by_id or not self._coordinators:
            return
        gone = before.keys() - image.topics_by_id.keys()
        if gone:
            deleted = [(before[topic_id].name, topic_id) for topic_id in sorted(gone)]
            for coordinator in list(self._coordinators.values()):
                coordinator.topics_deleted(deleted)


class PartitionCoordinator:
    """The coordinator of one partition, from the beginning of this broker's leadership to its end."""

    def __init__(self, host: GroupCoordinatorHost, hosted: OffsetsPartition) -> None:
        self._host = host
        self._hosted = hosted
        self._machine: GroupMachine | None = None
        self._shard: CoordinatorShard[GroupRecord] | None = None
        self._waiting: dict[Call, SendAnswer] = {}
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._flush_posted = False
        self._was_refused = False
        self._ended = False

    def __repr__(self) -> str:
        return f"coordinator of {OFFSETS_TOPIC}-{self._hosted.partition} in leader epoch {self._hosted.leader_epoch}"

    # Loading

    def load(self) -> None:
        """Read the log in a helper thread; until that is done everybody is told to come back."""
        if self._ended:
            return
        hosted, host = self._hosted, self._host
        if hosted.high_watermark < hosted.log_end_offset:
            # What is in the log already may not be given out before it is committed, nor be left out.
            host.background.schedule(LOAD_POLL_MS, self.load)
            return
        started_ms = host.moment().monotonic_ms

        def work() -> tuple[StoredGroups, LoadSummary]:
            stored = StoredGroups()
            summary = load(hosted.read_committed_batches(), partial(replay_into, stored))
            return stored, summary

        def done(result: tuple[StoredGroups, LoadSummary] | Exception) -> None:
            if self._ended:
                return
            if isinstance(result, Exception):
                _log.error("%r cannot be loaded and is tried again: %s", self, result)
                host.background.schedule(LOAD_RETRY_MS, self.load)
                return
            stored, summary = result
            self._loaded(stored)
            took_ms = host.moment().monotonic_ms - started_ms
            if summary.records:
                _log.info("%r loaded %d records in %d ms", self, summary.records, took_ms)

        host.background.run(work, done)

    def _loaded(self, stored: StoredGroups) -> None:
        host = self._host
        machine = self._machine = GroupMachine(host.config, host.randomness, stored)
        self._shard = CoordinatorShard(machine, host.limits_of(self._hosted))
        self._do(lambda shard, now: shard.decide(lambda: machine.loaded(now), now))

    # Requests

    def submit(self, call: Call, answer: SendAnswer, after_writes_of: str | None) -> None:
        """Decide a request of a group of this partition."""
        refusal = self._refusal()
        if refusal is not ErrorCode.NONE:
            answer(refuse(call, refusal))
            return
        self._waiting[call] = answer
        self._do(lambda shard, now: shard.submit(call, now, after_writes_of=after_writes_of))

    def view(self) -> GroupMachine | ErrorCode:
        """The groups of this partition, to be looked at."""
        refusal = self._refusal()
        if refusal is ErrorCode.NONE and self._machine is not None:
            return self._machine
        return refusal

    def _refusal(self) -> ErrorCode:
        """Why no request is served just now."""
        if self._ended:
            return ErrorCode.NOT_COORDINATOR
        refusal = self._hosted.refusal()
        if refusal is not ErrorCode.NONE:
            return told(refusal)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._shard is None else ErrorCode.NONE

    def topics_deleted(self, deleted: list[tuple[str, uuid.UUID]]) -> None:
        """Topics are gone, by name and id."""
        machine = self._machine
        if machine is not None:
            self._do(lambda shard, now: shard.decide(lambda: machine.topics_deleted(deleted), now))

    def end(self) -> None:
        """This broker leads the partition no longer, or it goes down."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        shard, self._shard, self._machine = self._shard, None, None
        if shard is not None:
            shard.unload()
            self._send(shard)

    # The shard's input and output

    def _do(self, action: Callable[[CoordinatorShard[GroupRecord], Moment], None]) -> None:
        shard = self._shard
        if shard is None:
            return
        try:
            action(shard, self._host.moment())
        except Exception:
            self._failed()
            return
        self._send(shard)
        if not shard.idle and not self._flush_posted:
            # What else is decided in this turn of the loop goes into the same batch.
            self._flush_posted = True
            self._host.background.post(self._flush)
        self._arm(shard)

    def _failed(self) -> None:
        """We did something wrong. The log is the truth: begin again from there."""
        _log.exception("%r failed and is loaded again", self)
        shard, self._shard, self._machine = self._shard, None, None
        if shard is not None:
            shard.unload()
            self._send(shard)
        for call, answer in list(self._waiting.items()):
            answer(refuse(call, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._waiting.clear()
        self._host.background.schedule(LOAD_RETRY_MS, self.load)

    def _send(self, shard: CoordinatorShard[GroupRecord]) -> None:
        for each in shard.take_answers():
            answer = self._waiting.pop(each.call, None)
            if answer is not None:
                answer(each.response)

    def _flush(self) -> None:
        self._flush_posted = False
        shard = self._shard
        while shard is not None and shard is self._shard:
            batch = shard.take_batch(self._host.moment())
            if batch is None:
                return
            self._append(shard, batch)

    def _append(self, shard: CoordinatorShard[GroupRecord], batch: Batch[GroupRecord]) -> None:
        def on_committed(error: ErrorCode, base_offset: int) -> None:
            if shard is self._shard:
                self._do(lambda shard, now: shard.batch_done(batch, error, now))

        self._hosted.append_records(batch.payload, on_committed)

    def _arm(self, shard: CoordinatorShard[GroupRecord]) -> None:
        due_ms = shard.next_due_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._host.moment().monotonic_ms, 0)
        self._timer = self._host.background.schedule(delay_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        machine = self._machine
        if machine is None:
            return
        if self._hosted.refusal() is not ErrorCode.NONE:
            # Nobody can reach us now, so nobody is late.
            self._was_refused = True
            self._timer_due_ms = self._host.moment().monotonic_ms + REFUSED_POLL_MS
            self._timer = self._host.background.schedule(REFUSED_POLL_MS, self._due)
            return
        if self._was_refused:
            self._was_refused = False
            self._do(lambda shard, now: shard.decide(lambda: machine.time_anew(now), now))
        self._do(lambda shard, now: shard.tick(now))
