"""Up to where a reader may see, and what of it was aborted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
"""`kafka-replica-verification`: an ordinary reader that may read up to the log end."""


class AbortedTransaction(NamedTuple):
    """A transaction whose records in [first_offset, last_offset] must be dropped by read_committed readers."""

    producer_id: int
    first_offset: int
    last_offset: int


def visible_end(
    replica_id: int, isolation_level: int, *, high_watermark: int, last_stable_offset: int, log_end_offset: int
) -> int:
    """The first offset that a reader must not see: followers read to the log end, consumers committed data only."""
    if replica_id >= 0 or replica_id == DEBUGGING_REPLICA_ID:
        return log_end_offset
    if isolation_level == READ_COMMITTED:
        return last_stable_offset
    return high_watermark


def aborted_in(aborted: Iterable[AbortedTransaction], first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Every aborted transaction that overlaps [first_offset, end_offset), by first offset."""
    return sorted(
        (one for one in aborted if one.first_offset < end_offset and one.last_offset >= first_offset),
        key=lambda one: one.first_offset,
    )
