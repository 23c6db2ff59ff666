"""Incremental fetch sessions (KIP-227): a reader names its partitions once, from then on only what changed is told.

(session id 0, epoch 0) opens a session, epoch -1 ends or does without one, anything else continues. Epochs go from
2^31 - 1 on to 1. Where no place is left the answer names session 0, and the reader goes on without. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from appliance.base.errors import ErrorCode

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1

PartitionKey: TypeAlias = tuple[str | uuid.UUID, int]
"""Topic name (up to version 12) or topic id (from 13 on), and partition."""


@dataclass(slots=True)
class SessionPartition:
    """What a reader wants of one partition, and what it was told last."""

    key: PartitionKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    follower_log_start_offset: int = -1
    told_high_watermark: int = -1
    told_last_stable_offset: int = -1
    told_log_start_offset: int = -1

    def take(self, wanted: SessionPartition) -> None:
        """The reader asks for something else of this partition now."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.follower_log_start_offset = wanted.follower_log_start_offset

    def news(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bool:
        """Whether the reader has not been told these numbers yet; from now on it has."""
        told = (self.told_high_watermark, self.told_last_stable_offset, self.told_log_start_offset)
        now = (high_watermark, last_stable_offset, log_start_offset)
        self.told_high_watermark, self.told_last_stable_offset, self.told_log_start_offset = now
        return told != now


@dataclass(slots=True)
class FetchSession:
    """The partitions of one reader, in the order in which they are served."""

    session_id: int
    uses_topic_ids: bool
    epoch: int
    last_used_ms: int
    partitions: dict[PartitionKey, SessionPartition] = field(default_factory=dict)

    def update(self, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        for partition in wanted:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.take(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def served(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that brought records go behind the others, so that none starves."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


@dataclass(slots=True)
class FetchContext:
    """What one request is about, once its session is known."""

    partitions: list[SessionPartition]
    session: FetchSession | None = None
    """The session to be told of what is served; None: without one."""
    is_incremental: bool = False
    """Only partitions with records, errors or changed numbers are in the answer."""
    error: ErrorCode = ErrorCode.NONE
    """The whole request is refused."""

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION


class FetchSessions:
    """All sessions of a broker, bounded."""

    def __init__(self, max_sessions: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._max_sessions = max_sessions
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        """By id; the one that was used longest ago comes first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        wanted: list[SessionPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> FetchContext:
        """Find, open, continue or end the session that a request names."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = self._open(uses_topic_ids, wanted, now_ms) if epoch == INITIAL_EPOCH and wanted else None
            return FetchContext(wanted, session)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(wanted, forgotten)
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.last_used_ms = now_ms
        # Used now: behind all others in the order of eviction.
        del self._sessions[session_id]
        if not session.partitions:
            return FetchContext([])
        self._sessions[session_id] = session
        return FetchContext(list(session.partitions.values()), session, is_incremental=True)

    def _open(self, uses_topic_ids: bool, wanted: list[SessionPartition], now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._max_sessions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < self._eviction_ms:
                return None
            del self._sessions[oldest.session_id]
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids, INITIAL_EPOCH + 1, now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session
