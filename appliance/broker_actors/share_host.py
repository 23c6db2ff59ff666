"""Share groups on this broker: the share coordinators of the partitions of `__share_group_state` that it leads, the way
to those of others, and what members have of the partitions that it leads.

Thin: the deciding is in `appliance.share_groups`. All methods are called on the loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.broker_actors.partition_coordinator import InternalPartition, PartitionCoordinator, SendAnswer
from appliance.broker_actors.share_offsets import ShareOffsets
from appliance.broker_actors.share_partitions import LedSharePartitions
from appliance.broker_actors.share_persister import SharePersister
from appliance.coordinator.calls import Call, Effect
from appliance.coordinator.loader import LoadSummary
from appliance.coordinator.moment import Moment
from appliance.coordinator.partitioner import partition_for
from appliance.coordinator.shard import Batch, CoordinatorShard, ShardLimits
from appliance.records.batch import parse_header
from appliance.records.reader import read_records
from appliance.server.handlers.find_coordinator import SHARE_STATE_TOPIC
from appliance.share_groups.config import share_group_config
from appliance.share_groups.state_forms import key_of, refuse
from appliance.share_groups.state_machine import ShareStateMachine, share_coordinator_config
from appliance.share_groups.state_records import decode_record
from appliance.share_groups.state_stored import StateRecord, StoredStates
from appliance.wire.schema import Struct, WireError

_log = logging.getLogger(__name__)


class ShareHost:
    """`broker.shares`."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.background = broker.background
        self.config = share_group_config(broker.config.get)
        self.coordinator_config = share_coordinator_config(broker.config.get)
        self.persister = SharePersister(broker, self.submit, self.create_topic)
        self.partitions = LedSharePartitions(broker, self.config, self.persister)
        self.offsets = ShareOffsets(broker, self.persister)
        self._coordinators: dict[int, ShareCoordinator] = {}

    def start(self) -> None:
        """Follow leaderships from now on."""
        self._broker.partitions.on_leadership(SHARE_STATE_TOPIC, self._leadership)
        self.partitions.start()

    def close(self) -> None:
        """Send everybody who waits to another broker."""
        self.partitions.close()
        for coordinator in self._coordinators.values():
            coordinator.end()
        self._coordinators.clear()
        self.persister.close()
        self.offsets.close()

    def moment(self) -> Moment:
        """The time on both clocks."""
        clock = self._broker.clock
        return Moment(clock.now_ms(), clock.monotonic_ms())

    def topics_by_id(self) -> Any:
        """Topics as this broker knows them."""
        return self._broker.image.topics_by_id

    def limits_of(self, hosted: InternalPartition) -> ShardLimits:
        """Bounds of the coordinator of this partition."""
        config = self._broker.config
        return ShardLimits(
            batch_max_bytes=hosted.config.max_message_bytes,
            codec=config.get("share.coordinator.state.topic.compression.codec"),
            write_timeout_ms=config.get("share.coordinator.write.timeout.ms"),
        )

    def submit(self, call: Call, answer: SendAnswer) -> None:
        """Let the coordinator of the one partition that a call names decide; `answer` is called once."""
        key = key_of(call.request).text()
        topic = self._broker.image.topics.get(SHARE_STATE_TOPIC)
        number = partition_for(key, len(topic.partitions)) if topic is not None and topic.partitions else -1
        coordinator = self._coordinators.get(number)
        if coordinator is None:
            answer(refuse(call, ErrorCode.NOT_COORDINATOR))
        else:
            coordinator.submit(call, answer, key)

    def create_topic(self, done: Callable[[], None]) -> None:
        """Have `__share_group_state` created; `done` is called when it is there, or could not be created."""

        def created(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _log.warning("%s could not be created: %s", SHARE_STATE_TOPIC, error.name)
            done()

        self._broker.create_internal_topic(SHARE_STATE_TOPIC, created)

    def _leadership(self, hosted: InternalPartition, leads: bool) -> None:
        before = self._coordinators.pop(hosted.partition, None)
        if before is not None:
            before.end()
        if leads:
            coordinator = self._coordinators[hosted.partition] = ShareCoordinator(self, hosted)
            coordinator.load()


class ShareCoordinator(PartitionCoordinator[ShareStateMachine, StateRecord, StoredStates]):
    """The states of one partition of `__share_group_state`."""

    def __init__(self, host: ShareHost, hosted: Any) -> None:
        super().__init__(host, hosted)
        self._shares = host
        self._partition = hosted
        self._cut_at = 0

    def _read(self) -> tuple[StoredStates, LoadSummary]:
        """As all coordinators, but each record's place counts: what lies before the snapshots may be cut."""
        stored, summary = StoredStates(), LoadSummary()
        for batch in self._hosted.read_committed_batches():
            summary.batches += 1
            stored.position = parse_header(batch).next_offset
            for raw in read_records(batch):
                summary.records += 1
                stored.position = raw.offset
                try:
                    record = None if raw.key is None else decode_record(raw.key, raw.value)
                except WireError as error:
                    _log.warning("record at offset %d cannot be read and is left out: %s", raw.offset, error)
                    record = None
                if record is None:
                    summary.skipped += 1
                    stored.position = raw.offset + 1
                else:
                    stored.replay(record)
        return stored, summary

    def _begin(self, stored: StoredStates) -> ShareStateMachine:
        host = self._shares
        return ShareStateMachine(host.coordinator_config, stored, host.topics_by_id)

    def _refuse(self, call: Call, error: ErrorCode) -> Struct:
        return refuse(call, error)

    def _first_effects(self, machine: ShareStateMachine, now: Moment) -> list[Effect[StateRecord]]:
        return machine.loaded(now)

    def _append(self, shard: CoordinatorShard[StateRecord], batch: Batch[StateRecord]) -> None:
        def on_committed(error: ErrorCode, base_offset: int) -> None:
            if shard is not self._shard:
                return
            if self._machine is not None and error is ErrorCode.NONE:
                self._machine.stored.position = base_offset
            self._do(lambda shard, now: shard.batch_done(batch, error, now))

        self._hosted.append_records(batch.payload, on_committed)

    def _after_step(self, machine: ShareStateMachine) -> None:
        if machine.cut_at > self._cut_at:
            self._cut_at = machine.cut_at
            if self._partition.log_start_offset < machine.cut_at <= self._partition.high_watermark:
                self._partition.raise_log_start(machine.cut_at)
