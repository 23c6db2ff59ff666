"""A log is cleaned on a disk that dies at every single change, and opened again.

What must hold, whatever the disk kept:
- nothing is invented: each record is one that was appended at that offset, and none is there twice;
- the newest record of each key is there, unless it is a tombstone whose time is over; records of committed
  transactions are there, those of aborted ones are told as such or gone;
- the log ends where it ended, producers have their sequences, and it can be appended to and cleaned again.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from appliance.base.config import TopicConfig
from appliance.log.errors import OffsetOutOfRange
from appliance.log.indexes import AbortedTransaction
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch
from appliance.records.control import ABORT, COMMIT, build_marker
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records
from tests.support.compaction import append_batch, append_keyed, clean, clean_all, keyed, roll_and_flush
from tests.support.fault_disk import FaultDisk, Inode, PowerCut
from tests.support.logs import START_MS, TestClock, config_of, open_log
from tests.support.seeds import seeds

DATA = Path("/data")
KEYS = 15
DELETE_RETENTION_MS = 1_000
CUTS_APART = 7
"""With SEEDS set every change to the disk is a place to cut, else every seventh."""


@dataclass
class Model:
    """What the test knows that it did."""

    records: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    """Offsets of aborted records."""
    sequences: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def newest(self) -> dict[bytes, int]:
        return {key: offset for offset, (key, _) in sorted(self.records.items()) if offset not in self.aborted}


def config_for(seed: int) -> TopicConfig:
    source = random.Random(seed)
    return config_of(
        cleanup_policy=("compact",),
        segment_bytes=source.choice([700, 1_100, 2_000]),
        index_interval_bytes=source.choice([60, 300]),
        delete_retention_ms=DELETE_RETENTION_MS,
        file_delete_delay_ms=0,
    )


def fill(seed: int, log: PartitionLog, model: Model) -> None:
    """Keyed records, tombstones, producers and transactions; all in closed segments, and durable."""
    source = random.Random(seed)
    open_since: dict[int, list[int]] = {}
    for _ in range(30):
        producer = source.choice([-1, -1, 1, 2, 3])
        if producer == 3 and open_since.get(3) and source.random() < 0.5:
            kind = source.choice([ABORT, COMMIT])
            append_batch(log, bytearray(build_marker(kind, 1, producer_id=3, producer_epoch=0, now_ms=START_MS)))
            if kind == ABORT:
                model.aborted.update(open_since[3])
            open_since.clear()
            model.end += 1
            continue
        rows = [
            (
                b"k%d" % source.randrange(KEYS),
                None if source.random() < 0.2 else source.randbytes(source.randint(1, 60)),
            )
            for _ in range(source.randint(1, 4))
        ]
        sequence = model.sequences.get(producer, 0)
        options: dict[str, int | bool] = {}
        if producer >= 0:
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            model.sequences[producer] = sequence + len(rows)
        offsets = range(model.end, model.end + len(rows))
        if producer == 3:
            options["transactional"] = True
            open_since.setdefault(3, []).extend(offsets)
        batch = keyed(*rows, timestamp=START_MS + source.randint(0, 500), codec=source.choice([0, 0, 1, 3]), **options)
        assert append_batch(log, batch) == model.end
        model.records.update(zip(offsets, rows, strict=True))
        model.end += len(rows)
    if open_since:
        append_batch(log, bytearray(build_marker(COMMIT, 1, producer_id=3, producer_epoch=0, now_ms=START_MS)))
        model.end += 1
    roll_and_flush(log)


def reopen(
    disk: FaultDisk, seed: int, recovery_point: int, cleaned_offset: int, *, clean: bool = False
) -> PartitionLog:
    return open_log(
        DATA,
        config_for(seed),
        disk=disk,
        clock=TestClock(),
        files=OpenFiles(disk, 3),
        reaper=Reaper(disk),
        clean=clean,
        recovery_point=recovery_point,
        cleaned_offset=cleaned_offset,
    )


def check(log: PartitionLog, model: Model, now_ms: int) -> None:
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    sequences: dict[int, int] = {}
    previous_end = 0
    told = {offset for entry in log.aborted_transactions(0, log.log_end_offset) for offset in _range(entry)}
    assert log.log_end_offset == model.end
    for batch in log.batches(log.local_log_start_offset):
        header = check_batch(batch)
        assert header.base_offset >= previous_end, "no batch is there twice"
        previous_end = header.next_offset
        if header.is_control:
            continue
        if header.producer_id >= 0:
            sequences[header.producer_id] = header.last_sequence
        for record in read_records(batch):
            assert record.offset not in found
            found[record.offset] = (record.key, record.value)
            if record.offset in model.aborted:
                assert record.offset in told
    for offset, record in found.items():
        assert model.records[offset] == record, "nothing is invented"
    for key, offset in model.newest().items():
        is_due_tombstone = model.records[offset][1] is None and now_ms >= START_MS + DELETE_RETENTION_MS
        assert offset in found or is_due_tombstone, f"{key!r} at {offset} is lost"
    entries = log.producer_state.entries
    for producer, next_sequence in model.sequences.items():
        if producer >= 0:
            assert entries[producer].last_sequence == next_sequence - 1
            assert sequences[producer] == next_sequence - 1
    # By slices, as consumers read, from any offset.
    for offset in range(0, model.end, 7):
        wanted = [known for known in sorted(found) if known >= offset]
        piece = log.read(max(offset, log.local_log_start_offset), 1 << 20, log.log_end_offset)
        if wanted:
            assert piece is not None


def _range(entry: AbortedTransaction) -> range:
    return range(entry.first_offset, entry.last_offset)


def new_disk(seed: int) -> FaultDisk:
    disk = FaultDisk(seed, page_bytes=64)
    disk.mkdir(DATA)
    disk.fsync_directory(Path("/"))
    return disk


def clone(disk: FaultDisk, seed: int) -> FaultDisk:
    """A disk with the same durable content, nothing in doubt."""
    other = FaultDisk(seed, page_bytes=64)
    inodes = {
        id(inode): Inode(bytearray(inode.data), bytes(inode.data), inode.is_directory) for inode in disk.names.values()
    }
    other.names = {name: inodes[id(inode)] for name, inode in disk.names.items()}
    other.durable_names = dict(other.names)
    return other


NOW = (START_MS, START_MS + 2 * DELETE_RETENTION_MS)


def life(disk: FaultDisk, seed: int, end: int) -> None:
    """Two rounds: the second merges segments, and drops tombstones and markers."""
    log = reopen(disk, seed, end, -1, clean=True)
    log.stored_recovery_point = end
    for now_ms in NOW:
        log.cleaned_offset = -1
        clean(log, disk, now_ms)
        reaper = log._reaper
        reaper.unlink(reaper.due(now_ms))


@pytest.mark.parametrize("power_cut", [True, False], ids=["power", "process"])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_crash_while_a_log_is_cleaned_breaks_no_promise(seed: int, power_cut: bool) -> None:
    filled, model = new_disk(seed), Model()
    log = reopen(filled, seed, 0, -1)
    fill(seed, log, model)
    log.close(clean=True)
    whole = clone(filled, seed)
    life(whole, seed, model.end)
    assert whole.steps > 60
    every = 1 if "SEEDS" in os.environ else CUTS_APART
    for cut_at in range(1 + seed % every, whole.steps + 1, every):
        disk = clone(filled, seed * 100_003 + cut_at)
        disk.cut_at = cut_at
        with pytest.raises(PowerCut):
            life(disk, seed, model.end)
        disk.restart(power_cut=power_cut)
        try:
            start_again(disk, seed, model, cut_at)
        except Exception as error:
            raise AssertionError(f"seed {seed}, cut at step {cut_at} of {whole.steps}") from error


def start_again(disk: FaultDisk, seed: int, model: Model, cut_at: int) -> None:
    # The recovery point may be known, or the file that says it may be damaged.
    recovery_point = model.end if cut_at % 2 else 0
    log = reopen(disk, seed, recovery_point, -1)
    check(log, model, NOW[1])
    assert not [name for name in disk.listdir(log.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]
    log.close(clean=True)
    log = reopen(disk, seed, model.end, -1, clean=True)
    append_keyed(log, (b"after", b"the crash"))
    later = Model(dict(model.records), set(model.aborted), dict(model.sequences), model.end + 1)
    later.records[model.end] = (b"after", b"the crash")
    roll_and_flush(log)
    clean_all(log, disk, NOW[0])
    check(log, later, NOW[1])
    log.close(clean=True)


@pytest.mark.parametrize("seed", seeds(1))
def test_a_crash_while_a_start_finishes_a_replacement_breaks_no_promise(seed: int) -> None:
    filled, model = new_disk(seed), Model()
    log = reopen(filled, seed, 0, -1)
    fill(seed, log, model)
    log.close(clean=True)
    whole = clone(filled, seed)
    life(whole, seed, model.end)
    for cut_at in range(20, whole.steps, 13):
        for again_at in range(1, 12, 3):
            disk = clone(filled, seed * 100_003 + cut_at)
            disk.cut_at = cut_at
            with pytest.raises(PowerCut):
                life(disk, seed, model.end)
            disk.restart(power_cut=True)
            disk.cut_at = disk.steps + again_at
            try:
                log = reopen(disk, seed, model.end, -1)
                log.close(clean=False)
            except PowerCut:
                disk.restart(power_cut=True)
            disk.cut_at = -1
            try:
                start_again(disk, seed, model, cut_at)
            except Exception as error:
                raise AssertionError(f"seed {seed}, cut at {cut_at}, then at {again_at}") from error


@pytest.mark.parametrize("flush", ["fdatasync", "fsync_directory"])
def test_a_disk_that_lies_about_its_flushes_is_noticed(monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    """The tests above can fail: without these flushes some starts lose records."""
    filled, model = new_disk(0), Model()
    log = reopen(filled, 0, 0, -1)
    fill(0, log, model)
    log.close(clean=True)
    monkeypatch.setattr(FaultDisk, flush, lambda disk, _: disk._step())
    broken = 0
    for cut_at in range(20, 180, 3):
        disk = clone(filled, cut_at)
        disk.cut_at = cut_at
        with pytest.raises(PowerCut):
            life(disk, 0, model.end)
        disk.restart(power_cut=True)
        try:
            start_again(disk, 0, model, cut_at)
        except (AssertionError, CorruptBatch, OffsetOutOfRange):
            broken += 1
    assert broken > 3
