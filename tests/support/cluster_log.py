"""Logs in memory, with the face of `PartitionLog` and `LogManager` that the broker's parts look at.

A host that goes down takes back what was not flushed: any number of batches at the end.
"""

from __future__ import annotations

import os
import random
import tempfile
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.base.config import TopicConfig
from appliance.base.errors import invariant
from appliance.base.ids import TopicPartition
from appliance.log.errors import OffsetOutOfRange
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.log.log_slice import LogSlice
from appliance.log.producer_state import ProducerState
from appliance.log.reading import read_slice
from appliance.records.batch import BatchHeader, stamp

_PLACE = Path("/simulated")


class MemoryLog:
    """One record in each batch; a batch is its bytes, so it has passed real codecs and checks."""

    def __init__(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.directory = _PLACE / str(topic_partition)
        self.recovery_point = 0
        self.stored_high_watermark = 0
        self.content: list[tuple[int, int]] = []
        """(leader epoch, crc) of each offset."""
        self._headers: list[BatchHeader] = []
        self.ends: list[int] = []
        self._staged: list[tuple[memoryview, BatchHeader]] = []
        self._descriptor = _scratch_file()
        self.segments: Any = [MemorySegment(self, self._descriptor)]
        self.reopen()

    def __del__(self) -> None:
        os.close(self._descriptor)

    def reopen(self) -> None:
        """As a new process finds it."""
        self._staged = []
        self.producer_state = ProducerState()
        self.leader_epochs = LeaderEpochCache(lambda: len(self.content))
        self._learn_again()

    def _learn_again(self) -> None:
        self.producer_state = ProducerState()
        for offset, ((epoch, _), header) in enumerate(zip(self.content, self._headers, strict=True)):
            self.leader_epochs.assign(epoch, offset)
            if header.producer_id >= 0:
                self.producer_state.update(header, offset, 0)
        self.producer_state.undo.clear()

    def tear(self, chance: random.Random) -> int:
        """The host went down; returns how many batches are gone."""
        before = len(self.content)
        if self.recovery_point < before:
            self._cut(chance.randint(self.recovery_point, before))
        return before - len(self.content)

    log_start_offset = 0
    local_log_start_offset = 0
    damage = ()

    @property
    def log_end_offset(self) -> int:
        return len(self.content)

    @property
    def staged_end_offset(self) -> int:
        return len(self.content) + len(self._staged)

    def update_config(self, config: TopicConfig) -> None:
        self.config = config

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[Any]:
        return []

    def raise_log_start(self, offset: int) -> None:
        raise AssertionError("nothing is deleted here")

    def stage(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        offset = self.staged_end_offset
        stamp(batch, offset, leader_epoch)
        if header.producer_id >= 0:
            self.producer_state.update(header, offset, now_ms)
        self.leader_epochs.assign(leader_epoch, offset)
        self._staged.append((batch, header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)))
        return offset

    def stage_replicated(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        if header.base_offset < self.staged_end_offset:
            raise OffsetOutOfRange(header.base_offset, self.staged_end_offset, self.staged_end_offset)
        invariant(header.base_offset == self.staged_end_offset, "5: a follower's log would get a gap")
        return self.stage(batch, header, header.partition_leader_epoch, now_ms)

    def write_staged(self) -> None:
        for batch, header in self._staged:
            position = self.ends[-1] if self.ends else 0
            os.pwrite(self._descriptor, batch, position)
            self.ends.append(position + len(batch))
            self.content.append((header.partition_leader_epoch, header.crc))
            self._headers.append(header)
        self._staged.clear()
        self.producer_state.undo.clear()

    def read(
        self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True, pages: Any = None
    ) -> LogSlice | None:
        if not 0 <= offset <= len(self.content):
            raise OffsetOutOfRange(offset, 0, len(self.content))
        end = min(max_offset, len(self.content))
        return read_slice(self.segments, offset, max_bytes, end, min_one_batch, pages)

    def truncate_to(self, offset: int) -> None:
        invariant(not self._staged, "a cut between stage and write_staged")
        self._cut(offset)

    def truncate_fully_and_start_at(self, offset: int, *_: Any, **__: Any) -> None:
        invariant(offset == 0, "logs begin at 0 here")
        self._cut(0)

    def _cut(self, offset: int) -> None:
        del self.content[offset:], self._headers[offset:], self.ends[offset:]
        self.recovery_point = min(self.recovery_point, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._learn_again()


class MemorySegment:
    """The one `Segment` of a log, as readers see it."""

    base_offset = 0
    references = 0
    knows_aborted = True

    def __init__(self, log: MemoryLog, descriptor: int) -> None:
        self._log = log
        self.descriptor = descriptor

    @property
    def next_offset(self) -> int:
        return len(self._log.content)

    @property
    def size_bytes(self) -> int:
        return self.position_of(self.next_offset)

    def position_of(self, offset: int, pages: Any = None) -> int:
        return self._log.ends[offset - 1] if offset else 0

    def end_of_slice(self, position: int, most: int, end: int, min_one_batch: bool, pages: Any = None) -> int:
        ends = self._log.ends
        first = bisect_right(ends, position)
        fitting = bisect_right(ends, min(most, end))
        if fitting <= first:
            return min(ends[first], end) if min_one_batch else position
        return ends[fitting - 1]

    def remember_boundary(self, offset: int, position: int) -> None: ...

    def open(self) -> int:
        return self.descriptor

    def release(self) -> None:
        self.references -= 1


class MemoryLogs:
    """All logs of a broker, and what outlives its process."""

    def __init__(self) -> None:
        self.directory_id = uuid.UUID(int=0)
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.not_found: dict[TopicPartition, uuid.UUID] = {}
        self.directories = [SimpleNamespace(path=_PLACE, refusal="")]
        self.noted_epoch = -1
        """The broker epoch that the last process noted."""
        self.may_lack = True
        """Whether something may be missing of which no process has told the controller."""

    def load_all(self, config_of: Callable[[str], TopicConfig], topic_id_of: Callable[[str], Any]) -> None:
        self.may_lack = False
        for log in self.logs.values():
            log.reopen()

    def expect(self, partitions: Iterable[tuple[TopicPartition, uuid.UUID]]) -> None:
        self.not_found = {
            at: topic_id
            for at, topic_id in partitions
            if (log := self.logs.get(at)) is None or log.topic_id != topic_id
        }

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> MemoryLog:
        log = self.logs.get(topic_partition)
        if log is None or log.topic_id != topic_id:
            log = self.logs[topic_partition] = MemoryLog(topic_partition, topic_id, config)
        return log

    def high_watermark_of(self, topic_partition: TopicPartition) -> int:
        return self.logs[topic_partition].stored_high_watermark

    def delete(self, topic_partition: TopicPartition) -> None:
        self.logs.pop(topic_partition, None)

    def replace_disk(self, chance: random.Random, broker_id: int) -> None:
        """Another disk, with nothing on it."""
        self.logs.clear()
        self.may_lack = True
        self.noted_epoch = -1
        self.directory_id = uuid.UUID(int=chance.getrandbits(64) << 8 | broker_id, version=4)

    def flush(self) -> None:
        for log in self.logs.values():
            log.recovery_point = log.log_end_offset

    def power_cut(self, chance: random.Random) -> int:
        self.may_lack = True
        return sum(log.tear(chance) for log in self.logs.values())


def _scratch_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("log")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
