"""A scripted life of a broker's logs on a disk in memory, what was promised on the way, and whether it was kept.

The life has appends, transactions, rolls, flushes, checkpoints, retention, cuts by a follower, a second topic that is
deleted and begun anew, and ends in good order that another life follows.

What must hold after a crash, whatever the disk kept:
- nothing is invented: what is found is the beginning of what the log was, now or before a cut, each batch as staged;
- offsets are dense from the log start to the log end, every crc holds;
- what was flushed is there; when only the process died, everything that was written is there;
- leader epochs, producers and transactions fit the records.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance.base.config import TopicConfig
from appliance.base.ids import TopicPartition
from appliance.base.randomness import SeededRandomness
from appliance.log.indexes import AbortedTransaction
from appliance.log.log_manager import DirectoryLock, LogManager
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch, split_batches
from appliance.records.control import ABORT, COMMIT, build_marker, read_marker
from appliance.records.reader import read_records
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, batch_of, config_of

DATA = Path("/data")
ORDERS = TopicPartition("orders", 0)
ORDERS_ID = uuid.UUID(int=0xABCD)
CARTS = TopicPartition("carts", 3)
OPERATIONS = 30
LIVES = 2

Timeline = dict[int, bytes]
"""Base offset to the bytes of the batch as it was staged."""


class NoLock(DirectoryLock):
    """The disk in memory belongs to this test alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def release(self) -> None:
        pass


@dataclass
class OtherTopic:
    """What was done with a topic that comes and goes."""

    topic_id: uuid.UUID | None = None
    deleted: set[uuid.UUID] = field(default_factory=set)
    staged: dict[uuid.UUID, list[bytes]] = field(default_factory=dict)
    flushed: int = 0


@dataclass
class Model:
    """What the test knows that it did."""

    batches: Timeline = field(default_factory=dict)
    earlier: list[Timeline] = field(default_factory=list)
    """What the log was before each cut."""
    staged_end: int = 0
    written_end: int = 0
    flushed_end: int = 0
    log_start: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    transactions: set[int] = field(default_factory=set)
    carts: OtherTopic = field(default_factory=OtherTopic)

    def cut(self, end: int) -> None:
        self.earlier.append(dict(self.batches))
        self.batches = {offset: batch for offset, batch in self.batches.items() if offset < end}
        self.staged_end = end
        self.written_end, self.flushed_end = min(self.written_end, end), min(self.flushed_end, end)

    def boundary_at_most(self, offset: int) -> int:
        ends = [0, *(check_batch(batch).next_offset for batch in self.batches.values())]
        return max(end for end in ends if end <= offset)


def open_manager(disk: FaultDisk, boot_id: str, directories: Sequence[Path] = (DATA,)) -> LogManager:
    return LogManager(
        directories,
        broker_id=1,
        cluster_id="c",
        clock=TestClock(),
        disk=disk,
        randomness=SeededRandomness(disk.steps),
        boot_id=boot_id,
        lock=NoLock,
        max_open_segments=3,
    )


