"""Logs move between two data directories, and the machine or the process dies at every single change to the disks.

Whatever is left: the log is found in one of the two, with everything that was promised, as `log_life.py` says it; what
was begun goes on, and comes to its end with the same log.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.log.future_logs import FutureLog
from appliance.log.log_directory import LogDirectory
from appliance.log.log_manager import LogManager
from appliance.log.partition_log import PartitionLog
from appliance.partition.future_replica import BeginAnew, Copy, CutTo, Extent, FutureReplica, Prepare
from appliance.partition.replication_quota import ReplicationQuota
from tests.support.fault_disk import FaultDisk, Loss, PowerCut
from tests.support.log_life import ORDERS, Life, Model, all_aborted, check, config_for, contents, open_manager
from tests.support.logs import START_MS
from tests.support.seeds import seeds

DIRECTORIES = (Path("/one"), Path("/two"))
COPY_BYTES, MOVE_STEPS_MAX = 300, 200
FAST = 1 << 62
EVERY = 5 if "SEEDS" in os.environ else 31
"""A crash comes at every so many changes to the disks."""
FOUND_SOMETHING = (7, 9)
"""Lives in which open transactions were forgotten, and a log that began within its first segment could not move."""
WAYS: list[Loss | None] = [None, Loss.EVERYTHING, Loss.SOMETHING, Loss.NOTHING]


def extent(log: PartitionLog) -> Extent:
    return Extent(log.segments[0].base_offset, log.log_end_offset, log.leader_epochs.entries)


def step(rules: FutureReplica, moved: FutureLog, copy_bytes: int = COPY_BYTES) -> bool:
    """As the broker does it; whether it has moved."""
    match rules.next_step(extent(moved.log), extent(moved.future), FAST, 0):
        case Copy(_):
            moved.copy(copy_bytes, START_MS)
        case CutTo(offset):
            moved.cut_to(offset)
        case BeginAnew():
            moved.begin_anew()
        case Prepare(_):
            moved.prepare()
            if moved.may_swap:
                moved.swap()
                return True
    return False


def where(manager: LogManager) -> LogDirectory:
    (directory,) = [each for each in manager.directories if ORDERS in each.logs]
    return directory


def other(manager: LogManager) -> LogDirectory:
    (directory,) = [each for each in manager.directories if ORDERS not in each.logs]
    return directory


class MovingLife(Life):
    """Between all that happens to a log it moves from one directory to the other and back."""

    directories = DIRECTORIES
    operations = 45
    moves = 0

    def _began(self) -> None:
        self.rules = FutureReplica(ReplicationQuota())

    def _after_each(self) -> None:
        for _ in range(self.source.randint(0, 3)):
            self._move_on()

    def _move_on(self) -> None:
        futures = self.manager.futures
        moved = futures.under_way.get(ORDERS)
        if moved is None:
            if self.source.random() < 0.5:
                futures.begin(ORDERS, other(self.manager), self.config)
        elif self.source.random() < 0.02:
            futures.cancel(ORDERS)
        elif step(self.rules, moved):
            self.moves += 1

    def _other_topic(self) -> None:
        self._checkpoint()


def fingerprint(log: PartitionLog) -> tuple[object, ...]:
    # What began below the log start may have been forgotten with its beginning, as `log_life.py` has it.
    aborted = [entry for entry in all_aborted(log) if entry.first_offset >= log.log_start_offset]
    entries = log.leader_epochs.entries
    return log.log_start_offset, log.log_end_offset, contents(log), entries, log.producer_state.entries, aborted


def comes_back(disk: FaultDisk, model: Model, seed: int, power_cut: bool) -> None:
    boot = "boot-2" if power_cut else "boot-0"
    config = config_for(seed)
    manager = open_manager(disk, boot, DIRECTORIES)
    log = manager.load_all(lambda topic: config).get(ORDERS)
    promised = model.flushed_end if power_cut else model.written_end
    if log is None:
        assert promised == 0, f"the log is gone: {manager._twice}"
        return
    known = log.leader_epochs.starts
    if known and known[0] > log.log_start_offset:
        # What retention has taken may come back, and the leader epochs that were forgotten with it may not.
        assert known[0] <= model.log_start
        log.raise_log_start(known[0])
    whole = check(log, [model.batches, *reversed(model.earlier)])
    assert promised <= max(log.log_end_offset, model.log_start), f"{promised} was promised, it ends at {log!r}"
    assert all(whole.get(offset) == batch for offset, batch in model.batches.items() if offset < promised)
    before = fingerprint(log)
    # The way goes on, or the way back begins.
    found = manager.futures.found.get(ORDERS)
    target = found[0] if found is not None and found[0] is not where(manager) else other(manager)
    moved = manager.futures.begin(ORDERS, target, config)
    rules = FutureReplica(ReplicationQuota())
    assert any(step(rules, moved, 1 << 20) for _ in range(MOVE_STEPS_MAX)), "it does not come to an end"
    assert where(manager) is target
    assert fingerprint(log) == before
    manager.close({ORDERS: log.log_end_offset})
    disk.restart(power_cut=power_cut)
    again = open_manager(disk, "boot-9" if power_cut else "boot-0", DIRECTORIES)
    logs = again.load_all(lambda topic: config)
    assert where(again).path == target.path
    assert fingerprint(logs[ORDERS])[1:3] == before[1:3]


class Crashes:
    """Goes through a life and, before each change to the disks, lets a copy of them crash and come back."""

    def __init__(self, seed: int) -> None:
        self.seed, self.step, self.count = seed, 0, 0
        self.model = Model()
        self.disk = FaultDisk(seed, page_bytes=64)
        for directory in DIRECTORIES:
            self.disk.mkdir(directory)
        self.disk.fsync_directory(Path("/"))
        self.disk.steps = 0
        self.life = MovingLife(seed, self.disk, self.model)

    def run(self) -> None:
        self.disk.watch = self._fork
        self.life.run()

    def _fork(self) -> None:
        self.step += 1
        if (self.step + self.seed) % EVERY:
            return
        loss = WAYS[(self.step // EVERY + self.seed) % len(WAYS)]
        disk = self.disk.copy(hash((self.seed, self.step)))
        self.count += 1
        try:
            disk.restart(power_cut=loss is not None, loss=loss)
            comes_back(disk, self.model, self.seed, loss is not None)
        except (Exception, PowerCut) as error:
            raise AssertionError(f"seed {self.seed}, step {self.step}, {loss}: {error}") from error


@pytest.mark.parametrize("seed", sorted({*seeds(2), *FOUND_SOMETHING}))
def test_a_log_is_whole_wherever_its_move_was_cut_short(seed: int) -> None:
    crashes = Crashes(seed)
    crashes.run()
    assert crashes.life.moves >= 2, "this life has seen too little"
    assert crashes.count > 1_000 // EVERY
