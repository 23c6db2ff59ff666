"""From fetched bytes to the records that a reader is to see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from appliance.client.results import AbortedTransaction
from appliance.records.batch import parse_header, split_batches
from appliance.records.control import read_marker
from appliance.records.reader import Record, read_records


class VisibleRecords:
    """The records of one fetch answer, and where the next fetch begins.

    Args:
        records: raw batches, the last possibly cut off.
        offset: what was asked for; what lies before is dropped.
        aborted: transactions whose records do not count; empty for read_uncommitted.
    """

    def __init__(self, records: bytes, offset: int, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self.next_offset = offset
        self._records = records
        self._offset = offset
        self._to_come = sorted(aborted, key=lambda transaction: transaction.first_offset)

    def __iter__(self) -> Iterator[Record]:
        aborting: set[int] = set()
        for batch in split_batches(memoryview(self._records)):
            header = parse_header(batch)
            while self._to_come and self._to_come[0].first_offset <= header.last_offset:
                aborting.add(self._to_come.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                for record in read_records(batch):
                    if record.offset >= self._offset:
                        yield record
            self.next_offset = max(self.next_offset, header.next_offset)
