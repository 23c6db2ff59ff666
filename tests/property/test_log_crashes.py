"""A scripted life of a broker's logs is cut short at every single change to the disk, and started again.

`log_life.py` says what must hold then. Besides: a crash on the way back changes nothing, a second start finds nothing
to do, and the log can be written to again. The disk keeps all that was not flushed, nothing of it, or some; or only
the process dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.log import scan
from appliance.log.flush import Flush
from appliance.log.log_manager import LogManager, Shutdown
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch
from appliance.records.errors import CorruptBatch
from tests.support.fault_disk import FaultDisk, Loss, PowerCut
from tests.support.log_life import (
    ORDERS,
    Life,
    Model,
    all_aborted,
    check,
    check_other_topic,
    config_for,
    contents,
    new_disk,
    open_manager,
)
from tests.support.logs import START_MS, batch_of
from tests.support.seeds import seeds


@dataclass(frozen=True)
class Crash:
    """One way to come back."""

    seed: int
    step: int
    loss: Loss | None
    """None: only the process died."""

    @property
    def power_cut(self) -> bool:
        return self.loss is not None


WAYS: list[Loss | None] = [None, Loss.EVERYTHING, Loss.SOMETHING, Loss.NOTHING]
WAYS_PER_STEP = 4 if "SEEDS" in os.environ else 2


class Crashes:
    """Goes through a life and, before each change to the disk, lets copies of it crash and start again."""

    def __init__(self, seed: int, *, ways: int = WAYS_PER_STEP) -> None:
        self.seed, self.ways = seed, ways
        self.count = self.step = 0
        self.model = Model()
        self.disk = new_disk(seed)

    def run(self) -> None:
        self.disk.watch = self._fork
        Life(self.seed, self.disk, self.model).run()

    def _fork(self) -> None:
        self.step += 1
        for number in range(self.ways):
            crash = Crash(self.seed, self.step, WAYS[(self.step + number * 3 + number // 4) % len(WAYS)])
            disk = self.disk.copy(hash((self.seed, self.step, number)))
            self.count += 1
            try:
                disk.restart(power_cut=crash.power_cut, loss=crash.loss)
                start_again(disk, crash, self.model)
            except Exception as error:
                raise AssertionError(str(crash)) from error


def start_again(disk: FaultDisk, crash: Crash, model: Model) -> None:
    if crash.step % 3 == 0:
        crash_on_the_way_back(disk, crash)
    manager = open_manager(disk, "boot-2" if crash.power_cut else "boot-0")
    logs = manager.load_all(lambda topic: config_for(crash.seed))
    check_other_topic(manager, model.carts)
    log = logs.get(ORDERS)
    if log is None:
        assert (model.flushed_end if crash.power_cut else model.written_end) == 0, "the log is gone"
        return
    whole = check(log, [model.batches, *reversed(model.earlier)])
    promised = model.flushed_end if crash.power_cut else model.written_end
    assert promised <= max(log.log_end_offset, model.log_start), (
        f"{promised} was promised, the log ends at {log.log_end_offset}"
    )
    # Before the first flush, and where retention has deleted what was not flushed, nothing tells that the beginning
    # is lost.
    if not crash.power_cut or model.log_start <= model.flushed_end > 0:
        assert log.log_start_offset <= model.log_start
    assert all(whole.get(offset) == batch for offset, batch in model.batches.items() if offset < promised)
    if crash.step % 3 == 1 and manager.last_shutdown is not Shutdown.CLEAN:
        a_second_start_finds_nothing_to_do(disk, crash, log)
    elif crash.step % 3 == 2:
        it_goes_on(disk, manager, log, whole)


def crash_on_the_way_back(disk: FaultDisk, crash: Crash) -> None:
    """The next crash comes before the recovery from this one is over."""
    disk.cut_at = disk.steps + disk.random.randint(1, 6)
    try:
        manager = open_manager(disk, "boot-2" if crash.power_cut else "boot-0")
        manager.load_all(lambda topic: config_for(crash.seed))
    except PowerCut:
        disk.restart(power_cut=crash.power_cut, loss=None)
    disk.dead, disk.cut_at = False, -1
    disk.descriptors.clear()


def fingerprint(log: PartitionLog) -> tuple[Any, ...]:
    return (
        log.log_start_offset,
        log.log_end_offset,
        contents(log),
        log.leader_epochs.entries,
        log.producer_state.entries,
        all_aborted(log),
    )


def a_second_start_finds_nothing_to_do(disk: FaultDisk, crash: Crash, log: PartitionLog) -> None:
    found = fingerprint(log)
    disk.restart(power_cut=crash.power_cut)
    manager = open_manager(disk, "boot-3" if crash.power_cut else "boot-0")
    again = manager.load_all(lambda topic: config_for(crash.seed))[ORDERS]
    assert fingerprint(again) == found


def it_goes_on(disk: FaultDisk, manager: LogManager, log: PartitionLog, whole: dict[int, bytes]) -> None:
    end = log.log_end_offset
    batch = batch_of(b"after the crash")
    assert log.stage(memoryview(batch), check_batch(batch), 1_000, START_MS) == end
    log.write_staged()
    later = {offset: data for offset, data in whole.items() if offset < end} | {end: bytes(batch)}
    manager.close({})
    manager = open_manager(disk, "boot-5")
    assert manager.last_shutdown is Shutdown.CLEAN
    config = log.config
    log = manager.load_all(lambda topic: config)[ORDERS]
    assert log.log_end_offset == end + 1
    check(log, [later])


@pytest.mark.parametrize("seed", seeds(3))
def test_a_crash_at_any_change_to_the_disk_breaks_no_promise(seed: int) -> None:
    crashes = Crashes(seed + 5)
    crashes.run()
    print(f"seed {seed}: {crashes.count} crashes at {crashes.step} changes to the disk")
    assert crashes.step > 200


# The test above can fail


def no_crc_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Whatever(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    monkeypatch.setattr(scan, "crc32c", lambda data: Whatever())


def a_flush_flushes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flush, "run", lambda flush: None)


def the_disk_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultDisk, "fdatasync", lambda disk, descriptor: disk._step())


def no_folder_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = FaultDisk.fsync_directory

    def lie(disk: FaultDisk, path: Path) -> None:
        if path == Path("/"):
            real(disk, path)
        else:
            disk._step()

    monkeypatch.setattr(FaultDisk, "fsync_directory", lie)


def new_files_are_renamed_before_they_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultDisk, "fsync", lambda disk, descriptor: disk._step())


def a_cut_leaves_the_recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "_announce_cut", lambda log, offset: None)


BROKEN = [
    no_crc_is_checked,
    a_flush_flushes_nothing,
    the_disk_lies,
    no_folder_is_flushed,
    new_files_are_renamed_before_they_are_flushed,
    a_cut_leaves_the_recovery_point,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_it_is_noticed_when(broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    for seed in range(5, 12):
        try:
            Crashes(seed, ways=4).run()
        except (AssertionError, CorruptBatch):
            return
    raise AssertionError("nobody noticed")
