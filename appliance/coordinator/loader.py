"""Reading a coordinator's state back from its partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from appliance.records.batch import BatchHeader, parse_header
from appliance.records.control import read_marker
from appliance.records.reader import read_records
from appliance.wire.schema import WireError

_log = logging.getLogger(__name__)

Record = TypeVar("Record")
Replayed = TypeVar("Replayed", contravariant=True)


class Stored(Protocol[Replayed]):
    """A coordinator's state."""

    def replay(self, record: Replayed) -> None: ...


@dataclass(slots=True)
class LoadSummary:
    """What one load has read."""

    batches: int = 0
    records: int = 0
    skipped: int = 0
    """Records of a kind or version that we do not know, or that cannot be read."""


class Transactions(Protocol):
    """What a load tells of transactions in the log."""

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> bool:
        """A record that counts once its producer's transaction is committed; false if its kind is not known."""

    def ended(self, producer_id: int, is_commit: bool) -> None:
        """The producer's transaction has ended."""


def replaying(
    decode: Callable[[bytes, bytes | None], Record | None], stored: Stored[Record]
) -> Callable[[bytes, bytes | None], bool]:
    """What `load` is to do with each record: read it and let `stored` replay it.

    Args:
        decode: None for a record of a kind that is not known. Raises WireError.
    """

    def replay(key: bytes, value: bytes | None) -> bool:
        record = decode(key, value)
        if record is not None:
            stored.replay(record)
        return record is not None

    return replay


def load(
    batches: Iterable[memoryview | bytes],
    replay: Callable[[bytes, bytes | None], bool],
    transactions: Transactions | None = None,
) -> LoadSummary:
    """Replay all records of the given batches, in order.

    Args:
        replay: takes key and value; false if it does not know that kind of record. One that it cannot read (WireError)
            is left out too: one bad record must not keep every group of its partition from being served.
        transactions: told of records in transactions, and of their ends; without it they are replayed as all others.

    Raises:
        CorruptBatch: a batch does not hold the records that it promises.
    """
    summary = LoadSummary()
    for batch in batches:
        summary.batches += 1
        header = parse_header(batch)
        if header.is_control:
            if transactions is not None:
                _end(batch, header, transactions)
            continue
        for raw in read_records(batch):
            summary.records += 1
            try:
                is_known = raw.key is not None and (
                    transactions.replay(header.producer_id, raw.key, raw.value)
                    if transactions is not None and header.is_transactional
                    else replay(raw.key, raw.value)
                )
            except WireError as error:
                _log.warning("record at offset %d cannot be read and is left out: %s", raw.offset, error)
                is_known = False
            if not is_known:
                summary.skipped += 1
    return summary


def _end(batch: memoryview | bytes, header: BatchHeader, transactions: Transactions) -> None:
    marker = read_marker(batch)
    if marker is not None:
        transactions.ended(header.producer_id, marker.is_commit)
