"""All partitions of a broker: opened, led and closed as the metadata says, written together once a tick."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig, TopicConfig, TopicConfigs
from appliance.base.errors import ErrorCode, InvariantBroken
from appliance.base.ids import TopicPartition
from appliance.broker_actors.data_directories import DataDirectories
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.internal_topics import BACKED_UP
from appliance.broker_actors.log_opening import LogOpening
from appliance.controller.image import MetadataImage, PartitionState, TopicState
from appliance.controller.records import LeaderRecoveryState
from appliance.log.errors import LogWriteFailed
from appliance.log.log_manager import LogManager
from appliance.log.partition_log import PartitionLog
from appliance.partition.leader_start import LeaderStart
from appliance.server.metadata_view import INTERNAL_TOPICS

_log = logging.getLogger(__name__)


class Replication(Protocol):
    """What lets replicas follow each other (`broker_actors/replica_manager.py`)."""

    def led(self, hosted: HostedPartition, state: PartitionState) -> None:
        """This broker leads the partition in a new epoch; it may have to wait before it serves."""

    def followed(self, hosted: HostedPartition, state: PartitionState) -> None:
        """Another broker leads, or nobody does."""

    def left(self, hosted: HostedPartition) -> None:
        """The partition is offline, or not this broker's any more."""

    def propose_isr(self, hosted: HostedPartition, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Ask the controller for this ISR."""

    def start_of(self, hosted: HostedPartition, state: PartitionState) -> LeaderStart | None:
        """What a new leader has to wait for; None when for nothing."""


class Alone:
    """Replication where each partition has one replica."""

    def led(self, hosted: HostedPartition, state: PartitionState) -> None: ...

    def followed(self, hosted: HostedPartition, state: PartitionState) -> None: ...

    def left(self, hosted: HostedPartition) -> None: ...

    def propose_isr(self, hosted: HostedPartition, isr: tuple[int, ...], partition_epoch: int) -> None: ...

    def start_of(self, hosted: HostedPartition, state: PartitionState) -> LeaderStart | None:
        return None


OnLeadership = Callable[[HostedPartition, bool], None]
"""Gets a partition of the topic asked for, and whether this broker leads it from now on."""


class HostedTopic:
    """The partitions of one topic on this broker."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, HostedPartition] = {}


class PartitionHost:
    """All methods are called on the loop's thread."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        config: BrokerConfig,
        clock: Clock,
        background: Background,
        begin_tick: Callable[[], None],
    ) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.config = config
        self.clock = clock
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[uuid.UUID, HostedTopic] = {}
        self.generation = 0
        """Rises whenever a topic or partition comes, goes or changes its leader."""
        self.dirty: list[HostedPartition] = []
        """Partitions with staged batches."""
        self.serving = False
        """Whether this broker holds a lease and is not fenced."""
        self.soft_lease = False
        """Whether the controller had no proof from the store when it gave the lease (B8)."""
        self.replication: Replication = Alone()
        self.directories = DataDirectories(logs)
        self.must_recover = False
        """Whether the log was found unclean or empty, so that what was tiered has to be looked at before serving."""
        self.image = MetadataImage()
        self.begin_tick = begin_tick
        self.write_errors = 0
        self._background = background
        self._topic_configs = TopicConfigs()
        self._advanced: dict[HostedPartition, None] = {}
        """Partitions whose high watermark followers have moved in this tick."""
        self._opening = LogOpening(self, background)
        self._on_leadership: dict[str, list[OnLeadership]] = {}
        self._watchers: list[tuple[Callable[[HostedPartition], None], Callable[[HostedPartition], None]]] = []

    def __iter__(self) -> Iterator[HostedPartition]:
        for topic in self.by_id.values():
            yield from topic.partitions.values()

    @property
    def is_opening(self) -> bool:
        """Whether logs are being opened or created."""
        return self._opening.is_busy

    def config_of(self, image: MetadataImage, topic: str) -> TopicConfig:
        """The effective configs of a topic; the broker's defaults for one that is not in the image. Any thread."""
        state = image.topics.get(topic)
        return self.topic_config(state) if state is not None else self._topic_configs.of({}, self.config)

    def topic_config(self, state: TopicState) -> TopicConfig:
        """The effective configs of a topic. Any thread."""
        configs = state.configs
        if state.name in INTERNAL_TOPICS:
            # Their coordinators read them from the disk; what groups have committed is backed up by itself.
            configs = {**configs, "remote.storage.enable": "false"}
        return self._topic_configs.of(configs, self.config)

    def get(self, topic: str, partition: int) -> HostedPartition | None:
        """A partition by the topic's name, if this broker has it open."""
        hosted = self.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(partition)

    def get_by_id(self, topic_id: uuid.UUID, partition: int) -> HostedPartition | None:
        """A partition by the topic's id, if this broker has it open."""
        hosted = self.by_id.get(topic_id)
        return None if hosted is None else hosted.partitions.get(partition)

    def on_leadership(self, topic: str, callback: OnLeadership) -> None:
        """Call back at each change of leadership of a topic's partitions, and now for those led already."""
        self._on_leadership.setdefault(topic, []).append(callback)
        hosted_topic = self.by_name.get(topic)
        for hosted in list(hosted_topic.partitions.values()) if hosted_topic is not None else []:
            if hosted.is_leader and hosted.start is None:
                callback(hosted, True)

    def watch(self, leading: Callable[[HostedPartition], None], stopped: Callable[[HostedPartition], None]) -> None:
        """Call `leading` with each partition that this broker begins to lead, `stopped` when it no longer does."""
        self._watchers.append((leading, stopped))

    def on_opened(self, callback: Callable[[], None]) -> None:
        """Call back whenever partitions were opened."""
        self._opening.on_opened = callback

    # The tick

    def end_of_tick(self) -> None:
        """Write what was staged, one write for each partition; then wake those who wait."""
        dirty = self.dirty
        if self._advanced:
            self._wake_advanced()
        if not dirty:
            return
        self.dirty = []
        for hosted in dirty:
            if hosted.dirty:
                self._write(hosted)
        for hosted in dirty:
            if hosted.waiters or hosted.followed_by:
                hosted.wake()

    def advanced(self, hosted: HostedPartition) -> None:
        """Followers have moved the high watermark: readers look again at the end of the tick."""
        if not self._advanced:
            self.begin_tick()
        self._advanced[hosted] = None

    def _wake_advanced(self) -> None:
        advanced, self._advanced = self._advanced, {}
        for hosted in advanced:
            if not hosted.dirty:
                hosted.numbers_moved()

    def propose_isr(self, hosted: HostedPartition, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.replication.propose_isr(hosted, isr, partition_epoch)

    def metadata_wanted(self, hosted: HostedPartition, leader_epoch: int) -> None:
        # The feed is a long poll: the image that says so is on its way.
        if hosted.is_leader:
            _log.warning("%r: another broker knows of leader epoch %d; not served any more", hosted, leader_epoch)

    def write_all_now(self) -> None:
        """At the end: what the loop's last turn has staged is written by no tick any more."""
        for hosted in list(self):
            self.write_now(hosted)

    def write_now(self, hosted: HostedPartition) -> None:
        """Write one partition's staged batches before the tick ends; its place on the list then means nothing."""
        if hosted.dirty:
            self._write(hosted)

    def _write(self, hosted: HostedPartition) -> None:
        hosted.dirty = False
        try:
            hosted.log.write_staged()
        except LogWriteFailed as error:
            self.write_failed(error)
        except InvariantBroken as error:
            hosted.go_offline(str(error))
        hosted.written()

    def run_flush(self, flush: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Flush in a helper thread."""
        self._background.run(flush, done)

    def write_failed(self, error: LogWriteFailed) -> None:
        """A log could not be written or flushed: its data directory is full, or it failed."""
        self.write_errors += 1
        self.directories.write_failed(error, self)

    def writability_changed(self) -> None:
        """Look which data directories take writes."""
        self.directories.look_again(self)

    def absence_of(self, topic: str | uuid.UUID, partition: int) -> ErrorCode:
        """The error for clients who ask for a partition that there is, but is not open here."""
        if isinstance(topic, str):
            state = self.image.topics.get(topic)
            if state is None:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            topic = state.topic_id
        return self.directories.absence_of(topic, partition)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """For the checkpoint."""
        return {hosted.log.topic_partition: hosted.high_watermark for hosted in self}

    def checkpoint_log_starts(self) -> Callable[[], None]:
        """Work for a helper thread that makes the log starts as they are now durable. It raises OSError."""
        return self.logs.checkpoint_log_starts()

    def out_of_service(self) -> list[tuple[TopicPartition, str]]:
        """Partitions of this broker that are not served, and why."""
        offline = [(hosted.topic_partition, hosted.offline) for hosted in self if hosted.offline]
        return sorted(offline + self.directories.unavailable_in(self.image))

    def set_serving(self, serving: bool) -> None:
        """Whether this broker may answer for what it leads."""
        if serving != self.serving:
            self.serving = serving
            self._reconsider_all()
            for hosted in list(self):
                hosted.wake()

    def _reconsider_all(self) -> None:
        for hosted in list(self):
            hosted.reconsider()

    def set_soft_lease(self, soft: bool) -> None:
        """Whether the lease is a soft one, under which only partitions with a healthy ISR are served (B8)."""
        if soft != self.soft_lease:
            self.soft_lease = soft
            self._reconsider_all()

    def access_changed(self) -> None:
        """Clients may do other things than before: what was learned of their requests is forgotten."""
        self.generation += 1

    def went_offline(self, hosted: HostedPartition) -> None:
        self.generation += 1
        self.replication.left(hosted)
        self._tell(hosted, leads=False)

    def begun(self, hosted: HostedPartition) -> None:
        """The leader need not wait for earlier ones any more: coordinators may load."""
        hosted.begun()
        self.generation += 1
        for callback in self._on_leadership.get(hosted.topic, ()):
            callback(hosted, True)

    def cut_done(self, hosted: HostedPartition) -> None:
        """A helper thread has let go of the log: catch up with what the metadata has said meanwhile."""
        state = self.image.partition_by_id(hosted.topic_id, hosted.partition)
        if self.get_by_id(hosted.topic_id, hosted.partition) is not hosted:
            self._delete_log(hosted.log)
        elif state is not None:
            self._follow_leadership(hosted, state)

    # Metadata

    def apply(self, image: MetadataImage, changed: Iterable[uuid.UUID]) -> None:
        """Follow a new image; `changed` names the topics that differ."""
        self.image = image
        opening: list[tuple[TopicState, PartitionState]] = []
        for topic_id in changed:
            state = image.topics_by_id.get(topic_id)
            if state is None:
                self._remove_topic(topic_id)
            else:
                opening.extend(self._follow(state))
        if opening:
            self._opening.open(opening)

    def put_strays_away(self, image: MetadataImage) -> None:
        """Logs that were found on the disk and that no topic of the image owns: renamed, deleted later."""
        keep_ms = self.config.get("log.stray.keep.ms")
        for topic_partition, log in list(self.logs.logs.items()):
            state = image.partition_by_id(log.topic_id, topic_partition.partition)
            if state is None or self.broker_id not in state.replicas:
                _log.warning(
                    "%s (topic id %s) belongs to no topic; deleted in %d ms", topic_partition, log.topic_id, keep_ms
                )
                log.update_config(replace(log.config, file_delete_delay_ms=keep_ms))
                self._delete_log(log)

    def _follow(self, state: TopicState) -> list[tuple[TopicState, PartitionState]]:
        """Bring a topic's open partitions up to date; returns those that have to be opened."""
        hosted_topic = self.by_id.get(state.topic_id)
        opening: list[tuple[TopicState, PartitionState]] = []
        config: TopicConfig | None = None
        for partition in state.partitions:
            hosted = hosted_topic.partitions.get(partition.partition) if hosted_topic is not None else None
            mine = self.broker_id in partition.replicas
            if hosted is None:
                if mine and self._opening.begins(state.topic_id, partition.partition):
                    opening.append((state, partition))
                continue
            config = config or self.topic_config(state)
            try:
                if not mine:
                    self._remove(hosted)
                    continue
                if hosted.config is not config and hosted.config != config:
                    hosted.configure(config, self.clock.now_ms())
                self._follow_leadership(hosted, partition)
            except Exception as error:
                # The others' changes stand in the same image, and come only once.
                _log.exception("%s cannot follow its metadata", hosted.topic_partition)
                hosted.go_offline(f"a change of its metadata could not be followed: {error}")
        return opening

    def _follow_leadership(self, hosted: HostedPartition, state: PartitionState) -> None:
        now_ms = self.clock.monotonic_ms()
        if hosted.cutting:
            # `cut_done` comes back to this.
            return
        if state.leader != self.broker_id:
            if hosted.is_leader:
                hosted.stop_leading(state.leader_epoch)
                self.generation += 1
                self._tell(hosted, leads=False)
            # What was staged in this tick belongs to the leader epoch before: in the log, too, it comes first.
            self.write_now(hosted)
            if not hosted.offline:
                self.replication.followed(hosted, state)
            return
        if state.leader_epoch > hosted.leader_epoch:
            self.write_now(hosted)
        if hosted.offline:
            return
        if hosted.is_leader and hosted.leader_epoch == state.leader_epoch:
            hosted.isr_decided(state, now_ms)
            hosted.reconsider()
            return
        if state.leader_epoch <= hosted.leader_epoch:
            return
        self.replication.left(hosted)
        if state.leader_epoch < hosted.log.leader_epochs.latest:
            hosted.go_offline(
                f"its log knows leader epoch {hosted.log.leader_epochs.latest}, above {state.leader_epoch} in the "
                "metadata: the metadata was rolled back"
            )
            return
        was_leader = hosted.is_leader
        is_empty = hosted.log_end_offset == 0 and state.leader_epoch > 0
        hosted.log_was_lost = is_empty and state.leader_recovery_state == LeaderRecoveryState.RECOVERING
        recovering = (hosted.config.remote_storage_enable or (is_empty and hosted.topic in BACKED_UP)) and (
            state.leader_recovery_state == LeaderRecoveryState.RECOVERING
            # Where there are other replicas the controller knows: who lost data was taken out of the ISR.
            or (
                len(state.replicas) == 1
                and (self.must_recover or hosted.topic_partition in self.logs.not_found)
                and state.leader_epoch > 0
            )
        )
        if was_leader:
            self._tell(hosted, leads=False)
        start = self.replication.start_of(hosted, state)
        lag_ms, lease_ms = self.config.get("replica.lag.time.max.ms"), self.config.get("broker.lease.ms")
        hosted.lead(state, now_ms, lag_ms, recovering, start, lease_ms)
        hosted.reconsider()
        self.generation += 1
        self._tell(hosted, leads=True)
        self.replication.led(hosted, state)

    def _tell(self, hosted: HostedPartition, *, leads: bool) -> None:
        for leading, stopped in self._watchers:
            (leading if leads else stopped)(hosted)
        if not leads or hosted.start is None:
            for callback in self._on_leadership.get(hosted.topic, ()):
                callback(hosted, leads)

    # Opened and removed

    def log_opened(self, state: TopicState, partition: int, log: PartitionLog) -> None:
        """Take over an open log, unless the topic has gone meanwhile."""
        present = self.image.topics_by_id.get(state.topic_id)
        wanted = self.image.partition_by_id(state.topic_id, partition)
        if present is None or wanted is None or self.broker_id not in wanted.replicas:
            self._delete_log(log)
            return
        hosted = HostedPartition(
            self,
            self.broker_id,
            state.name,
            state.topic_id,
            partition,
            log,
            self.topic_config(present),
            self.logs.high_watermark_of(log.topic_partition),
        )
        topic = self.by_id.get(state.topic_id)
        if topic is None:
            topic = self.by_id[state.topic_id] = HostedTopic(state.name, state.topic_id)
            self.by_name[state.name] = topic
        topic.partitions[partition] = hosted
        hosted.write_refusal = self.directories.refusal_of(log)
        self.directories.opened(state.topic_id, partition)
        self.generation += 1
        self._follow_leadership(hosted, wanted)

    def _remove_topic(self, topic_id: uuid.UUID) -> None:
        topic = self.by_id.get(topic_id)
        if topic is None:
            return
        for hosted in list(topic.partitions.values()):
            self._remove(hosted)

    def _remove(self, hosted: HostedPartition) -> None:
        """The partition is no longer this broker's: close it, and delete its files later."""
        topic = self.by_id[hosted.topic_id]
        del topic.partitions[hosted.partition]
        if not topic.partitions:
            del self.by_id[hosted.topic_id]
            if self.by_name.get(hosted.topic) is topic:
                del self.by_name[hosted.topic]
        self.generation += 1
        if hosted.is_leader:
            hosted.stop_leading(hosted.leader_epoch)
            self._tell(hosted, leads=False)
        self.replication.left(hosted)
        self.write_now(hosted)
        hosted.wake()
        if not hosted.cutting:
            self._delete_log(hosted.log)

    def _delete_log(self, log: PartitionLog) -> None:
        if self.logs.logs.get(log.topic_partition) is not log:
            # A later topic of that name has its own there.
            return
        try:
            self.logs.delete(log.topic_partition)
        except OSError as error:
            _log.error("the log of %s cannot be deleted: %s", log.topic_partition, error)
