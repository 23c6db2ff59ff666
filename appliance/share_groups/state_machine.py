"""The share coordinator of one partition of `__share_group_state` (KIP-932). Pure.

Each call names one partition of one group. Leaders read a state when they begin to lead, which fences the leaders
before them, and write what changes; group coordinators begin and end states. A new state epoch fences all leaders that
have read an older one. Every so many updates a snapshot is written instead, and so is one of a partition that has been
quiet, so that the log can be cut behind it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.base.errors import ErrorCode, invariant
from appliance.coordinator.calls import Answer, Call, Effect, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.share_groups.state_forms import answer_to, key_of, refuse
from appliance.share_groups.state_records import encode_record
from appliance.share_groups.state_stored import (
    Batch,
    PartitionState,
    SnapshotRecord,
    StateKey,
    StateRecord,
    StoredStates,
    UpdateRecord,
    combined,
)
from appliance.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from appliance.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from appliance.wire.messages.read_share_group_state import ReadShareGroupStateRequest, StateBatch
from appliance.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from appliance.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from appliance.wire.schema import Struct

COLD_SNAPSHOTS_MAX = 1_000
"""Quiet partitions that get a snapshot at once."""
_TIDY = ("tidy",)


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Values of the broker's configuration, with Kafka's defaults."""

    updates_per_snapshot: int = 500
    """`share.coordinator.snapshot.update.records.per.snapshot`"""
    prune_interval_ms: int = 300_000
    """`share.coordinator.state.topic.prune.interval.ms`"""
    cold_interval_ms: int = 300_000
    """`share.coordinator.cold.partition.snapshot.interval.ms`"""


def share_coordinator_config(get: Callable[[str], Any]) -> ShareCoordinatorConfig:
    """From the broker's configuration; `get` returns the typed value of a key."""
    return ShareCoordinatorConfig(
        get("share.coordinator.snapshot.update.records.per.snapshot"),
        get("share.coordinator.state.topic.prune.interval.ms"),
        get("share.coordinator.cold.partition.snapshot.interval.ms"),
    )


@dataclass(frozen=True, slots=True)
class TidyDue:
    """Look for what the log can do without."""


