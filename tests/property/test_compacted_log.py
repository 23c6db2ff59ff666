"""A compacted log under random operations keeps what it must keep, and finds everything in spite of the holes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.log.cleaner import CleaningRound
from appliance.log.compacted_log import CleanerLimits
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch, split_batches
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records
from tests.support.compaction import append_batch, clean, keyed, put_in_place, roll_and_flush
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, config_of, open_log
from tests.support.seeds import seeds

DATA = Path("/data")
STEPS = 40
DELETE_RETENTION_MS = 2_000


@dataclass(frozen=True)
class Known:
    """A record that should be in the log."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    batch_end: int


class World:
    """The log, and what it should hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = FaultDisk(seed)
        self.disk.mkdir(DATA)
        self.clock = TestClock()
        self.config = config_of(
            cleanup_policy=self.random.choice([("compact",), ("compact", "delete")]),
            segment_bytes=self.random.choice([300, 700, 2_000]),
            index_interval_bytes=self.random.choice([1, 100, 4_096]),
            segment_index_bytes=self.random.choice([60, 10_000]),
            delete_retention_ms=DELETE_RETENTION_MS,
            min_compaction_lag_ms=self.random.choice([0, 0, 400]),
            retention_ms=20_000,
            retention_bytes=-1,
            file_delete_delay_ms=10,
        )
        self.limits = CleanerLimits(1 << 20, 1e300)
        self.known: list[Known] = []
        self.sequences: dict[int, int] = {}
        self.was_cut = False
        self.open(clean=True, recovery_point=0, cleaned_offset=-1)

    def open(self, *, clean: bool, recovery_point: int, cleaned_offset: int, start: int = 0, **changes: object) -> None:
        self.reaper = Reaper(self.disk)
        self.log: PartitionLog = open_log(
            DATA,
            config_of(**{field: getattr(self.config, field) for field in self.config.__slots__} | changes),
            disk=self.disk,
            clock=self.clock,
            files=OpenFiles(self.disk, 3),
            reaper=self.reaper,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            cleaned_offset=cleaned_offset,
        )

    def append(self) -> None:
        producer = self.random.choice([-1, -1, 0, 1])
        rows = [
            (b"k%d" % self.random.randrange(8), self.random.choice([None, b"v", b"w" * self.random.randint(1, 90)]))
            for _ in range(self.random.randint(1, 4))
        ]
        options = {}
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer] = sequence + len(rows)
        timestamp = self.clock.time_ms + self.random.randint(-300, 300)
        batch = keyed(*rows, timestamp=timestamp, codec=self.random.choice([0, 0, 2]), **options)
        base = append_batch(self.log, batch, self.clock.time_ms)
        for n, (key, value) in enumerate(rows):
            self.known.append(Known(base + n, key, value, timestamp + n, base + len(rows)))

    def roll(self) -> None:
        roll_and_flush(self.log, self.clock.time_ms)

    def wait(self) -> None:
        self.clock.time_ms += self.random.choice([10, 500, 3_000])
        self.reaper.unlink(self.reaper.due(self.clock.time_ms))

    def truncate(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = end - min(end - start, self.random.choice([1, 3, 20]))
        self.log.truncate_to(offset)
        self.was_cut = True
        assert self.log.log_end_offset <= offset and self.log.cleaned_offset <= offset
        self.known = [record for record in self.known if record.batch_end <= offset]
        self.sequences = {key: entry.last_sequence + 1 for key, entry in self.log.producer_state.entries.items()}
        self.log.log_start_offset = min(self.log.log_start_offset, self.log.log_end_offset)

    def retain(self) -> None:
        end = self.log.retention_deletable(self.clock.time_ms)
        if self.log.config.is_deleted_by_retention and end > self.log.log_start_offset:
            self.log.raise_log_start(end)
            self.log.delete_local_segments_below(end)
            self.known = [record for record in self.known if record.offset >= end]

    def restart(self) -> None:
        log, clean = self.log, self.random.random() < 0.5
        log.close(clean)
        recovery_point = self.random.choice([0, log.recovery_point])
        # One of the two files that tell where holes may be is enough.
        cleaned_offset = log.cleaned_offset if recovery_point == 0 else self.random.choice([-1, log.cleaned_offset])
        policy = self.random.choice([("compact",), ("compact", "delete"), ("delete",)])
        self.open(
            clean=clean,
            recovery_point=recovery_point,
            cleaned_offset=cleaned_offset,
            start=log.log_start_offset,
            cleanup_policy=policy,
        )
        if self.log.log_end_offset != log.log_end_offset:
            # It was cut to where nothing stands any more; the next append goes on behind the last batch.
            assert self.was_cut
            ends = [check_batch(batch).next_offset for batch in self.log.batches(self.log.local_log_start_offset)]
            assert self.log.log_end_offset == (ends[-1] if ends else self.log.segments[-1].base_offset)

    def compact(self) -> None:
        cleaned_before = self.log.cleaned_offset
        clean(self.log, self.disk, self.clock.time_ms, self.limits)
        self.take_in(cleaned_before)

    def take_in(self, cleaned_before: int) -> None:
        """What has gone must have been free to go."""
        left = self.present()
        offsets = {record.offset for record in left}
        newest = {record.key: record for record in self.known}
        end = self.log.cleaned_offset
        for record in self.known:
            if record.offset in offsets:
                continue
            is_free = newest[record.key].offset > record.offset or record.value is None
            assert is_free and record.offset < end, f"{record} is lost"
        seen: set[bytes] = set()
        for record in reversed([record for record in left if record.offset < end]):
            if record.offset >= cleaned_before or record.key not in seen:
                assert record.key not in seen, f"{record} should have gone"
            seen.add(record.key)
        self.known = [record for record in self.known if record.offset in offsets]

    def compact_while_it_goes_on(self) -> None:
        """A group of segments is replaced while others are appended to, cut or deleted."""
        log = self.log
        for segment in log.unlearned_segments():
            segment.learn_times()
        part = log.cleanable_part(log.log_end_offset, self.clock.time_ms)
        if not part.cleanable_bytes:
            return
        job, sources = log.cleaning_job(part, self.limits, self.clock.time_ms)
        known_then, end = list(self.known), job.first_uncleanable_offset
        try:
            for cleaned in CleaningRound(job, self.disk).run():
                group, sources = sources[: len(cleaned.sources)], sources[len(cleaned.sources) :]
                self.random.choice([self.append, self.append, self.roll, self.retain, self.truncate, self.wait])()
                replacement = log.replacement(cleaned, group)
                replacement.prepare()
                if not log.replace(replacement):
                    replacement.discard()
                    continue
                if self.random.random() < 0.5:
                    self.random.choice([self.append, self.truncate, self.retain, self.roll])()
                replacement.finish(self.clock.time_ms)
                log.replaced(replacement)
        except (CorruptBatch, FileNotFoundError):
            # It was cut, or deleted from, while it was read.
            assert log.was_cut_meanwhile or log.segments[0].base_offset > job.segments[0].base_offset
        # Not told that it was cleaned: what is left of it is dirty still.
        offsets = {record.offset for record in self.present()}
        newest = {record.key: record.offset for record in known_then if record.offset < end}
        for record in self.known:
            if record.offset not in offsets:
                assert record.offset < newest[record.key] or record.value is None, f"{record} is lost"
        self.known = [record for record in self.known if record.offset in offsets]

    def present(self) -> list[Known]:
        """Every record that a scan finds."""
        found: list[Known] = []
        previous = -1
        for batch in self.log.batches(self.log.local_log_start_offset):
            header = check_batch(batch)
            assert header.base_offset > previous
            previous = header.last_offset
            for record in read_records(batch):
                assert record.key is not None
                if record.offset >= self.log.log_start_offset:
                    found.append(Known(record.offset, record.key, record.value, record.timestamp, header.next_offset))
        return found

    def check(self) -> None:
        assert self.present() == self.known
        log = self.log
        for offset in {log.log_start_offset, *(record.offset for record in self.known[::3]), log.log_end_offset}:
            following = next((record for record in self.known if record.offset >= offset), None)
            at, found = offset, None
            while found is None and (piece := log.read(at, 150, log.log_end_offset)) is not None:
                for batch in split_batches(piece.read()):
                    at = check_batch(batch).next_offset
                    if found is None:
                        found = next((r.offset for r in read_records(batch) if r.offset >= offset), None)
            assert found == (following.offset if following else None)
        times = sorted({record.timestamp for record in self.known})
        for wanted in (0, *times[:1], *times[-1:], START_MS + 1_000):
            expected = next(((r.offset, r.timestamp) for r in self.known if r.timestamp >= wanted), None)
            assert log.offset_for_timestamp(wanted) == expected
        if times:
            first = next(record for record in self.known if record.timestamp == times[-1])
            assert log.offset_of_max_timestamp() == (first.offset, first.timestamp)
        for producer, sequence in self.sequences.items():
            entry = log.producer_state.entries.get(producer)
            assert entry is None or entry.last_sequence == sequence - 1
        assert len(self.disk.descriptors) <= 5


@pytest.mark.parametrize("seed", seeds(20))
def test_a_compacted_log_keeps_the_newest_of_each_key(seed: int) -> None:
    world = World(seed)
    deeds = [world.append] * 8 + [world.roll] * 2 + [world.compact] * 3 + [world.compact_while_it_goes_on]
    deeds += [world.wait, world.truncate, world.retain, world.restart]
    done: list[str] = []
    try:
        for _ in range(STEPS):
            deed = world.random.choice(deeds)
            done.append(deed.__name__)
            deed()
            world.check()
    except Exception as error:
        raise AssertionError(f"seed {seed} after {done}") from error


def test_the_model_notices_a_record_too_few() -> None:
    world = World(0)
    for _ in range(30):
        world.append()
    world.roll()
    segment = world.log.segments[1]
    part = world.log.cleanable_part(world.log.log_end_offset, world.clock.time_ms + 10_000)
    job, sources = world.log.cleaning_job(part, world.limits, world.clock.time_ms)
    at = next(n for n, source in enumerate(sources) if source is segment)
    job.segments[:] = job.segments[at : at + 1]
    for cleaned in CleaningRound(job, world.disk).run():
        put_in_place(world.log, cleaned, [segment])
    with pytest.raises(AssertionError):
        world.check()
