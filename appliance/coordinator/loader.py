"""Reading a coordinator's state back from its partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from appliance.records.batch import parse_header
from appliance.records.reader import read_records
from appliance.wire.schema import WireError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadSummary:
    """What one load has read."""

    batches: int = 0
    records: int = 0
    skipped: int = 0
    """Records of a kind or version that we do not know, or that cannot be read."""


def load(batches: Iterable[memoryview | bytes], replay: Callable[[bytes, bytes | None], bool]) -> LoadSummary:
    """Replay all records of the given batches, in order.

    Args:
        replay: takes key and value; false if it does not know that kind of record. One that it cannot read (WireError)
            is left out too: one bad record must not keep every group of its partition from being served.

    Raises:
        CorruptBatch: a batch does not hold the records that it promises.
    """
    summary = LoadSummary()
    for batch in batches:
        summary.batches += 1
        if parse_header(batch).is_control:
            continue
        for raw in read_records(batch):
            summary.records += 1
            try:
                is_known = raw.key is not None and replay(raw.key, raw.value)
            except WireError as error:
                _log.warning("record at offset %d cannot be read and is left out: %s", raw.offset, error)
                is_known = False
            if not is_known:
                summary.skipped += 1
    return summary