def config_for(seed: int) -> TopicConfig:
    source = random.Random(seed)
    return config_of(
        segment_bytes=source.choice([400, 700, 2_000]),
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


class Life:
    """The same for the same seed, up to where the disk dies."""

    def __init__(self, seed: int, disk: FaultDisk, model: Model) -> None:
        self.seed = seed
        self.config = config_for(seed)
        self.source = random.Random(seed)
        self.disk = disk
        self.model = model
        self.epoch = 0

    directories: Sequence[Path] = (DATA,)
    lives, operations = LIVES, OPERATIONS

    def run(self) -> None:
        for number in range(self.lives):
            self.manager = open_manager(self.disk, f"boot-{number}", self.directories)
            if number:
                self.manager.load_all(lambda topic: self.config)
            self.log = self.manager.create(ORDERS, ORDERS_ID, self.config)
            if number:
                assert self.log.log_end_offset == self.model.written_end
                self.epoch += 1
            self._began()
            for _ in range(self.operations):
                self._something()
                self._after_each()
            self.manager.close({ORDERS: self.log.log_end_offset})
            self.model.flushed_end = self.model.written_end

    def _began(self) -> None:
        """A life has begun."""

    def _after_each(self) -> None:
        """Something has happened."""

    def _something(self) -> None:
        source, log, model = self.source, self.log, self.model
        choice = source.random()
        if choice < 0.45:
            for _ in range(source.randint(1, 3)):
                self._stage_one()
            log.write_staged()
            model.written_end = model.staged_end
        elif choice < 0.56:
            log.flush()
            model.flushed_end = max(model.flushed_end, log.recovery_point)
        elif choice < 0.66:
            self._checkpoint()
        elif choice < 0.71:
            log.roll(START_MS)
        elif choice < 0.76:
            self.epoch += 1
            log.leader_epochs.assign(self.epoch, log.log_end_offset)
        elif choice < 0.84:
            end = log.retention_deletable(START_MS)
            model.log_start = max(model.log_start, end)
            log.raise_log_start(end)
            log.delete_local_segments_below(end)
        elif choice < 0.90:
            self._cut()
        elif choice < 0.95:
            self._other_topic()
        else:
            self.manager.unlink(self.manager.due_deletions(START_MS))

    def _checkpoint(self) -> None:
        self.manager.checkpoint({ORDERS: self.log.log_end_offset})()

    def _cut(self) -> None:
        """As a follower of a new leader: what it has not is cut away, what comes then is of a later epoch."""
        log, model = self.log, self.model
        offset = self.source.randint(log.log_start_offset, log.log_end_offset)
        end = max(model.boundary_at_most(offset), log.log_start_offset)
        if end == log.log_end_offset:
            return
        model.cut(end)
        log.truncate_to(offset)
        assert log.log_end_offset == end
        entries = log.producer_state.entries
        model.sequences = {key: (entry.last_sequence + 1) & 0x7FFFFFFF for key, entry in entries.items()}
        model.transactions = {producer for producer, _ in log.producer_state.ongoing_transactions}
        self.epoch += 1

    def _other_topic(self) -> None:
        carts, source = self.model.carts, self.source
        log = self.manager.logs.get(CARTS)
        if carts.topic_id is not None and log is not None and source.random() < 0.5:
            carts.deleted.add(carts.topic_id)
            carts.topic_id, carts.flushed = None, 0
            self.manager.delete(CARTS)
            return
        if carts.topic_id is None:
            carts.topic_id = uuid.UUID(int=0xC000 + len(carts.staged))
            carts.staged[carts.topic_id] = []
        log = self.manager.create(CARTS, carts.topic_id, self.config)
        batch = batch_of(b"%d" % len(carts.staged[carts.topic_id]), b"cart")
        header = check_batch(batch)
        log.stage(memoryview(batch), header, 0, START_MS)
        carts.staged[carts.topic_id].append(bytes(batch))
        log.write_staged()
        log.flush()
        carts.flushed = len(carts.staged[carts.topic_id])

    def _stage_one(self) -> None:
        source, log, model = self.source, self.log, self.model
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
        assert log.stage(memoryview(batch), header, self.epoch, START_MS) == offset
        model.batches[offset] = bytes(batch)


# What must hold


def contents(log: PartitionLog) -> Timeline:
    """All that readers can get, batch by batch, as they get it."""
    offset = log.log_start_offset
    found: Timeline = {}
    while offset < log.log_end_offset:
        piece = log.read(offset, 400, log.log_end_offset)
        assert piece is not None, f"nothing at {offset} of {log}"
        data = piece.read()
        assert sum(map(len, split_batches(data))) == piece.length == len(data)
        for batch in split_batches(data):
            header = check_batch(batch)
            assert header.base_offset == offset or not found, "offsets are dense"
            assert header.base_offset <= offset < header.next_offset, "offsets are dense"
            assert list(read_records(batch))
            found[header.base_offset] = bytes(batch)
            offset = header.next_offset
    assert offset == log.log_end_offset
    return found


def check(log: PartitionLog, timelines: Iterable[Timeline]) -> Timeline:
    """That the log is the beginning of one of these, and that all that is known of it fits; returns which."""
    found = contents(log)
    for whole in timelines:
        inside = {at: data for at, data in whole.items() if at in found}
        if inside == found:
            break
    else:
        raise AssertionError(f"invented: {log!r} is the beginning of nothing that was staged")
    sequences: dict[int, int] = {}
    for offset, batch in found.items():
        header = check_batch(batch)
        assert log.leader_epochs.epoch_for(max(offset, log.log_start_offset)) == header.partition_leader_epoch
        if not header.is_control and header.producer_id >= 0:
            sequences[header.producer_id] = header.last_sequence
    known = log.producer_state.entries
    assert {producer: known[producer].last_sequence for producer in sequences} == sequences
    check_transactions(log, whole)
    return whole


def check_transactions(log: PartitionLog, whole: Timeline) -> None:
    # What began below the first segment may have been forgotten with its beginning.
    start = log.segments[0].base_offset
    for since in (0, start):
        ongoing, aborted = transactions_in(whole, since, log.log_end_offset)
        if log.producer_state.ongoing_transactions == ongoing:
            break
    else:
        raise AssertionError(f"{log.producer_state.ongoing_transactions} are open, not {ongoing}")
    found = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in all_aborted(log)}
    for producer, first, marker in aborted:
        if first >= start:
            assert found.pop((producer, marker), None) == first, f"the transaction at {first} was aborted at {marker}"
        else:
            found.pop((producer, marker), None)
    assert not found


def all_aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(log.segments[0].base_offset, log.log_end_offset)


def transactions_in(
    batches: Timeline, start: int, end: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """(producer, first offset) of what is open at `end`, (producer, first offset, marker) of what was aborted."""
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for offset, batch in sorted(batches.items()):
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


def check_other_topic(manager: LogManager, carts: OtherTopic) -> None:
    log = manager.logs.get(CARTS)
    if log is None:
        assert carts.flushed == 0, "a topic that was flushed is gone"
        return
    assert log.topic_id not in carts.deleted or log.topic_id not in _surely_deleted(carts), "a deleted topic is back"
    staged = carts.staged[log.topic_id]
    found = list(contents(log).values())
    assert found == staged[: len(found)]
    if log.topic_id == carts.topic_id:
        assert len(found) >= carts.flushed


def _surely_deleted(carts: OtherTopic) -> set[uuid.UUID]:
    """All but the newest: its deletion may be on the way."""
    newest = list(carts.staged)[-1]
    return carts.deleted - {newest} if carts.topic_id is None else carts.deleted
