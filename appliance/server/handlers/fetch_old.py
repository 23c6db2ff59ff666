"""Fetch, versions 0 to 3, whose readers know message sets only: of magic 0 up to version 1, then of magic 1.

- Everything up to the answer is as in later versions; then a helper thread reads the slices and makes message sets of
  them, of at most `BYTES_MAX` for one answer.
- Control batches and headers are left out. Where nothing is left the next records are looked for, so that nobody asks
  for the same place for ever.
- Batches of zstd are UNSUPPORTED_COMPRESSION_TYPE, unless others come before them.
- The first batch is sent whole in every version; Apache Kafka cut it off before version 3.
- Above `message.conversion.max.bytes` the answer has no records, and leaves when the reader has waited for them.
v1 throttle time · v3 a limit for the whole answer
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.fetch_sessions import FINAL_EPOCH, SessionPartition
from appliance.records.message_sets import Converted, sets_of
from appliance.server.context import Broker
from appliance.server.handlers.fetch import FetchHandler, FetchOperation
from appliance.server.handlers.fetch_answer import encode_with_ranges
from appliance.server.requests import FileRange, Pending, Request
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

MAGIC_1_SINCE = 2
BYTES_MAX = 8 << 20
"""Of batches that one answer is made of, but for a first batch that is larger."""
ROUNDS_MAX = 100
"""How often one request looks further where nothing was left."""


def old_fetches(fetches: FetchHandler) -> Callable[[Broker, Request], Pending]:
    """Serves these versions beside the handler of the later ones."""
    handler = FetchHandler(fetches.sessions, min(fetches.max_bytes, BYTES_MAX))

    def handle(broker: Broker, request: Request) -> Pending:
        pending = request.pending()
        OldFetch(broker, request, handler, pending, 1).start()
        return pending

    return handle


class _Piece(NamedTuple):
    """What one partition brought."""

    topic: str
    asked: FetchPartition
    data: PartitionData
    records: FileRange | bytes | memoryview

    def converted(self, magic: int) -> Converted | Exception:
        """Runs in a helper thread."""
        records = self.records
        try:
            if isinstance(records, FileRange):
                records = os.pread(records.file_descriptor, records.length, records.position)
            return sets_of(records, magic, self.asked.fetch_offset)
        except Exception as error:
            return error


class OldFetch(FetchOperation):
    """One fetch whose answer is converted before it leaves."""

    def __init__(self, broker: Broker, request: Request, handler: FetchHandler, pending: Pending, round_: int) -> None:
        body = self._body = cast(FetchRequest, request.body)
        self._handler = handler
        self._round = round_
        self._asked = {(t.topic, partition.partition): partition for t in body.topics for partition in t.partitions}
        wanted = [
            SessionPartition(key, partition.fetch_offset, partition.partition_max_bytes, -1, -1, -1)
            for key, partition in self._asked.items()
        ]
        context = handler.sessions.context(0, FINAL_EPOCH, False, wanted, [], broker.clock.monotonic_ms())
        super().__init__(broker, request, body, handler, context)
        self.pending = pending

    def _send(self, response: FetchResponse) -> None:
        pieces = [
            _Piece(topic.topic, self._asked[topic.topic, data.partition_index], data, data.records)
            for topic in response.responses
            for data in topic.partitions
            if data.records
        ]
        if not pieces:
            self._leave(response)
            return
        size = sum(len(piece.records) for piece in pieces)
        conversions = self.broker.conversions
        if not conversions.begin(size):
            _let_go(pieces)
            self.broker.background.schedule(max(1, self._body.max_wait_ms), lambda: self._leave(response))
            return
        magic = 1 if self.request.api_version >= MAGIC_1_SINCE else 0

        def done(made: list[Converted | Exception] | Exception) -> None:
            conversions.end(size)
            _let_go(pieces)
            if isinstance(made, Exception):
                made = [made] * len(pieces)
            self._take(response, pieces, made)

        self.broker.background.run(lambda: [piece.converted(magic) for piece in pieces], done)

    def _take(self, response: FetchResponse, pieces: list[_Piece], found: list[Converted | Exception]) -> None:
        brings = any(data.error_code for topic in response.responses for data in topic.partitions)
        for piece, result in zip(pieces, found, strict=True):
            if isinstance(result, Exception):
                code = result.code if isinstance(result, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
                piece.data.error_code, piece.data.high_watermark = code, -1
                brings = True
                continue
            conversions = self.broker.conversions
            conversions.count(conversions.fetched, piece.topic, result.record_count)
            piece.data.records = result.records
            if result.records:
                brings = True
            elif result.next_offset > piece.asked.fetch_offset:
                piece.asked.fetch_offset = result.next_offset
        if brings or self._round >= ROUNDS_MAX or self.pending.connection.closed:
            self._leave(response)
        else:
            OldFetch(self.broker, self.request, self._handler, self.pending, self._round + 1).start()

    def _leave(self, response: FetchResponse) -> None:
        if self.pending.connection.closed:
            return
        self.pending.answer_items(encode_with_ranges(response, self.request.api_version, self.request.correlation_id))


def _let_go(pieces: list[_Piece]) -> None:
    """The files may go; what is not converted is not sent."""
    for piece in pieces:
        if isinstance(piece.records, FileRange):
            piece.records.release()
        piece.data.records = b""
