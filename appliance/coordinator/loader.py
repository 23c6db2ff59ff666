"""Reading a coordinator's state back from its partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from appliance.records.batch import parse_header
from appliance.records.reader import read_records
from appliance.wire.schema import WireError

R = TypeVar("R")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadSummary:
    """What one load has read."""

    batches: int = 0
    records: int = 0
    skipped: int = 0
    """Records of a kind or version that we do not know, or that cannot be read."""


def load(
    batches: Iterable[memoryview | bytes],
    decode: Callable[[bytes, bytes | None], R | None],
    replay: Callable[[R], None],
) -> LoadSummary:
    """Replay all records of the given batches, in order.

    A record that `decode` answers with None, or cannot read, is left out: one bad record must not keep every group of
    its partition from being served.
    """
    summary = LoadSummary()
    for batch in batches:
        summary.batches += 1
        if parse_header(batch).is_control:
            continue
        for raw in read_records(batch):
            summary.records += 1
            try:
                record = decode(raw.key, raw.value) if raw.key is not None else None
            except WireError as error:
                _log.warning("record at offset %d cannot be read and is left out: %s", raw.offset, error)
                record = None
            if record is None:
                summary.skipped += 1
            else:
                replay(record)
    return summary
