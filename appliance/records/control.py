"""Control records: the markers that end a transaction.

A control batch holds one record. Its key is i16 version (0), i16 type; a marker's value is i16 version (0),
i32 coordinator epoch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from appliance.records.builder import build_batch
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """What a control batch of type ABORT or COMMIT says about its producer's transaction."""

    control_type: int
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.control_type == COMMIT


def build_marker(
    control_type: int, coordinator_epoch: int, *, producer_id: int, producer_epoch: int, now_ms: int
) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    record = (now_ms, _KEY.pack(0, control_type), _VALUE.pack(0, coordinator_epoch), ())
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_marker(batch: bytes | bytearray | memoryview) -> EndTransactionMarker | None:
    """The marker in a control batch; None for control records of another type (leader changes, snapshots).

    Raises:
        CorruptBatch: the record is not a control record.
    """
    record = next(read_records(batch), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch(f"control record at offset {record.offset} has no type")
    _, control_type = _KEY.unpack_from(record.key)
    if control_type not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatch(f"marker at offset {record.offset} has no coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTransactionMarker(control_type, coordinator_epoch)
