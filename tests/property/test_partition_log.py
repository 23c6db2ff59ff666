"""A log under random operations behaves like a list of batches."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from appliance.base.config import TopicConfig
from appliance.log.errors import LogWriteFailed
from appliance.log.open_files import OpenFiles, Reaper
from appliance.records.batch import check_batch, parse_header, split_batches
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, batch_of, config_of, open_log

DATA = Path("/data")


@dataclass(frozen=True)
class Written:
    """One batch of the model."""

    base_offset: int
    data: bytes
    epoch: int
    timestamps: tuple[int, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps)


class LogMachine(RuleBasedStateMachine):
    """The log, and the list that it should be."""

    @initialize(
        segment_bytes=st.sampled_from([200, 450, 1_500]),
        index_interval_bytes=st.sampled_from([1, 100, 4_096]),
        index_bytes=st.sampled_from([48, 10_000]),
        max_open=st.integers(1, 4),
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int, index_bytes: int, max_open: int) -> None:
        self.disk = FaultDisk()
        self.disk.mkdir(DATA)
        self.clock = TestClock()
        self.config: TopicConfig = config_of(
            segment_bytes=segment_bytes,
            segment_index_bytes=index_bytes,
            index_interval_bytes=index_interval_bytes,
            retention_bytes=3 * segment_bytes,
            retention_ms=5_000,
            file_delete_delay_ms=10,
        )
        self.max_open = max_open
        self.batches: list[Written] = []
        self.staged: list[Written] = []
        self.start = self.end = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open(clean=True, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> None:
        self.reaper = Reaper(self.disk)
        self.log = open_log(
            DATA,
            self.config,
            disk=self.disk,
            clock=self.clock,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            files=OpenFiles(self.disk, self.max_open),
            reaper=self.reaper,
        )

    # What can happen

    @rule(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4),
        timestamp=st.integers(0, 10_000),
        producer=st.integers(-1, 2),
    )
    def stage(self, sizes: list[int], timestamp: int, producer: int) -> None:
        offset = self.staged[-1].next_offset if self.staged else self.end
        sequence = self.sequences.get(producer, 0)
        batch = batch_of(
            *(b"%d" % size * (size // 3) for size in sizes),
            timestamp=START_MS + timestamp,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=sequence if producer >= 0 else -1,
        )
        header = check_batch(batch)
        if producer >= 0 and producer in self.log.producer_state.entries:
            assert self.log.producer_state.check(header) is None
        assert self.log.stage(memoryview(batch), header, self.epoch, self.clock.time_ms) == offset
        times = tuple(START_MS + timestamp + n for n in range(len(sizes)))
        self.staged.append(Written(offset, bytes(batch), self.epoch, times))
        self.sequences[producer] = sequence + len(sizes)

    @precondition(lambda self: self.staged)
    @rule()
    def write(self) -> None:
        self.log.write_staged()
        self.batches += self.staged
        self.end = self.staged[-1].next_offset
        self.staged = []

    @precondition(lambda self: self.staged)
    @rule()
    def fail_to_write(self) -> None:
        self.disk.fail("writev", errno.ENOSPC)
        with pytest.raises(LogWriteFailed):
            self.log.write_staged()
        for batch in reversed(self.staged):
            header = parse_header(batch.data)
            if header.producer_id >= 0:
                self.sequences[header.producer_id] = header.base_sequence
        self.staged = []

    @precondition(lambda self: not self.staged)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.time_ms)

    @precondition(lambda self: not self.staged)
    @rule(milliseconds=st.integers(1, 3_000))
    def wait(self, milliseconds: int) -> None:
        self.clock.time_ms += milliseconds
        self.reaper.unlink(self.reaper.due(self.clock.time_ms))

    @precondition(lambda self: not self.staged)
    @rule()
    def retain(self) -> None:
        end = self.log.retention_deletable(self.clock.time_ms)
        self.log.raise_log_start(end)
        self.log.delete_local_segments_below(end)
        self.start = max(self.start, end)

    @precondition(lambda self: not self.staged)
    @rule(portion=st.floats(0, 1))
    def delete_records(self, portion: float) -> None:
        offset = self.start + int((self.end - self.start) * portion)
        self.log.raise_log_start(offset)
        self.start = offset

    @precondition(lambda self: not self.staged)
    @rule(portion=st.floats(0, 1))
    def truncate(self, portion: float) -> None:
        offset = self.start + int((self.end - self.start) * portion)
        self.log.truncate_to(offset)
        cut = [batch for batch in self.batches if batch.next_offset > offset]
        self.batches = self.batches[: len(self.batches) - len(cut)]
        self.end = cut[0].base_offset if cut else offset
        self.start = min(self.start, self.end)
        # Which sequence comes next is what the log says now.
        self.sequences = {
            key: (entry.last_sequence + 1) & 0x7FFFFFFF for key, entry in self.log.producer_state.entries.items()
        }
        self.log.log_start_offset = min(self.log.log_start_offset, self.end)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @precondition(lambda self: not self.staged)
    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @precondition(lambda self: not self.staged)
    @rule(clean=st.booleans(), forget_recovery_point=st.booleans())
    def restart(self, clean: bool, forget_recovery_point: bool) -> None:
        self.log.close(clean)
        self.open(clean=clean, recovery_point=0 if forget_recovery_point and not clean else self.log.recovery_point)

    # What always holds

    @invariant()
    def ends_are_as_in_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start
        assert self.log.recovery_point <= self.end
        assert len(self.disk.descriptors) <= self.max_open + 1

    @invariant()
    def records_are_as_in_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        visible = [batch for batch in self.batches if batch.next_offset > self.start]
        offset, found = self.start, []
        while (piece := self.log.read(offset, 300, self.end)) is not None:
            parts = list(split_batches(piece.read()))
            assert sum(map(len, parts)) == piece.length
            found += [bytes(part) for part in parts]
            offset = parse_header(parts[-1]).next_offset
        assert found == [batch.data for batch in visible]
        assert offset == self.end
        for batch in visible[-3:]:
            assert self.log.leader_epochs.epoch_for(batch.next_offset - 1) == batch.epoch
            middle = max(self.start, batch.next_offset - 1)
            piece = self.log.read(middle, 1, self.end)
            assert piece is not None and piece.read() == batch.data

    @invariant()
    def times_are_found_as_in_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        records = [
            (batch.base_offset + n, time)
            for batch in self.batches
            for n, time in enumerate(batch.timestamps)
            if batch.base_offset + n >= self.start
        ]
        latest = max((time for _, time in records), default=0)
        for wanted in (0, latest, latest + 1, START_MS + 5_000):
            expected = next((record for record in records if record[1] >= wanted), None)
            assert self.log.offset_for_timestamp(wanted) == expected


LogMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogMachine = LogMachine.TestCase
