"""What members of share groups have of the partitions that this broker leads, and their sessions here.

Thin: `share_groups.share_partition` decides. Here each partition of each group gets its state from the share
coordinator and its changes to it, timers for its locks, and those who wait for it. All methods are called on the loop's
thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

from appliance.base.config_definitions_resources import BY_DURATION
from appliance.base.config_resources import GROUP
from appliance.base.durations import duration_ms
from appliance.base.errors import ErrorCode
from appliance.partition.purgatory import Waiter
from appliance.share_groups.config import PartitionLimits, ShareGroupConfig
from appliance.share_groups.runs import Operation, Said
from appliance.share_groups.sessions import ShareSession, ShareSessions
from appliance.share_groups.share_partition import SharePartition, StateWrite
from appliance.share_groups.state_stored import Batch
from appliance.wire.messages import read_share_group_state, write_share_group_state

_log = logging.getLogger(__name__)

SWEEP_MS = 250
"""How often sessions are looked through for connections that have ended."""
LOAD_RETRY_MS = 500
WRITE_RETRY_MS = 1_000
"""How long what we have changed by ourselves waits after a write that failed."""
_FENCED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""With these the share coordinator says that our state is not the group's any more."""
_TOLD = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Key = tuple[str, uuid.UUID, int]
"""Group, topic id, partition."""


class LedSharePartition:
    """One partition of one group, from its first use here until it is dropped."""

    def __init__(self, owner: LedSharePartitions, key: Key, hosted: Any) -> None:
        self.key = key
        self.hosted = hosted
        self.leader_epoch = hosted.leader_epoch
        self.machine: SharePartition | None = None
        """None while its state is being read."""
        self.is_reading = False
        """A helper thread reads for somebody: everybody else waits."""
        self.error = ErrorCode.NONE
        """Why it cannot be loaded, for whoever asks next."""
        self.waiters: dict[Waiter, None] = {}
        """Woken when something may have become free."""
        self._owner = owner
        self._state_epoch = 0
        self._timer: Any = None
        self._retrying = False
        self.ended = False

    def __repr__(self) -> str:
        return f"{self.hosted.topic}-{self.key[2]} of share group {self.key[0]} in leader epoch {self.leader_epoch}"

    @property
    def limits(self) -> PartitionLimits:
        return self._owner.limits_of(self.key[0])

    # Loading

    def load(self) -> None:
        group_id, topic_id, partition = self.key
        request = read_share_group_state.ReadShareGroupStateRequest(
            group_id=group_id,
            topics=[
                read_share_group_state.ReadStateData(
                    topic_id=topic_id,
                    partitions=[
                        read_share_group_state.PartitionData(partition=partition, leader_epoch=self.leader_epoch)
                    ],
                )
            ],
        )
        self._owner.persister.ask(request, self._read)

    def _read(self, result: Any) -> None:
        if self.ended:
            return
        if result.error_code:
            error = ErrorCode(result.error_code)
            _log.info("%r cannot be read: %s %s", self, error.name, result.error_message or "")
            self._owner.drop(self, _TOLD.get(error, error))
            return
        self._state_epoch = result.state_epoch
        if result.start_offset < 0:
            self._owner.find_start(self, self._begin_at)
            return
        batches = [
            Batch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ]
        self._begin(SharePartition.loaded(self.limits, result.start_offset, batches))

    def _begin_at(self, offset: int) -> None:
        if not self.ended:
            self._begin(SharePartition(self.limits, offset))

    def _begin(self, machine: SharePartition) -> None:
        self.machine = machine
        self.fit_to_log()
        self.pump()
        self.wake()

    def fit_to_log(self) -> None:
        """The log may have lost records at either end."""
        machine = self.machine
        if machine is not None:
            machine.log_ends_at(self.hosted.log_end_offset)
            machine.log_begins_at(self.hosted.log_start_offset)

    # What members say

    def acknowledge(self, member_id: str, said: list[Said], done: Callable[[ErrorCode], None]) -> None:
        """`done` is called once, when the share coordinator has it, or when it cannot be."""
        machine = self.machine
        if machine is None:
            done(ErrorCode.INVALID_RECORD_STATE)
            return
        machine.limits = self.limits
        operation = machine.acknowledge(member_id, said, self._owner.now_ms())
        if isinstance(operation, Operation):
            operation.done = done
            self.pump()
            self.arm()
        else:
            done(operation)

    def release(self, member_id: str) -> None:
        """The member is gone."""
        if self.machine is not None and self.machine.release(member_id):
            self.pump()
            self.wake()

    # The share coordinator

    def pump(self) -> None:
        """Write what there is, one write after the other."""
        write = None if self.machine is None or self._retrying else self.machine.take_write()
        if write is not None:
            self._owner.persister.ask(self._request(write), self._written)

    def _request(self, write: StateWrite) -> write_share_group_state.WriteShareGroupStateRequest:
        group_id, topic_id, partition = self.key
        return write_share_group_state.WriteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                write_share_group_state.WriteStateData(
                    topic_id=topic_id,
                    partitions=[
                        write_share_group_state.PartitionData(
                            partition=partition,
                            state_epoch=self._state_epoch,
                            leader_epoch=self.leader_epoch,
                            start_offset=write.start_offset,
                            delivery_complete_count=write.delivery_complete_count,
                            state_batches=[
                                write_share_group_state.StateBatch(
                                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                                )
                                for first, last, state, count in write.batches
                            ],
                        )
                    ],
                )
            ],
        )

    def _written(self, result: Any) -> None:
        machine = self.machine
        if self.ended or machine is None:
            return
        error = ErrorCode(result.error_code)
        told = _TOLD.get(error, error)
        for operation, _ in machine.written(error):
            if operation.done is not None:
                operation.done(told)
        if error in _FENCED:
            _log.info("%r is not the group's any more: %s %s", self, error.name, result.error_message or "")
            self._owner.drop(self, told)
            return
        if error is not ErrorCode.NONE:
            self._retrying = True
            self._owner.background.schedule(WRITE_RETRY_MS, self._retry)
        self.pump()
        self.arm()
        self.wake()
        self._owner.let_go_if_idle(self)

    def _retry(self) -> None:
        self._retrying = False
        if not self.ended:
            self.pump()

    # Time

    def arm(self) -> None:
        """Look at locks when the first one is over. Locks that are made later end later, so one timer will do."""
        if self._timer is None and self.machine is not None and not self.ended:
            due_ms = self.machine.next_due_ms
            if due_ms is not None:
                self._timer = self._owner.background.schedule(max(1, due_ms - self._owner.now_ms()), self._due)

    def _due(self) -> None:
        self._timer = None
        if self.machine is not None and not self.ended and self.machine.locks_over(self._owner.now_ms()):
            self.pump()
            self.wake()
        self.arm()

    def wake(self) -> None:
        """Let those who wait look again."""
        for waiter in list(self.waiters):
            waiter.woken(self)

    def end(self, error: ErrorCode) -> None:
        """Serve no more."""
        if self.ended:
            return
        self.ended = True
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if self.machine is not None:
            for operation, told in self.machine.end(error):
                if operation.done is not None:
                    operation.done(told)
        self.wake()


