"""The coordinators of groups on this broker: one for each partition of `__consumer_offsets` that it leads.

Thin: the deciding is in `appliance.groups`, `consumer_groups` and `streams_groups`, the order of writes and answers in
`appliance.coordinator`. Here they get a log to write to, threads to load and to assign in, timers, the metadata and the
time. All methods are called on the loop's thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.broker_actors.partition_coordinator import InternalPartition, PartitionCoordinator, SendAnswer
from appliance.consumer_groups.config import consumer_group_config
from appliance.consumer_groups.context import AnyEffect, Job
from appliance.controller.image import MetadataImage, TopicState
from appliance.coordinator.calls import Call
from appliance.coordinator.loader import LoadSummary, load, replaying
from appliance.coordinator.moment import Moment
from appliance.coordinator.partitioner import partition_for
from appliance.coordinator.shard import ShardLimits
from appliance.groups.config import group_config
from appliance.groups.stored import LoadedTransactions
from appliance.server.handlers.find_coordinator import OFFSETS_TOPIC
from appliance.share_groups.config import share_group_config
from appliance.share_groups.context import Outcome, PersistJob
from appliance.share_groups.machine import ShareGroups, StoredWithShares, decoding
from appliance.share_groups.refusals import refuse
from appliance.streams_groups.config import streams_group_config
from appliance.streams_groups.machine import EveryGroupMachine
from appliance.streams_groups.records import decode_record
from appliance.streams_groups.stored import StoredEveryGroup
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)


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

    @property
    def shares(self) -> Any: ...

    def on_image(self, callback: Callable[[MetadataImage], None]) -> Any: ...

    def create_internal_topic(self, name: str, done: Callable[[ErrorCode], None]) -> None: ...


class GroupCoordinatorHost:
    """`broker.groups`."""

    def __init__(self, broker: HostBroker, randomness: Randomness | None = None) -> None:
        self._broker = broker
        self.randomness = randomness or SystemRandomness()
        self.config = group_config(broker.config.get)
        self.consumer_config = consumer_group_config(lambda key: broker.config.get(key))
        self.streams_config = streams_group_config(lambda key: broker.config.get(key))
        self.share_config = share_group_config(lambda key: broker.config.get(key))
        self.background = broker.background
        self._coordinators: dict[int, GroupCoordinator] = {}
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

    def world(self) -> MetadataImage:
        """Topics and configs as this broker knows them."""
        return self._broker.image

    def limits_of(self, hosted: InternalPartition) -> ShardLimits:
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
            coordinator.submit(call, answer, group_id if after_writes else coordinator.must_wait(call))

    def submit_to(self, partition: int, call: Call, answer: SendAnswer) -> None:
        """Let the coordinator of a partition decide what concerns all of it."""
        coordinator = self._coordinators.get(partition)
        if coordinator is None:
            answer(refuse(call, ErrorCode.NOT_COORDINATOR))
        else:
            coordinator.submit(call, answer, None)

    def persist(self, job: PersistJob, done: Callable[[Outcome], None]) -> None:
        """Have states of a share group begun or ended, wherever their coordinators are; `done` is called once."""
        self._broker.shares.offsets.persist(job, done)

    def view(self, group_id: str) -> ShareGroups | ErrorCode:
        """The groups of the partition that this group belongs to, or why they cannot be looked at here."""
        coordinator = self._coordinator_of(group_id)
        return ErrorCode.NOT_COORDINATOR if coordinator is None else coordinator.view()

    def views(self) -> list[ShareGroups] | ErrorCode:
        """All groups that this broker coordinates."""
        views = [coordinator.view() for _, coordinator in sorted(self._coordinators.items())]
        if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in views:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [view for view in views if isinstance(view, ShareGroups)]

    def create_topic(self, done: Callable[[], None]) -> None:
        """Have `__consumer_offsets` created; `done` is called when it is there, or could not be created."""

        def created(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _log.warning("%s could not be created: %s", OFFSETS_TOPIC, error.name)
            done()

        self._broker.create_internal_topic(OFFSETS_TOPIC, created)

    def _coordinator_of(self, group_id: str) -> GroupCoordinator | None:
        topic = self._broker.image.topics.get(OFFSETS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        return self._coordinators.get(partition_for(group_id, len(topic.partitions)))

    # What changes

    def _leadership(self, hosted: InternalPartition, leads: bool) -> None:
        before = self._coordinators.pop(hosted.partition, None)
        if before is not None:
            before.end()
        if leads:
            coordinator = self._coordinators[hosted.partition] = GroupCoordinator(self, hosted)
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


class GroupCoordinator(PartitionCoordinator[ShareGroups, Any, StoredWithShares]):
    """The groups of one partition of `__consumer_offsets`."""

    def __init__(self, host: GroupCoordinatorHost, hosted: InternalPartition) -> None:
        super().__init__(host, hosted)
        self._groups_host = host
        self._others: EveryGroupMachine
        """Of all kinds but share groups: what they ask for after each request is asked without a detour."""

    def _read(self) -> tuple[StoredWithShares, LoadSummary]:
        others = StoredEveryGroup()
        stored = StoredWithShares(others)
        replay = replaying(decoding(decode_record), stored)
        batches = self._hosted.read_committed_batches()
        return stored, load(batches, replay, LoadedTransactions(others, decode_record))

    def _begin(self, stored: StoredWithShares) -> ShareGroups:
        host = self._groups_host
        others = self._others = EveryGroupMachine(
            host.config, host.consumer_config, host.streams_config, host.randomness, stored.others, host.world
        )
        return ShareGroups(others, stored.shares, host.share_config, host.world)

    def _refuse(self, call: Call, error: ErrorCode) -> Struct:
        return refuse(call, error)

    def _first_effects(self, machine: ShareGroups, now: Moment) -> list[AnyEffect]:
        return machine.loaded(now)

    def _back_in_service(self, machine: ShareGroups, now: Moment) -> list[AnyEffect]:
        return machine.time_anew(now)

    def _after_step(self, machine: ShareGroups) -> None:
        for job in self._others.take_jobs():
            self._host.background.run(job.run, partial(self._job_done, machine, job))
        if machine.context.jobs:
            for each in machine.take_persists():
                self._groups_host.persist(each, partial(self._persisted, machine, each))

    def _persisted(self, machine: ShareGroups, job: PersistJob, outcome: Outcome) -> None:
        if machine is self._machine:
            self._do(lambda shard, now: shard.decide(lambda: machine.persisted(job, outcome, now), now))

    def _job_done(self, machine: ShareGroups, job: Job, result: object) -> None:
        if machine is self._machine:
            self._do(lambda shard, now: shard.decide(lambda: machine.job_done(job, result, now), now))

    def must_wait(self, call: Call) -> str | None:
        """The group whose writes have to be finished before this can be decided."""
        return None if self._machine is None else self._machine.must_wait(call)

    def topics_deleted(self, deleted: list[tuple[str, uuid.UUID]]) -> None:
        """Topics are gone, by name and id."""
        machine = self._machine
        if machine is not None:
            self._do(lambda shard, now: shard.decide(lambda: machine.topics_deleted(deleted), now))
