"""A log that anything may happen to, beside the list of batches that it should be (`log_model.py`)."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.log.errors import LogWriteFailed
from appliance.log.log_slice import LogSlice
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.partition_log import PartitionLog
from appliance.log.producer_state import Duplicate
from appliance.records.batch import BatchHeader, check_batch, set_log_append_time, stamp
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT, build_marker
from tests.support.compaction import LIMITS, clean
from tests.support.fault_disk import FaultDisk
from tests.support.log_model import LAST_SEQUENCE, REMEMBERED, Batch, Model, Row, check_indexes, rows_by_slices, rows_of
from tests.support.logs import TestClock, config_of, open_log

DATA = Path("/data")
IDEMPOTENT, TRANSACTIONAL = (1, 2), (3, 4)
NEAR_THE_LAST_SEQUENCE = LAST_SEQUENCE - 6


class World:
    """The log, and the list that it should be."""

    def __init__(self, seed: int) -> None:
        self.random = source = random.Random(seed)
        self.disk = FaultDisk(seed)
        self.disk.mkdir(DATA)
        self.clock = TestClock()
        self.compacts = seed % 3 == 2
        self.config = config_of(
            cleanup_policy=source.choice([("compact",), ("compact", "delete")]) if self.compacts else ("delete",),
            segment_bytes=source.choice([300, 700, 2_500]),
            index_interval_bytes=source.choice([1, 150, 4_096]),
            segment_index_bytes=source.choice([48, 10_000]),
            segment_ms=source.choice([3_000, 1 << 40]),
            segment_jitter_ms=source.choice([0, 500]),
            retention_ms=source.choice([-1, 4_000]),
            retention_bytes=source.choice([-1, 1_500]),
            delete_retention_ms=1_000,
            file_delete_delay_ms=10,
        )
        self.max_open = source.randint(1, 4)
        self.model = Model()
        self.epoch = 0
        self.epochs_known_from = 0
        """Epochs below a log start were forgotten; an old start may come back, they do not."""
        self.remembered: dict[int, int] = {}
        """How many of a producer's last batches must be known as duplicates."""
        self.is_settled = True
        """Nothing that matters was compacted away before a cut: producers are exactly those of the list."""
        self.has_hole_at_end = False
        self.held: list[tuple[LogSlice, bytes]] = []
        self.seen: Counter[str] = Counter()
        self.open(clean=True, recovery_point=0, start=0)

    def open(self, *, clean: bool, recovery_point: int, start: int) -> None:
        self.reaper = Reaper(self.disk)
        self.log: PartitionLog = open_log(
            DATA,
            self.config,
            disk=self.disk,
            clock=self.clock,
            files=OpenFiles(self.disk, self.max_open),
            reaper=self.reaper,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            cleaned_offset=self.log.cleaned_offset if hasattr(self, "log") else -1,
        )

    # What can happen: appends

    def append(self) -> None:
        """Some batches in one write."""
        staged = [self._stage() for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.12:
            self.seen["failed write"] += 1
            self.disk.fail("writev", errno.ENOSPC)
            with pytest.raises(LogWriteFailed):
                self.log.write_staged()
            del self.model.batches[len(self.model.batches) - len(staged) :]
            self.model.end = self.log.log_end_offset
            # What is remembered of a producer may have been pushed out and taken back: exactly as before.
            return
        self.log.write_staged()
        self.has_hole_at_end = False
        for batch in staged:
            if batch.producer_id >= 0 and batch.marker is None:
                self.remembered[batch.producer_id] = min(REMEMBERED, self.remembered.get(batch.producer_id, 0) + 1)

    def _stage(self) -> Batch:
        model, source = self.model, self.random
        if source.random() < 0.1:
            self.epoch += source.randint(1, 3)
        known = model.known().producers
        producer_id = source.choice([-1, -1, *IDEMPOTENT, *TRANSACTIONAL])
        producer = known.get(producer_id)
        is_open = producer is not None and producer.transaction_first_offset >= 0
        gap = source.choice([0, 0, 0, 2]) if self.compacts else 0
        base_offset = model.end + gap
        if producer is not None and is_open and source.random() < 0.5:
            marker = source.choice([ABORT, COMMIT])
            epoch = producer.epoch + source.choice([0, 1])
            coordinator_epoch = max(0, producer.coordinator_epoch) + source.choice([0, 1])
            data = bytearray(
                build_marker(
                    marker,
                    coordinator_epoch,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    now_ms=self.clock.time_ms,
                )
            )
            if epoch != producer.epoch:
                self.remembered[producer_id] = 0
            batch = Batch(
                self._placed(data, base_offset),
                self.epoch,
                producer_id,
                epoch,
                transactional=True,
                marker=marker,
                coordinator_epoch=coordinator_epoch,
            )
            self.seen["abort" if marker == ABORT else "commit"] += 1
        else:
            data, batch = self._data_batch(base_offset, producer_id)
        header = check_batch(data)
        if producer_id >= 0 and batch.marker is None and self.is_settled:
            assert self.log.producer_state.check(header) is None
        if gap or source.random() < 0.2:
            stamp(data, base_offset, self.epoch)
            offset = self.log.stage_replicated(memoryview(data), check_batch(data), self.clock.time_ms)
        else:
            offset = self.log.stage(memoryview(data), header, self.epoch, self.clock.time_ms)
        assert offset == base_offset
        model.append(batch)
        return batch

    def _data_batch(self, base_offset: int, producer_id: int) -> tuple[bytearray, Batch]:
        source = self.random
        producer = self.model.known().producers.get(producer_id)
        epoch, sequence = -1, -1
        if producer_id >= 0:
            epoch, sequence = 0, (NEAR_THE_LAST_SEQUENCE if producer_id == IDEMPOTENT[1] else 0)
            if producer is not None:
                epoch, sequence = producer.epoch, (producer.last_sequence + 1) & LAST_SEQUENCE
                is_open = producer.transaction_first_offset >= 0
                if producer.last_sequence < 0 or (source.random() < 0.1 and not is_open):
                    epoch, sequence = producer.epoch + (producer.last_sequence >= 0), 0
                    self.remembered[producer_id] = 0
        timestamp = self.clock.time_ms + source.randint(-2_000, 2_000)
        key = (lambda: b"k%d" % source.randrange(7)) if self.compacts else (lambda: source.choice([None, b"", b"key"]))
        rows = tuple(
            Row(base_offset + n, key(), self._value(), timestamp + source.randint(-5, 5))
            for n in range(source.randint(1, 4))
        )
        if source.random() < 0.05 and not self.compacts:
            rows = tuple(row._replace(timestamp=-1) for row in rows)
        codec = source.choice([0, 0, 1, 2, 3, 4])
        transactional = producer_id in TRANSACTIONAL
        data = bytearray(
            build_batch(
                [(row.timestamp, row.key, row.value, ()) for row in rows],
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
        if source.random() < 0.1:
            set_log_append_time(data, self.clock.time_ms)
            rows = tuple(row._replace(timestamp=self.clock.time_ms) for row in rows)
        self.seen[f"codec {codec}"] += 1
        return data, Batch(rows, self.epoch, producer_id, epoch, sequence, transactional)

    def _value(self) -> bytes | None:
        source = self.random
        return None if source.random() < 0.15 else source.randbytes(source.choice([0, 3, 20, 90]))

    @staticmethod
    def _placed(data: bytearray, base_offset: int) -> tuple[Row, ...]:
        return tuple(row._replace(offset=base_offset + row.offset) for row in rows_of(data))

    # What can happen: to the log as a whole

    def roll(self) -> None:
        self.log.roll(self.clock.time_ms)

    def flush(self) -> None:
        self.log.flush()
        self.log.recovery_point_stored(self.log.recovery_point)
        assert self.log.recovery_point == self.model.end

    def wait(self) -> None:
        self.clock.time_ms += self.random.choice([10, 500, 2_500])
        self.reaper.unlink(self.reaper.due(self.clock.time_ms))

    def hold_a_slice(self) -> None:
        """As an answer that is on its way."""
        offset = self.random.randint(self.model.start, self.model.end)
        piece = self.log.read(offset, 400, self.model.end)
        if piece is not None:
            self.held.append((piece.retain(), piece.read()))
        if len(self.held) > 3:
            self.held.pop(0)[0].release()

    def delete_records(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.raise_log_start(offset)
        self._starts_at(offset)

    def _starts_at(self, offset: int) -> None:
        self.model.raise_start(offset)
        self.epochs_known_from = max(self.epochs_known_from, self.model.start)

    def retain(self) -> None:
        log, now_ms = self.log, self.clock.time_ms
        high_watermark = self.random.choice([self.model.end, (self.model.start + self.model.end) // 2])
        end = log.retention_deletable(now_ms, high_watermark)
        gone = [segment for segment in log.segments if segment.next_offset <= end and segment.size_bytes]
        left = log.size_bytes
        for segment in gone:
            left -= segment.size_bytes
            rows = [row for row in self.model.rows if segment.base_offset <= row.offset < segment.next_offset]
            is_old = self.config.retention_ms >= 0 and all(
                0 <= row.timestamp < now_ms - self.config.retention_ms for row in rows
            )
            is_too_much = self.config.retention_bytes >= 0 and left >= self.config.retention_bytes
            is_below = segment.next_offset <= self.model.start
            assert is_below or (self.config.is_deleted_by_retention and (is_old or is_too_much))
            assert is_below or segment.next_offset <= high_watermark
        log.raise_log_start(min(end, self.model.end))
        log.delete_local_segments_below(end)
        self.seen["segments deleted"] += len(gone)
        self._starts_at(log.segments[0].base_offset if gone else self.model.start)

    def truncate(self) -> None:
        model = self.model
        offset = self.random.choice(
            [self.random.randint(model.start, model.end), max(model.start, model.end - self.random.randint(0, 4))]
        )
        before = model.end
        if offset < self.log.cleaned_offset:
            self.is_settled = False
        self.log.truncate_to(offset)
        model.cut(offset)
        self.epochs_known_from = min(self.epochs_known_from, model.end)
        if model.end < before:
            self.has_hole_at_end = True
            self._what_was_remembered_is_less()

    def _what_was_remembered_is_less(self) -> None:
        """Of a snapshot only the last batch of each producer is known."""
        producers = self.model.known().producers
        self.remembered = {each: min(1, len(producer.batches)) for each, producer in producers.items()}

    def begin_anew(self) -> None:
        offset = self.random.randint(0, self.model.end + 5)
        self.log.truncate_fully_and_start_at(offset)
        self.model.begin_at(offset)
        self.remembered.clear()
        self.epochs_known_from, self.is_settled, self.has_hole_at_end = offset, True, False

    def compact(self) -> None:
        if not self.compacts:
            return
        log, model = self.log, self.model
        before = {row.offset: row for row in model.rows}
        clean(log, self.disk, self.clock.time_ms, LIMITS, stable_offset=model.stable_offset(model.end))
        headers = [check_batch(batch) for batch in log.batches(log.local_log_start_offset)]
        left = {row.offset for row in rows_by_slices(log, log.local_log_start_offset, 1 << 20)}
        aborted = self._aborted_offsets()
        markers = {batch.base_offset for batch in model.batches if batch.marker is not None}
        newest = {
            row.key: row.offset
            for row in before.values()
            if row.offset < log.cleaned_offset and row.offset not in aborted | markers
        }
        for offset, row in before.items():
            if offset in left:
                continue
            is_free = offset in aborted | markers or newest[row.key] > offset or row.value is None
            assert is_free and offset < log.cleaned_offset, f"{row} is lost"
            self.seen["compacted away"] += 1
        model.gone |= before.keys() - left
        present = {header.base_offset for header in headers}
        below = log.local_log_start_offset
        model.absent = {b.base_offset for b in model.batches if b.base_offset not in present and b.next_offset > below}

    def _aborted_offsets(self) -> set[int]:
        spans = self.model.known().aborted
        return {
            row.offset
            for batch in self.model.batches
            for span in spans
            if batch.producer_id == span.producer_id and span.first_offset <= batch.base_offset < span.marker_offset
            for row in batch.rows
        }

    def restart(self) -> None:
        """A clean end, or the death of the process; then index files may be missing or full of nonsense."""
        source, log, model = self.random, self.log, self.model
        for piece, _ in self.held:
            piece.release()
        self.held.clear()
        is_clean = source.random() < 0.5
        log.close(is_clean)
        recovery_point = log.recovery_point if is_clean else source.choice([0, log.recovery_point])
        start = log.log_start_offset
        if not is_clean and log.cleaned_offset < 0 and source.random() < 0.5:
            # The newest one was not in the checkpoint yet.
            start = 0
        if source.random() < 0.5:
            self._damage_indexes(with_transactions=not is_clean and recovery_point == 0)
        first = log.segments[0].base_offset
        self.open(clean=is_clean, recovery_point=recovery_point, start=start)
        model.start = max(start, first)
        if self.has_hole_at_end and self.log.log_end_offset != model.end:
            # What compaction had taken before the cut: the log goes on behind the last batch.
            assert self.compacts
            ends = [check_batch(batch).next_offset for batch in self.log.batches(self.log.local_log_start_offset)]
            assert self.log.log_end_offset == (ends[-1] if ends else self.log.segments[-1].base_offset)
            model.end = self.log.log_end_offset
            model.start = min(model.start, model.end)
        self.seen["clean start" if is_clean else "unclean start"] += 1
        self._what_was_remembered_is_less()

    def _damage_indexes(self, *, with_transactions: bool) -> None:
        source, disk = self.random, self.disk
        suffixes = (".index", ".timeindex", ".txnindex") if with_transactions else (".index", ".timeindex")
        for name in disk.listdir(self.log.directory):
            if not name.endswith(suffixes) or source.random() < 0.5:
                continue
            inode = disk.names[self.log.directory / name]
            kind = source.choice(["gone", "a piece", "zeros", "falling"])
            self.seen[f"index: {kind}"] += 1
            if kind == "gone":
                disk.unlink(self.log.directory / name)
            elif kind == "a piece":
                inode.data[:] = b"\1" * 5
            elif kind == "zeros":
                inode.data[:] = bytes(len(inode.data))
            else:
                inode.data[:] = b"".join(b"\x7f" + bytes([255 - n]) * 11 for n in range(4)) * 6

    # What always holds

    def check(self) -> None:
        log, model, source = self.log, self.model, self.random
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.segments[0].base_offset <= model.start
        assert log.recovery_point <= model.end
        rows = model.rows
        assert rows_by_slices(log, model.start, source.choice([1, 300, 2_000])) == rows
        offset = source.randint(model.start, model.end)
        assert rows_by_slices(log, offset, 500) == [row for row in rows if row.offset >= offset]
        self._check_times(rows)
        self._check_epochs()
        self._check_transactions()
        self._check_producers()
        for segment in log.segments:
            check_indexes(segment)
        for piece, content in self.held:
            assert piece.read() == content, "a slice on its way keeps its bytes"
        assert len(self.disk.descriptors) <= self.max_open + 1 + len(self.held)

    def _check_times(self, rows: list[Row]) -> None:
        # Emptied batches keep a time that no record has; so a search by the latest needs the records themselves.
        times = [row.timestamp for row in rows]
        latest = max(times, default=-1)
        for wanted in (0, self.random.choice(times or [0]), latest, latest + 1):
            expected = next(((row.offset, row.timestamp) for row in rows if row.timestamp >= max(0, wanted)), None)
            assert self.log.offset_for_timestamp(max(0, wanted)) == expected
        if self.log.segments[0].base_offset == self.model.start and latest >= 0:
            expected = next((row.offset, row.timestamp) for row in rows if row.timestamp == latest)
            assert self.log.offset_of_max_timestamp() == expected

    def _check_epochs(self) -> None:
        model, cache = self.model, self.log.leader_epochs
        for batch in model.batches:
            if batch.base_offset >= self.epochs_known_from and batch.base_offset not in model.absent:
                assert cache.epoch_for(batch.base_offset) == batch.leader_epoch
        if not self.compacts and model.start >= self.epochs_known_from:
            found = [entry for entry in cache.entries if entry[1] < model.end]
            assert found == model.leader_epochs

    def _check_transactions(self) -> None:
        log, model, source = self.log, self.model, self.random
        known = model.known()
        first = source.randint(model.start, model.end)
        for start, end in ((model.start, model.end), (first, source.randint(first, model.end))):
            found = [
                (entry.producer_id, entry.first_offset, entry.last_offset)
                for entry in log.aborted_transactions(start, end)
            ]
            wanted = [tuple(each) for each in known.aborted if each.marker_offset >= start and each.first_offset < end]
            if self.compacts:
                # Of those whose records are gone nobody needs to know.
                kept = {row.offset for row in model.rows}
                needed = [
                    each
                    for each in wanted
                    if any(
                        b.producer_id == each[0] and each[1] <= row.offset < each[2] and row.offset in kept
                        for b in model.batches
                        for row in b.rows
                    )
                ]
                assert self.is_settled is False or set(needed) <= set(found) <= set(wanted)
            else:
                assert found == wanted
        if self.is_settled:
            assert log.last_stable_offset(model.end) == model.stable_offset(model.end)

    def _check_producers(self) -> None:
        entries, known = self.log.producer_state.entries, self.model.known().producers
        if not self.is_settled:
            return
        assert entries.keys() == known.keys()
        for producer_id, producer in known.items():
            entry = entries[producer_id]
            assert (entry.epoch, entry.last_sequence) == (producer.epoch, producer.last_sequence)
            assert entry.transaction_first_offset == producer.transaction_first_offset
            if not self.compacts:
                assert entry.coordinator_epoch == producer.coordinator_epoch
            for age, batch in enumerate(reversed(producer.batches)):
                verdict = self.log.producer_state.check(header_of(batch))
                repeated = Duplicate(batch.base_offset, batch.last_offset, 0)
                if isinstance(verdict, Duplicate):
                    assert verdict[:2] == repeated[:2]
                else:
                    assert age >= self.remembered.get(producer_id, 0)
                    assert verdict is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if producer.last_sequence >= 0:
                ahead = (producer.last_sequence + 3) & LAST_SEQUENCE
                wrong = header_of(producer.batches[-1])._replace(base_sequence=ahead)
                assert self.log.producer_state.check(wrong) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            old = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, producer_id, producer.epoch - 1, 0, 1)
            assert self.log.producer_state.check(old) is ErrorCode.INVALID_PRODUCER_EPOCH

    @property
    def deeds(self) -> list[Callable[[], None]]:
        often = [self.append] * 12 + [self.roll] * 2 + [self.flush] * 3 + [self.restart] * 3 + [self.compact] * 3
        rarely = [self.begin_anew] if self.random.random() < 0.1 else []
        at_times = [self.wait, self.retain, self.delete_records, self.truncate, self.truncate, self.hold_a_slice]
        return often + at_times + rarely


def header_of(batch: Batch) -> BatchHeader:
    count = len(batch.rows)
    return BatchHeader(
        0, 0, 0, 2, 0, 0, count - 1, 0, 0, batch.producer_id, batch.producer_epoch, batch.base_sequence, count
    )
