"""Up to where a reader may see. Pure."""

from __future__ import annotations

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

DEBUGGING_REPLICA_ID = -2
"""`kafka-replica-verification`: an ordinary reader that may read up to the log end."""


def visible_end(
    replica_id: int, isolation_level: int, *, high_watermark: int, last_stable_offset: int, log_end_offset: int
) -> int:
    """The first offset that a reader must not see: followers read to the log end, consumers committed data only."""
    if replica_id >= 0 or replica_id == DEBUGGING_REPLICA_ID:
        return log_end_offset
    if isolation_level == READ_COMMITTED:
        return last_stable_offset
    return high_watermark
