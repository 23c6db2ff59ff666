"""Reading a partition for a share group: bytes, and which offsets of them are for anybody."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_plan import ByteBudget
from appliance.partition.fetch_sessions import SessionPartition
from appliance.records.batch import parse_header, split_batches
from appliance.records.control import read_marker
from appliance.server.context import Broker
from appliance.server.handlers.fetch_read import FetchReader, PartitionRead, is_cold, warm_up
from appliance.server.handlers.share_calls import Led
from appliance.share_groups.runs import ReadBatch
from appliance.share_groups.sessions import Place
from appliance.wire.messages.fetch import AbortedTransaction

READ_MAX_BYTES = 1 << 20
"""What is read of one partition at once: it is copied, and its batches are looked at."""


class SeenBatch(NamedTuple):
    """A batch, by its offsets and by its place in what was read."""

    offsets: ReadBatch
    position: int
    end: int


class ShareRead:
    """One partition, read from where its next record lies that may be handed out."""

    def __init__(self, led: Led, place: Place, offset: int, isolation_level: int) -> None:
        self.led = led
        self.place = place
        self.offset = offset
        self.error = ErrorCode.NONE
        self.data: bytes | memoryview = b""
        self.aborted: list[AbortedTransaction] = []
        self.is_slow = False
        self.is_remote = False
        self._isolation_level = isolation_level
        self._read: PartitionRead | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    def take(self, read: PartitionRead) -> None:
        """What the reader of fetches has found."""
        self._read = read
        self.is_remote = read.is_remote
        self.is_slow = read.is_remote or read.is_cold or (read.range is not None and is_cold(read))
        if read.data.error_code:
            self.error = ErrorCode(read.data.error_code)
        elif not self.is_slow:
            self._copy(read)

    def _copy(self, read: PartitionRead) -> None:
        found = read.range
        data = read.data.records if found is None else os.pread(found.file_descriptor, found.length, found.position)
        self.data = data or b""
        self.aborted = read.data.aborted_transactions or []

    def work(self, broker: Broker) -> Callable[[], Any]:
        """What a helper thread does."""
        read, isolation_level = self._read, self._isolation_level
        assert read is not None
        if read.range is not None:
            read.range.retain()
        if not self.is_remote:
            return lambda: warm_up(read, isolation_level)
        hosted = self.led.hosted
        topic_id, partition, end = hosted.topic_id, hosted.partition, read.visible_end
        return lambda: broker.remote.fetch(topic_id, partition, self.offset, max(1, read.wanted_bytes), end)

    def came(self, broker: Broker, result: Any) -> None:
        """The helper thread is done."""
        read = self._read
        assert read is not None
        if read.range is not None:
            read.range.release()
        if self.is_remote:
            read.take_remote(result, self._isolation_level)
            if read.data.error_code:
                self.error = ErrorCode(read.data.error_code)
            else:
                self._copy(read)
            return
        again = _read(broker, self.place, self.offset, ByteBudget(READ_MAX_BYTES), self._isolation_level, may_wait=True)
        if again.data.error_code:
            self.error = ErrorCode(again.data.error_code)
        elif not again.is_remote:
            self._copy(again)

    def bytes_of(self, batches: list[SeenBatch], first_offset: int, last_offset: int) -> bytes | memoryview:
        """The batches that hold these offsets, and what lies between them."""
        meant = [each for each in batches if each.offsets[1] >= first_offset and each.offsets[0] <= last_offset]
        return self.data[meant[0].position : meant[-1].end] if meant else b""


def start_reading(broker: Broker, led: Led, place: Place, budget: ByteBudget, isolation_level: int) -> ShareRead:
    """Read what is at hand; what is not has to be read by a helper thread (`is_slow`)."""
    offset = led.machine.next_fetch_offset
    read = ShareRead(led, place, offset, isolation_level)
    read.take(_read(broker, place, offset, budget, isolation_level))
    return read


def _read(
    broker: Broker, place: Place, offset: int, budget: ByteBudget, isolation_level: int, *, may_wait: bool = False
) -> PartitionRead:
    wanted = SessionPartition(place, offset, READ_MAX_BYTES)
    return FetchReader(broker, isolation_level).read(wanted, budget, may_wait=may_wait)


def read_batches(read: ShareRead) -> list[SeenBatch]:
    """The batches that were read. Markers are for nobody, nor are aborted records where they are not wanted."""
    seen: list[SeenBatch] = []
    begun = sorted((each.first_offset, each.producer_id) for each in read.aborted)
    aborting: set[int] = set()
    position = 0
    for batch in split_batches(read.data):
        header = parse_header(batch)
        last_offset = header.next_offset - 1
        while begun and begun[0][0] <= last_offset:
            aborting.add(begun.pop(0)[1])
        is_delivered = not header.is_control
        if header.is_control:
            marker = read_marker(batch) if header.producer_id in aborting else None
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            is_delivered = False
        end = position + len(batch)
        seen.append(SeenBatch(ReadBatch(header.base_offset, last_offset, is_delivered), position, end))
        position = end
    return seen
