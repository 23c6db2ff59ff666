"""What is left of `__share_group_state` for a backup: one snapshot of each partition of a group, updates laid over it.

Nobody who led a partition then leads it after a total loss, so the backup says nothing of leaders. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from appliance.coordinator.loader import load, replaying
from appliance.share_groups.state_records import decode_record, encode_record
from appliance.share_groups.state_stored import SnapshotRecord, StoredStates

NOBODY = -1


class LastStates:
    """The states of one partition of the topic, of a log that is read piece by piece."""

    def __init__(self) -> None:
        self._stored = StoredStates()

    def read(self, batches: Iterable[memoryview | bytes]) -> None:
        """Go on with committed batches, in order. Raises: CorruptBatch."""
        load(batches, replaying(decode_record, self._stored))

    @property
    def records(self) -> dict[bytes, bytes]:
        """Values by key, from which the states can be read again."""
        found: dict[bytes, bytes] = {}
        for key, state in self._stored.states.items():
            name, value = encode_record(SnapshotRecord(key, replace(state, leader_epoch=NOBODY)))
            if value is not None:
                found[name] = value
        return found
