"""A follower's fetch session at its leader: what it follows, and what there is to tell it (KIP-227). Pure.

A follower names a partition when its position changes; a partition that it does not name is where it was. So a fetch
costs what it names and what has changed, not what it follows. The session also remembers when the answer left that the
newest fetch names: since then the follower has no reason to think that the leader is gone (B8).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH

_EPOCH_MAX = 2**31 - 1

ReplicaKey: TypeAlias = tuple[uuid.UUID, int]


class Followed:
    """One partition in a session."""

    __slots__ = (
        "awaited",
        "current_leader_epoch",
        "fetch_offset",
        "hosted",
        "key",
        "last_fetched_epoch",
        "matched",
        "max_bytes",
        "session",
        "told_high_watermark",
        "told_log_start_offset",
        "told_tiered_end",
        "warmed_offset",
    )

    def __init__(self, session: ReplicaSession, key: ReplicaKey) -> None:
        self.session = session
        self.key = key
        self.hosted: Any = None
        """The partition, while it tells this session of its changes."""
        self.fetch_offset = -1
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.max_bytes = 0
        self.matched = False
        """The follower's history was found to be a part of the leader's, in this leader epoch."""
        self.awaited = False
        """It was sent something that changes its position: it has to name that before it is sent more."""
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.told_tiered_end = -1
        self.warmed_offset = -1
        """What stands from there on was read from the disk for it."""

    def is_healthy(self, leader_epoch: int, since_ms: int) -> bool:
        """Whether the follower has fetched here in this epoch, on an answer that left after `since_ms` (B8)."""
        return self.matched and self.current_leader_epoch == leader_epoch and self.session.healthy_since_ms > since_ms

    def changed(self) -> None:
        """The partition has more, or is led no more."""
        session = self.session
        session.ready[self] = None
        if session.on_ready is not None:
            session.on_ready()

    def has_news(self) -> None:
        """Only numbers have changed: told with what comes next, unless the follower has readers that wait for them."""
        session = self.session
        session.ready[self] = None
        if session.tells_news and session.on_ready is not None:
            session.on_ready()


@dataclass(slots=True, eq=False)
class ReplicaSession:
    """All partitions that one connection of a follower fetches."""

    session_id: int
    replica_id: int
    broker_epoch: int
    epoch: int = 1
    """What the next fetch has to name."""
    partitions: dict[ReplicaKey, Followed] = field(default_factory=dict)
    ready: dict[Followed, None] = field(default_factory=dict)
    """Those that may have something to tell, the longest waiting first."""
    news: dict[Followed, None] = field(default_factory=dict)
    """Those that have no records, but numbers that the follower does not know; told with the next answer."""
    on_ready: Callable[[], None] | None = None
    """Called when a partition has changed while a fetch waits."""
    tells_news: bool = False
    """Whether a higher high watermark is told at once."""
    end_wait: Callable[[], None] | None = None
    """Answers the fetch that waits."""
    answer_left_ms: int = -1
    healthy_since_ms: int = -1
    """When the answer left that the newest fetch names; -1 before the second fetch."""

    def follow(self, key: ReplicaKey) -> Followed:
        """The partition, taken into the session if it is new."""
        followed = self.partitions.get(key)
        if followed is None:
            followed = self.partitions[key] = Followed(self, key)
        self.ready[followed] = None
        return followed

    def forget(self, key: ReplicaKey) -> Followed | None:
        followed = self.partitions.pop(key, None)
        if followed is not None:
            self.ready.pop(followed, None)
            self.news.pop(followed, None)
        return followed

    def fetched(self) -> None:
        """A fetch came that names the session's epoch.

        So the answer before it has arrived; unless it was sent behind a fetch that still waits, which is answered now.
        """
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1
        if self.end_wait is None:
            self.healthy_since_ms = self.answer_left_ms
        else:
            self.end_wait()

    def answered(self, now_ms: int) -> None:
        """An answer leaves."""
        self.answer_left_ms = now_ms


class ReplicaSessions:
    """The sessions of all followers, bounded: the one that was used longest ago goes first."""

    def __init__(self, max_sessions: int, new_id: Callable[[], int]) -> None:
        self._max_sessions = max_sessions
        self._new_id = new_id
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(
        self, session_id: int, epoch: int, replica_id: int, broker_epoch: int
    ) -> tuple[ReplicaSession | ErrorCode, list[ReplicaSession]]:
        """The session that a fetch names or begins, or why there is none; and those that have ended."""
        ended: list[ReplicaSession] = []
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            before = self._sessions.get(session_id)
            if before is not None and before.replica_id == replica_id:
                ended.append(self._sessions.pop(session_id))
            # A process that has gone does not end its sessions.
            for old in [one for one in self._sessions.values() if _outlived(one, replica_id, broker_epoch)]:
                ended.append(self._sessions.pop(old.session_id))
            while len(self._sessions) >= self._max_sessions:
                ended.append(self._sessions.pop(next(iter(self._sessions))))
            session = ReplicaSession(self._unused_id(), replica_id, broker_epoch)
            self._sessions[session.session_id] = session
            return session, ended
        found = self._sessions.get(session_id)
        if found is None or found.replica_id != replica_id or found.broker_epoch != broker_epoch:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ended
        if found.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, ended
        found.fetched()
        del self._sessions[session_id]
        self._sessions[session_id] = found
        return found, ended

    def _unused_id(self) -> int:
        session_id = self._new_id()
        while not session_id or session_id in self._sessions:
            session_id = self._new_id()
        return session_id


def _outlived(session: ReplicaSession, replica_id: int, broker_epoch: int) -> bool:
    return session.replica_id == replica_id and session.broker_epoch < broker_epoch
