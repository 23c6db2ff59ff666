"""Incremental fetch sessions (KIP-227): a reader names its partitions once, from then on only what changed is told.

(session id 0, epoch 0) asks for a session, epoch -1 ends or does without one, anything else continues. Epochs go from
2^31 - 1 on to 1. Where no place is left the answer names session 0, and the reader goes on without. Pure.

A session keeps a list of the partitions that may have something to tell (`changed`). Appends, high watermarks, log
starts and leaderships feed it: the session stands among the waiters of its partitions. A read that finds nothing takes
its partition off the list, so that thousands of idle ones cost nothing. Who brought records goes behind the others.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Protocol, TypeAlias

from appliance.base.errors import ErrorCode
from appliance.partition.purgatory import Waiter

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1

PartitionKey: TypeAlias = tuple[str | uuid.UUID, int]
"""Topic name (up to version 12) or topic id (from 13 on), and partition."""
_EvictableKey: TypeAlias = tuple[bool, int, int]
"""Of a follower, number of partitions, session id: the smallest is worth the least."""


class Watched(Protocol):
    """A partition, as far as those care who wait for it."""

    waiters: dict[Waiter, None]


class SessionReader(Protocol):
    """The fetch that waits with a session."""

    def changed(self, partition: SessionPartition) -> None:
        """There may be more of this partition now."""

    def superseded(self) -> None:
        """Another request has gone on with the session."""


class SessionPartition:
    """What a reader wants of one partition, and what it was told last."""

    __slots__ = (
        "_watched",
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start_offset",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "session",
        "told_high_watermark",
        "told_log_start_offset",
        "turn",
    )

    def __init__(
        self,
        key: PartitionKey,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        follower_log_start_offset: int = -1,
    ) -> None:
        self.key = key
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.follower_log_start_offset = follower_log_start_offset
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.turn = 0
        """Its place in the order of service; who brought records gets a new one, behind all others."""
        self.session: FetchSession | None = None
        self._watched: Watched | None = None

    def take(self, wanted: SessionPartition) -> None:
        """The reader asks for something else of this partition now."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.follower_log_start_offset = wanted.follower_log_start_offset

    def news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the reader has not been told these numbers yet; from now on it has."""
        if high_watermark == self.told_high_watermark and log_start_offset == self.told_log_start_offset:
            return False
        self.told_high_watermark, self.told_log_start_offset = high_watermark, log_start_offset
        return True

    def woken(self, partition: object) -> None:
        """The partition has more to read, or has changed otherwise."""
        session = self.session
        if session is not None:
            session.changed[self] = None
            if session.reader is not None:
                session.reader.changed(self)

    def watch(self, partition: Watched | None) -> None:
        """Wait with this partition from now on, and no longer with another one of the same name before it."""
        watched = self._watched
        if watched is partition:
            return
        if watched is not None:
            watched.waiters.pop(self, None)
        self._watched = partition
        if partition is not None:
            partition.waiters[self] = None


class FetchSession:
    """The partitions of one reader. One that is not in the cache of sessions serves a single request."""

    __slots__ = (
        "_turns",
        "changed",
        "created_ms",
        "epoch",
        "evictable",
        "has_ended",
        "is_privileged",
        "is_watching",
        "last_used_ms",
        "partitions",
        "reader",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(self, uses_topic_ids: bool, is_privileged: bool, wanted: Iterable[SessionPartition]) -> None:
        self.session_id = NO_SESSION
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        """A follower's; it may take the place of a consumer's."""
        self.epoch = INITIAL_EPOCH + 1
        """Of the next request."""
        self.created_ms = 0
        self.last_used_ms = 0
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.changed: dict[SessionPartition, None] = {}
        """Those that may have something to tell."""
        self.reader: SessionReader | None = None
        self.is_watching = False
        """Whether its partitions tell it of changes."""
        self.has_ended = False
        self.evictable: _EvictableKey | None = None
        self._turns = 0
        self.update(wanted, ())

    def update(self, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        partitions = self.partitions
        for partition in wanted:
            known = partitions.get(partition.key)
            if known is None:
                known = partitions[partition.key] = partition
                partition.session = self
                partition.turn = self._turns
                self._turns += 1
            else:
                known.take(partition)
            self.changed[known] = None
        for key in forgotten:
            gone = partitions.pop(key, None)
            if gone is not None:
                self.changed.pop(gone, None)
                gone.session = None
                gone.watch(None)

    def in_turn(self) -> list[SessionPartition]:
        """The partitions that may have something to tell, in the order in which they are to be served."""
        return sorted(self.changed, key=_turn)

    def served(self, partition: SessionPartition) -> None:
        """It brought records and goes behind the others, so that none starves."""
        partition.turn = self._turns
        self._turns += 1

    def end(self) -> None:
        """Nobody can continue the session. A fetch that waits with it goes on to its end."""
        self.has_ended = True
        if self.reader is None:
            self.stop_watching()

    def stop_watching(self) -> None:
        if self.is_watching:
            self.is_watching = False
            for partition in self.partitions.values():
                partition.watch(None)


class FetchContext:
    """What one request is about, once its session is known."""

    __slots__ = ("error", "expected_epoch", "is_incremental", "session", "wants_session")

    def __init__(
        self,
        session: FetchSession,
        *,
        is_incremental: bool = False,
        wants_session: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.session = session
        self.is_incremental = is_incremental
        """Only partitions with records, errors or changed numbers are in the answer."""
        self.wants_session = wants_session
        """The answer opens a session, if there is room for one."""
        self.error = error
        """The whole request is refused."""
        self.expected_epoch = session.epoch
        """While the session still has it, no other request has gone on with the session."""

    @property
    def is_superseded(self) -> bool:
        return self.is_incremental and self.session.epoch != self.expected_epoch


class FetchSessions:
    """All sessions of a broker, bounded.

    A new one takes the place of one that was not used for `eviction_ms`; else, as in Kafka, of one that exists for that
    long and has fewer partitions; a follower's also of any consumer's.
    """

    def __init__(self, max_sessions: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._max_sessions = max_sessions
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        """By id; the one that was used longest ago comes first."""
        self._evictable_by_all: list[_EvictableKey] = []
        self._evictable_by_followers: list[_EvictableKey] = []
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        """Partitions of all sessions together. Any thread."""
        return sum(len(session.partitions) for session in list(self._sessions.values()))

    def context(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        wanted: list[SessionPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        is_privileged: bool = False,
    ) -> FetchContext:
        """Find, continue or end the session that a request names; a new one is opened by its answer (`open`)."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION and session_id in self._sessions:
                self._remove(self._sessions[session_id])
            session = FetchSession(uses_topic_ids, is_privileged, wanted)
            return FetchContext(session, wants_session=epoch == INITIAL_EPOCH and bool(wanted))
        known = self._sessions.get(session_id)
        error = ErrorCode.NONE
        if known is None:
            error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif known.epoch != epoch:
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        elif known.uses_topic_ids != uses_topic_ids:
            error = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if known is None or error:
            return FetchContext(FetchSession(uses_topic_ids, is_privileged, ()), error=error)
        known.epoch = next_epoch(epoch)
        if known.reader is not None:
            known.reader.superseded()
        known.update(wanted, forgotten)
        if not known.partitions:
            self._remove(known)
            return FetchContext(FetchSession(uses_topic_ids, is_privileged, ()))
        self._touch(known, now_ms)
        return FetchContext(known, is_incremental=True)

    def open(self, session: FetchSession, now_ms: int) -> int:
        """Give the session a place and an id; 0 if there is none."""
        if not self._has_room(session, now_ms):
            return NO_SESSION
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session.session_id = session_id
        session.created_ms = now_ms
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _has_room(self, session: FetchSession, now_ms: int) -> bool:
        if len(self._sessions) < self._max_sessions:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.last_used_ms > self._eviction_ms:
            self._evict(oldest)
            return True
        keys = self._evictable_by_followers if session.is_privileged else self._evictable_by_all
        if keys and (session.is_privileged, len(session.partitions), 0) > keys[0]:
            self._evict(self._sessions[keys[0][2]])
            return True
        return False

    def _evict(self, session: FetchSession) -> None:
        self.evictions += 1
        self._remove(session)

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._take_off_lists(session)
        session.end()

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        """Used now: behind all others in the order of eviction."""
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        session.last_used_ms = now_ms
        key = (session.is_privileged, len(session.partitions), session.session_id)
        is_old = now_ms - session.created_ms > self._eviction_ms
        if session.evictable == key and not is_old:
            return
        self._take_off_lists(session)
        session.evictable = key
        if is_old:
            insort(self._evictable_by_all, key)
        if is_old or not session.is_privileged:
            insort(self._evictable_by_followers, key)

    def _take_off_lists(self, session: FetchSession) -> None:
        key = session.evictable
        if key is not None:
            for keys in (self._evictable_by_all, self._evictable_by_followers):
                at = bisect_left(keys, key)
                if at < len(keys) and keys[at] == key:
                    del keys[at]


def next_epoch(epoch: int) -> int:
    """The epoch of the request after the one with `epoch`."""
    return epoch + 1 if epoch < _EPOCH_MAX else 1


_turn = attrgetter("turn")