class ShareStateMachine:
    """Decides for `appliance.coordinator.shard.CoordinatorShard`."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        stored: StoredStates,
        topics_by_id: Callable[[], Mapping[uuid.UUID, Any]],
    ) -> None:
        self.stored = stored
        self.cut_at = 0
        """The log may be cut there; whoever owns the machine does it."""
        self._config = config
        self._topics_by_id = topics_by_id
        self._deadlines: Deadlines[tuple[str, ...], TidyDue] = Deadlines()

    @property
    def deadlines(self) -> Deadlines[tuple[str, ...], TidyDue]:
        return self._deadlines

    def loaded(self, now: Moment) -> list[Effect[StateRecord]]:
        """The stored state is complete."""
        self._tidy_later(now)
        return []

    def _tidy_later(self, now: Moment) -> None:
        self._deadlines.set(_TIDY, now.monotonic_ms + self._config.prune_interval_ms, TidyDue())

    def handle(self, call: Call, now: Moment) -> list[Effect[StateRecord]]:
        """Decide a request that names one partition of one group."""
        request: Any = call.request
        key = key_of(request)
        wanted = request.topics[0].partitions[0]
        if not request.group_id or key.partition < 0:
            return [Answer(call, refuse(call, ErrorCode.INVALID_REQUEST))]
        state = self.stored.states.get(key)
        lacks_state = isinstance(request, ReadShareGroupStateRequest | WriteShareGroupStateRequest) and state is None
        if not (lacks_state or isinstance(request, DeleteShareGroupStateRequest) or self._exists(key)):
            return [Answer(call, refuse(call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))]
        match request:
            case InitializeShareGroupStateRequest():
                return self._initialize(call, key, state, wanted, now)
            case ReadShareGroupStateRequest():
                return self._read(call, key, state, wanted, now)
            case WriteShareGroupStateRequest():
                return self._write(call, key, state, wanted, now)
            case DeleteShareGroupStateRequest():
                answer = Answer(call, answer_to(request, key))
                if state is None:
                    return [answer]
                return [Write(key.text(), (SnapshotRecord(key, None),), (answer,))]
            case ReadShareGroupStateSummaryRequest():
                return [self._summary(call, key, state, wanted)]
        invariant(False, f"{type(request).__name__} is no request to a share coordinator")
        return []

    def _exists(self, key: StateKey) -> bool:
        topic = self._topics_by_id().get(key.topic_id)
        return topic is not None and key.partition < len(topic.partitions)

    def _initialize(
        self, call: Call, key: StateKey, state: PartitionState | None, wanted: Any, now: Moment
    ) -> list[Effect[StateRecord]]:
        if state is not None and -1 < wanted.state_epoch < state.state_epoch:
            return [Answer(call, refuse(call, ErrorCode.FENCED_STATE_EPOCH))]
        begun = PartitionState(
            max(wanted.state_epoch, 0),
            wanted.start_offset,
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            delivery_complete_count=-1 if wanted.start_offset < 0 else 0,
            leader_epoch=-1 if state is None else state.leader_epoch,
            created_ms=now.wall_ms,
            written_ms=now.wall_ms,
        )
        return [Write(key.text(), (SnapshotRecord(key, begun),), (Answer(call, answer_to(call.request, key)),))]

    def _read(
        self, call: Call, key: StateKey, state: PartitionState | None, wanted: Any, now: Moment
    ) -> list[Effect[StateRecord]]:
        if state is None:
            text = "Read operation on uninitialized share partition not allowed."
            return [Answer(call, refuse(call, ErrorCode.INVALID_REQUEST, text))]
        if wanted.leader_epoch < state.leader_epoch:
            return [Answer(call, refuse(call, ErrorCode.FENCED_LEADER_EPOCH))]
        answer = Answer(
            call,
            answer_to(
                call.request,
                key,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                state_batches=[
                    StateBatch(first_offset=first, last_offset=last, delivery_state=each, delivery_count=count)
                    for first, last, each, count in state.batches
                ],
            ),
        )
        if wanted.leader_epoch == state.leader_epoch:
            return [answer]
        # Whoever led before may not write any more.
        complete = state.delivery_complete_count
        record = UpdateRecord(key, state.snapshot_epoch, wanted.leader_epoch, -1, complete, ())
        return [Write(key.text(), (self._compact(record, state, now),), (answer,))]

    def _write(
        self, call: Call, key: StateKey, state: PartitionState | None, wanted: Any, now: Moment
    ) -> list[Effect[StateRecord]]:
        if state is None:
            text = "Write operation on uninitialized share partition not allowed."
            return [Answer(call, refuse(call, ErrorCode.INVALID_REQUEST, text))]
        if wanted.leader_epoch < state.leader_epoch:
            return [Answer(call, refuse(call, ErrorCode.FENCED_LEADER_EPOCH))]
        if wanted.state_epoch < state.state_epoch:
            return [Answer(call, refuse(call, ErrorCode.FENCED_STATE_EPOCH))]
        batches = tuple(
            Batch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in wanted.state_batches
        )
        record = UpdateRecord(
            key,
            state.snapshot_epoch,
            wanted.leader_epoch,
            wanted.start_offset,
            wanted.delivery_complete_count,
            batches,
        )
        answer = Answer(call, answer_to(call.request, key))
        return [Write(key.text(), (self._compact(record, state, now),), (answer,))]

    def _compact(self, record: UpdateRecord, state: PartitionState, now: Moment) -> StateRecord:
        """A snapshot in place of the update if there have been enough of those."""
        if self.stored.updates.get(record.key, 0) + 1 < self._config.updates_per_snapshot:
            return record
        start_offset = state.start_offset if record.start_offset < 0 else record.start_offset
        return SnapshotRecord(
            record.key,
            replace(
                state,
                snapshot_epoch=state.snapshot_epoch + 1,
                leader_epoch=record.leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=record.delivery_complete_count,
                batches=combined(state.batches, record.batches, start_offset),
                written_ms=now.wall_ms,
            ),
        )

    @staticmethod
    def _summary(call: Call, key: StateKey, state: PartitionState | None, wanted: Any) -> Answer:
        if state is None:
            return Answer(call, answer_to(call.request, key, start_offset=-1, leader_epoch=0, state_epoch=0))
        return Answer(
            call,
            answer_to(
                call.request,
                key,
                start_offset=state.start_offset,
                leader_epoch=max(state.leader_epoch, 0),
                state_epoch=state.state_epoch,
                delivery_complete_count=state.delivery_complete_count,
            ),
        )

    def due(self, event: TidyDue, now: Moment) -> list[Effect[StateRecord]]:
        """Let the log be cut before the oldest snapshot, and move those that have been standing for long."""
        self._tidy_later(now)
        stored = self.stored
        self.cut_at = stored.needed_from
        writes: list[Effect[StateRecord]] = []
        for key, state in stored.states.items():
            if len(writes) >= COLD_SNAPSHOTS_MAX:
                break
            if now.wall_ms - state.written_ms < self._config.cold_interval_ms:
                continue
            moved = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now.wall_ms)
            writes.append(Write(key.text(), (SnapshotRecord(key, moved),), only_alone=True))
        return writes

    def replay(self, record: StateRecord) -> None:
        """Take over a committed record."""
        self.stored.replay(record)

    def written(self, write: Write[StateRecord], now: Moment) -> list[Effect[StateRecord]]:
        """No write goes on."""
        return []

    def not_written(self, write: Write[StateRecord], error: ErrorCode, now: Moment) -> list[Effect[StateRecord]]:
        """No write goes on."""
        return []

    def unload(self) -> list[Effect[StateRecord]]:
        """Nobody waits here."""
        return []

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""
        return refuse(call, error)

    def encode(self, record: StateRecord) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""
        return encode_record(record)