class LedSharePartitions:
    """All of them on this broker."""

    def __init__(self, broker: Any, config: ShareGroupConfig, persister: Any) -> None:
        self._broker = broker
        self._config = config
        self.persister = persister
        self.background = broker.background
        self.sessions = ShareSessions(config.max_sessions)
        self._led: dict[Key, LedSharePartition] = {}
        self._leaving: set[str] = set()
        """Groups of which nobody has a session here any more."""
        self._sweeping = False
        self._closed = False

    def start(self) -> None:
        """Follow leaderships from now on."""
        self._broker.partitions.watch(self._changed, self._changed)

    def close(self) -> None:
        self._closed = True
        for led in list(self._led.values()):
            self.drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def now_ms(self) -> int:
        """On the monotonic clock."""
        return int(self._broker.clock.monotonic_ms())

    def entries(self, group_id: str) -> Any:
        return self._broker.image.resource_configs.get((GROUP, group_id), {})

    def limits_of(self, group_id: str) -> PartitionLimits:
        return self._config.partition_limits_of(self.entries(group_id))

    def get(self, group_id: str, topic_id: uuid.UUID, partition: int) -> LedSharePartition | ErrorCode:
        """The partition as the group has it; its state may still have to be read. Or why this is not the place."""
        hosted = self._broker.partitions.get_by_id(topic_id, partition)
        if hosted is None:
            state = self._broker.image.topics_by_id.get(topic_id)
            if state is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            if not 0 <= partition < len(state.partitions):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode(self._broker.partitions.absence_of(topic_id, partition))
        refusal = hosted.refusal()
        if refusal is not ErrorCode.NONE:
            return ErrorCode(refusal)
        key = (group_id, topic_id, partition)
        led = self._led.get(key)
        if led is not None and (led.hosted is not hosted or led.leader_epoch != hosted.leader_epoch):
            self.drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            led = None
        if led is None:
            led = self._led[key] = LedSharePartition(self, key, hosted)
            led.load()
            if led.ended:
                return led.error
        return led

    def known(self, group_id: str, topic_id: uuid.UUID, partition: int) -> LedSharePartition | None:
        """The same if somebody has asked for it before, in this leadership."""
        led = self._led.get((group_id, topic_id, partition))
        return None if led is None or led.leader_epoch != led.hosted.leader_epoch else led

    def drop(self, led: LedSharePartition, error: ErrorCode) -> None:
        """Forget what members have; whoever comes next begins with what the share coordinator has."""
        if self._led.get(led.key) is led:
            del self._led[led.key]
        led.end(error)

    def _changed(self, hosted: Any) -> None:
        for led in [each for each in self._led.values() if each.hosted is hosted]:
            self.drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Where a group begins

    def find_start(self, led: LedSharePartition, done: Callable[[int], None]) -> None:
        """Where `share.auto.offset.reset` says that a group begins that has never read the partition."""
        hosted = led.hosted
        reset = self.entries(led.key[0]).get("share.auto.offset.reset", "latest").lower()
        if reset == "earliest":
            done(hosted.log_start_offset)
        elif reset.startswith(BY_DURATION):
            since_ms = self._broker.clock.now_ms() - (duration_ms(reset.removeprefix(BY_DURATION)) or 0)
            self._find_since(hosted, max(0, since_ms), done)
        else:
            done(hosted.high_watermark)

    def _find_since(self, hosted: Any, timestamp: int, done: Callable[[int], None]) -> None:
        segments, end = list(hosted.log.segments), int(hosted.high_watermark)
        for segment in segments:
            segment.retain()

        def look() -> int:
            if hosted.log_start_offset < hosted.log.local_log_start_offset:
                remote = self._broker.remote.offset_for_timestamp(hosted.topic_id, hosted.partition, timestamp)
                if remote is not None and hosted.log_start_offset <= remote.offset < end:
                    return int(remote.offset)
            found = hosted.log.offset_for_timestamp(timestamp, end)
            return end if found is None else max(int(found.offset), int(hosted.log_start_offset))

        def came(result: int | Exception) -> None:
            for segment in segments:
                segment.release()
            if isinstance(result, Exception):
                _log.warning("the offset of a time in %s-%d: %s", hosted.topic, hosted.partition, result)
            done(end if isinstance(result, Exception) else result)

        self.background.run(look, came)

    # Sessions

    def open_session(self, group_id: str, member_id: str, owner: Any) -> ShareSession | ErrorCode:
        """Begin a session; an earlier one of the member is over."""
        before = self.sessions.find(group_id, member_id)
        if before is not None:
            self.end_session(before)
        session = self.sessions.open(group_id, member_id, owner)
        if isinstance(session, ShareSession):
            self._leaving.discard(group_id)
            self._sweep_later()
        return session

    def end_session(self, session: ShareSession) -> None:
        """What the member has here is for others; after the last one of a group nothing of it is kept in memory."""
        group_id, member_id = session.key
        is_last = self.sessions.end(session)
        if is_last:
            self._leaving.add(group_id)
        for led in [each for each in self._led.values() if each.key[0] == group_id]:
            led.release(member_id)
            if is_last:
                self.let_go_if_idle(led)

    def let_go_if_idle(self, led: LedSharePartition) -> None:
        """Its group has left, and the share coordinator knows everything."""
        if led.key[0] in self._leaving and (led.machine is None or led.machine.is_idle) and not led.waiters:
            self.drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _sweep_later(self) -> None:
        if not self._sweeping and not self._closed:
            self._sweeping = True
            self.background.schedule(SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for session in self.sessions.all():
            if getattr(session.owner, "closed", False):
                self.end_session(session)
        if len(self.sessions):
            self._sweep_later()
