"""What a broker appends of its own accord: records of coordinators, markers of transactions, logs that are imported.

It is staged with the tick's other batches and answered when it is committed, without a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from appliance.base.errors import ErrorCode, InvariantBroken, KafkaError
from appliance.broker_actors.partition_host_view import OnCommitted, Ticking
from appliance.records.batch import BatchHeader, parse_header

if TYPE_CHECKING:
    from appliance.broker_actors.hosted_partition import HostedPartition


class OwnAppends:
    """Of one partition. All methods are called on the loop's thread."""

    __slots__ = ("_host", "_hosted", "staged")

    def __init__(self, hosted: HostedPartition, host: Ticking) -> None:
        self._hosted = hosted
        self._host = host
        self.staged: list[tuple[int, int, OnCommitted]] = []
        """(base offset, required offset, callback) of batches that wait for this tick's write."""

    def append_records(self, batch: bytes, on_committed: OnCommitted) -> None:
        """Append a batch as a producer does; `on_committed` is called once."""
        hosted = self._hosted
        refusal = hosted.refusal()
        if not refusal and hosted.leader is not None and not hosted.leader.enough_in_sync:
            refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        if refusal:
            on_committed(refusal, -1)
            return
        view = memoryview(bytearray(batch))
        header = parse_header(view)
        self._host.begin_tick()
        try:
            base_offset = hosted.append(view, header, self._host.clock.now_ms())
        except KafkaError as error:
            on_committed(error.code, -1)
            return
        self.staged.append((base_offset, base_offset + header.last_offset_delta + 1, on_committed))

    def append_imported(self, batches: Sequence[tuple[memoryview, BatchHeader]], on_committed: OnCommitted) -> None:
        """Append checked batches that keep their offsets; `on_committed` is called once."""
        hosted = self._hosted
        self._host.begin_tick()
        now_ms = self._host.clock.now_ms()
        first = batches[0][1].base_offset
        if hosted.write_refusal or hosted.offline:
            on_committed(ErrorCode.KAFKA_STORAGE_ERROR, -1)
            return
        try:
            for batch, header in batches:
                hosted.log.stage_replicated(batch, header._replace(partition_leader_epoch=hosted.leader_epoch), now_ms)
                hosted.bytes_in += header.size_in_bytes
        except InvariantBroken as error:
            hosted.go_offline(str(error))
            on_committed(ErrorCode.KAFKA_STORAGE_ERROR, -1)
            return
        if not hosted.dirty:
            hosted.dirty = True
            self._host.dirty.append(hosted)
        self.staged.append((first, hosted.log.staged_end_offset, on_committed))

    def written(self, end_offset: int) -> None:
        """This tick's write is done, or has failed: answer, or wait for followers."""
        hosted = self._hosted
        staged, self.staged = self.staged, []
        for base_offset, required_offset, on_committed in staged:
            if required_offset > end_offset:
                on_committed(ErrorCode.KAFKA_STORAGE_ERROR, -1)
            elif required_offset <= hosted.high_watermark:
                on_committed(ErrorCode.NONE, base_offset)
            elif hosted.leader is None:
                on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            else:
                hosted.acks.wait(required_offset, _OwnAck(base_offset, on_committed))


class _OwnAck:
    """One that waits for followers."""

    __slots__ = ("_base_offset", "_on_committed")

    def __init__(self, base_offset: int, on_committed: OnCommitted) -> None:
        self._base_offset = base_offset
        self._on_committed = on_committed

    def committed(self) -> None:
        self._on_committed(ErrorCode.NONE, self._base_offset)

    def failed(self, error: ErrorCode) -> None:
        self._on_committed(error, -1)
