"""A scripted life of a broker's log is cut short at every single change to the disk, and started again.

What must hold, whatever the disk kept:
- nothing is invented: each record is one that was staged at that offset, with a valid crc;
- offsets are dense from the log start to the log end;
- what was flushed is there; when only the process died, everything that was written is there;
- leader epochs and producers fit the records, and the log can be written to again.
"""

from __future__ import annotations

import os
import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from appliance.base.config import TopicConfig
from appliance.base.ids import TopicPartition
from appliance.base.randomness import SeededRandomness
from appliance.log.indexes import AbortedTransaction
from appliance.log.log_manager import DirectoryLock, LogManager, Shutdown
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch, split_batches
from appliance.records.control import ABORT, COMMIT, build_marker, read_marker
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records
from tests.support.fault_disk import FaultDisk, PowerCut
from tests.support.logs import START_MS, TestClock, batch_of, config_of
from tests.support.seeds import seeds

DATA = Path("/data")
ORDERS = TopicPartition("orders", 0)
ORDERS_ID = uuid.UUID(int=0xABCD)
OPERATIONS = 45
CUTS_APART = 5
"""With SEEDS set every change to the disk is a place to cut, else every fifth."""


class NoLock(DirectoryLock):
    """The disk in memory belongs to this test alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def release(self) -> None:
        pass


@dataclass
class Model:
    """What the test knows that it did."""

    batches: dict[int, bytes] = field(default_factory=dict)
    """Base offset to the bytes as they were staged."""
    staged_end: int = 0
    written_end: int = 0
    flushed_end: int = 0
    log_start: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    transactions: set[int] = field(default_factory=set)
    closed_cleanly: bool = False


def open_manager(disk: FaultDisk, boot_id: str) -> LogManager:
    return LogManager(
        DATA,
        broker_id=1,
        cluster_id="c",
        clock=TestClock(),
        disk=disk,
        randomness=SeededRandomness(1),
        boot_id=boot_id,
        lock=NoLock,
        max_open_segments=3,
    )


def config_for(seed: int) -> TopicConfig:
    source = random.Random(seed)
    return config_of(
        segment_bytes=source.choice([300, 700, 2_000]),
        index_interval_bytes=source.choice([60, 200, 1_000]),
        retention_bytes=source.choice([-1, 1_500]),
        retention_ms=-1,
        file_delete_delay_ms=0,
    )


def new_disk(seed: int) -> FaultDisk:
    # Small pages, as the files are small too.
    disk = FaultDisk(seed, page_bytes=64)
    disk.mkdir(DATA)
    disk.fsync_directory(Path("/"))
    disk.steps = 0
    return disk


def live(seed: int, disk: FaultDisk, model: Model) -> None:
    """One life, the same for the same seed up to where the disk dies."""
    source = random.Random(seed)
    manager = open_manager(disk, "boot-1")
    log = manager.create(ORDERS, ORDERS_ID, config_for(seed))
    epoch = 0
    for _ in range(OPERATIONS):
        choice = source.random()
        if choice < 0.55:
            for _ in range(source.randint(1, 4)):
                stage_one(source, log, model, epoch)
            log.write_staged()
            model.written_end = model.staged_end
        elif choice < 0.67:
            log.flush()
            model.flushed_end = max(model.flushed_end, log.recovery_point)
        elif choice < 0.77:
            manager.checkpoint({ORDERS: log.log_end_offset})()
        elif choice < 0.82:
            log.roll(START_MS)
        elif choice < 0.88:
            epoch += 1
            log.leader_epochs.assign(epoch, log.log_end_offset)
        elif choice < 0.95:
            end = log.retention_deletable(START_MS)
            model.log_start = max(model.log_start, end)
            log.raise_log_start(end)
            log.delete_local_segments_below(end)
        else:
            manager.unlink(manager.due_deletions(START_MS))
    manager.close({ORDERS: log.log_end_offset})
    model.flushed_end = model.written_end
    model.closed_cleanly = True


def stage_one(source: random.Random, log: PartitionLog, model: Model, epoch: int) -> None:
    producer = source.randint(0, 3)
    if producer in model.transactions and source.random() < 0.4:
        model.transactions.discard(producer)
        kind = source.choice([ABORT, COMMIT])
        batch = bytearray(build_marker(kind, 1, producer_id=producer, producer_epoch=0, now_ms=START_MS))
    else:
        values = [source.randbytes(source.randint(1, 90)) for _ in range(source.randint(1, 3))]
        sequence = model.sequences.get(producer, 0)
        transactional = producer == 3
        batch = batch_of(
            *values,
            timestamp=START_MS + source.randint(0, 1_000),
            codec=source.choice([0, 0, 1]),
            producer_id=producer if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence if producer else -1,
            transactional=transactional,
        )
        if transactional:
            model.transactions.add(producer)
        model.sequences[producer] = sequence + len(values)
    header = check_batch(batch)
    offset = model.staged_end
    model.staged_end += header.last_offset_delta + 1
    assert log.stage(memoryview(batch), header, epoch, START_MS) == offset
    model.batches[offset] = bytes(batch)


def check(log: PartitionLog, model: Model) -> None:
    offset = log.log_start_offset
    sequences: dict[int, int] = {}
    while offset < log.log_end_offset:
        piece = log.read(offset, 400, log.log_end_offset)
        assert piece is not None
        data = piece.read()
        assert sum(map(len, split_batches(data))) == piece.length == len(data)
        for batch in split_batches(data):
            header = check_batch(batch)
            assert header.base_offset == offset, "offsets are dense"
            assert bytes(batch) == model.batches[offset], "nothing is invented"
            assert log.leader_epochs.epoch_for(offset) == header.partition_leader_epoch
            assert list(read_records(batch))
            if not header.is_control and header.producer_id >= 0:
                sequences[header.producer_id] = header.last_sequence
            offset = header.next_offset
    known = log.producer_state.entries
    assert {producer: known[producer].last_sequence for producer in sequences} == sequences
    # What began below the first segment may have been forgotten with its beginning.
    start = log.segments[0].base_offset
    for since in (0, start):
        ongoing, aborted = transactions_in(model, since, log.log_end_offset)
        if log.producer_state.ongoing_transactions == ongoing:
            break
    else:
        raise AssertionError(f"{log.producer_state.ongoing_transactions} are open, not {ongoing}")
    found = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in all_aborted(log)}
    for producer, first, marker in aborted:
        if first >= start:
            assert found.pop((producer, marker)) == first
        else:
            found.pop((producer, marker), None)
    assert not found


def all_aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(log.segments[0].base_offset, log.log_end_offset)


def transactions_in(model: Model, start: int, end: int) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """(producer, first offset) of what is open at `end`, (producer, first offset, marker) of what was aborted."""
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for offset, batch in sorted(model.batches.items()):
        header = check_batch(batch)
        if not start <= offset < end or not header.is_transactional:
            continue
        if not header.is_control:
            open_since.setdefault(header.producer_id, offset)
        elif (first := open_since.pop(header.producer_id, None)) is not None:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                aborted.append((header.producer_id, first, offset))
    return sorted(open_since.items(), key=lambda pair: pair[1]), aborted


def start_again(disk: FaultDisk, seed: int, model: Model, *, power_cut: bool) -> None:
    manager = open_manager(disk, "boot-2" if power_cut else "boot-1")
    if manager.last_shutdown is Shutdown.CLEAN:
        # The close may have been complete but for its answer.
        assert disk.names
    logs = manager.load_all(lambda topic: config_for(seed))
    if ORDERS not in logs:
        assert model.written_end == 0 or (power_cut and model.flushed_end == 0)
        return
    log = logs[ORDERS]
    promised = model.flushed_end if power_cut else model.written_end
    assert promised <= log.log_end_offset <= model.staged_end
    assert log.log_start_offset <= max(model.log_start, 0)
    check(log, model)

    end = log.log_end_offset
    batch = batch_of(b"after the crash")
    assert log.stage(memoryview(batch), check_batch(batch), 1_000, START_MS) == end
    log.write_staged()
    again = dict(model.batches)
    again[end] = bytes(batch)
    later = Model(batches={offset: data for offset, data in again.items() if offset <= end})
    check(log, later)
    manager.close({})
    manager = open_manager(disk, "boot-3")
    assert manager.last_shutdown is Shutdown.CLEAN
    log = manager.load_all(lambda topic: config_for(seed))[ORDERS]
    assert log.log_end_offset == end + 1
    check(log, later)


@pytest.mark.parametrize("power_cut", [True, False], ids=["power", "process"])
@pytest.mark.parametrize("seed", seeds(4))
def test_a_crash_at_any_change_to_the_disk_breaks_no_promise(seed: int, power_cut: bool) -> None:
    whole = new_disk(seed)
    model = Model()
    live(seed, whole, model)
    assert model.closed_cleanly and whole.steps > 100
    every = 1 if "SEEDS" in os.environ else CUTS_APART
    for cut_at in range(1 + seed % every, whole.steps + 1, every):
        disk, model = new_disk(seed * 100_003 + cut_at), Model()
        disk.cut_at = cut_at
        with pytest.raises(PowerCut):
            live(seed, disk, model)
        disk.restart(power_cut=power_cut)
        try:
            start_again(disk, seed, model, power_cut=power_cut)
        except Exception as error:
            raise AssertionError(f"seed {seed}, cut at step {cut_at} of {whole.steps}") from error


def test_a_disk_that_lies_about_its_flushes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without durable records many of these starts break a promise."""
    monkeypatch.setattr(FaultDisk, "fdatasync", lambda disk, descriptor: disk._step())
    broken = 0
    for cut_at in range(40, 300, 20):
        disk, model = new_disk(cut_at), Model()
        disk.cut_at = cut_at
        with pytest.raises(PowerCut):
            live(0, disk, model)
        disk.restart(power_cut=True)
        try:
            start_again(disk, 0, model, power_cut=True)
        except (AssertionError, CorruptBatch):
            broken += 1
    assert broken > 3
