"""What one follower was sent of a partition, for the next one that waits for the same: read and encoded once.

With three replicas two followers usually wait at the same place. In the tick in which something is appended both get
the same records with the same numbers; only session id and correlation id differ.
"""

from __future__ import annotations

import struct

from appliance.partition.replica_sessions import Followed, ReplicaSession
from appliance.server.requests import OutputItem
from appliance.wire.messages.fetch import FetchRequest, FetchResponse

_CORRELATION_ID_AT, _SESSION_ID_AT = 4, 15
"""Behind the size; and behind that, the empty tags of the header, the throttle time and the error code."""

_INT = struct.Struct(">i")


class SharedAnswer:
    """The last answer that brought records of one partition, all in bytes."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._frame = b""

    def keep(
        self,
        response: FetchResponse,
        session: ReplicaSession,
        body: FetchRequest,
        version: int,
        items: list[OutputItem],
    ) -> None:
        """An answer leaves that has records."""
        self._key = None
        if len(items) != 1 or len(response.responses) != 1 or response.throttle_time_ms:
            return
        topic = response.responses[0]
        if len(topic.partitions) != 1 or topic.partitions[0].error_code:
            return
        followed = session.partitions.get((topic.topic_id, topic.partitions[0].partition_index))
        if followed is None or not followed.awaited:
            return
        frame = items[0]
        if isinstance(frame, bytes) and _INT.unpack_from(frame, _SESSION_ID_AT)[0] == session.session_id:
            self._key, self._frame = _key(followed, body, version), frame

    def for_another(
        self, session: ReplicaSession, body: FetchRequest, version: int, correlation_id: int
    ) -> list[OutputItem] | None:
        """The frame for a fetch that waits, if what it would be sent is exactly that; its session then knows so."""
        if self._key is None or len(session.ready) != 1 or session.news:
            return None
        followed = next(iter(session.ready))
        hosted = followed.hosted
        if (
            hosted is None
            or followed.awaited
            or hosted.leader is None
            or session.replica_id not in hosted.leader.followers
            or hosted.recovering
            or hosted.offline
            or hosted.config.leader_replication_throttled_replicas
            or hosted.leader_epoch != followed.current_leader_epoch
            or _key(followed, body, version) != self._key
        ):
            return None
        session.ready.clear()
        followed.awaited = True
        followed.told_high_watermark = hosted.high_watermark
        followed.told_log_start_offset = hosted.log_start_offset
        followed.told_tiered_end = hosted.tiered_end
        frame = bytearray(self._frame)
        _INT.pack_into(frame, _CORRELATION_ID_AT, correlation_id)
        _INT.pack_into(frame, _SESSION_ID_AT, session.session_id)
        return [bytes(frame)]


def _key(followed: Followed, body: FetchRequest, version: int) -> tuple[object, ...]:
    """All that decides what is sent. The log end is in it: what was appended since is sent, too."""
    hosted = followed.hosted
    return (
        *(hosted, version, followed.fetch_offset, followed.current_leader_epoch, followed.max_bytes, body.max_bytes),
        *(hosted.log_end_offset, hosted.high_watermark, hosted.log_start_offset, hosted.tiered_end),
    )
