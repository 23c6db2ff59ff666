"""Share sessions: what a member reads on this broker, so that its requests say what has changed only (KIP-932). Pure.

A session is of a group, a member and a connection. Epoch 0 opens it, each request carries the next one, -1 ends it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from appliance.base.errors import ErrorCode

FIRST_EPOCH, FINAL_EPOCH = 0, -1
_MAX_EPOCH = 2**31 - 1

Place = tuple[uuid.UUID, int]
"""Topic id and partition."""
SessionKey = tuple[str, str]
"""Group and member."""


@dataclass(eq=False, slots=True)
class ShareSession:
    """One member at one broker."""

    key: SessionKey
    owner: object
    """The connection that it came by."""
    epoch: int = 1
    """Of the next request."""
    partitions: dict[Place, None] = field(default_factory=dict)
    """In the order in which they are served next."""

    def update(self, wanted: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Take up what a request says."""
        for place in wanted:
            self.partitions.setdefault(place)
        for place in forgotten:
            self.partitions.pop(place, None)

    def served(self, place: Place) -> None:
        """It comes last the next time."""
        if place in self.partitions:
            del self.partitions[place]
            self.partitions[place] = None


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[ShareSession]:
        return list(self._sessions.values())

    def open(self, group_id: str, member_id: str, owner: object) -> ShareSession | ErrorCode:
        """Begin one anew; an earlier one of the member has to be ended before."""
        if len(self._sessions) >= self._most:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession((group_id, member_id), owner)
        self._sessions[session.key] = session
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def next(self, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """The session that a request goes on with, or ends."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def end(self, session: ShareSession) -> bool:
        """Whether it was the last one of its group."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
        group_id = session.key[0]
        return all(key[0] != group_id for key in self._sessions)
