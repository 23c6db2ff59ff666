"""Dirty pages are written early, by a helper thread, and nobody depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.log.open_files import OpenFiles
from appliance.log.partition_log import PartitionLog
from appliance.log.writeback import RANGES_MAX, WriteBack
from tests.support.logs import append, config_of, open_log

STEP = 1 << 20


class Noting(SystemDisk):
    """Notes what is to be written early, by the file's name."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, int, int]] = []

    def start_writeback(self, descriptor: int, position: int, length: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        self.ranges.append((name, position, position + length))
        super().start_writeback(descriptor, position, length)


class World:
    def __init__(self, folder: Path, step_bytes: int = STEP, segment_bytes: int = 1 << 30) -> None:
        self.disk = Noting()
        self.files = OpenFiles(self.disk)
        self.files.writeback.step_bytes = step_bytes
        config = config_of(segment_bytes=segment_bytes, index_interval_bytes=4_096)
        self.log: PartitionLog = open_log(folder, config, disk=self.disk, files=self.files)

    def fill(self, size_bytes: int) -> None:
        for _ in range(size_bytes // 50_000):
            append(self.log, bytes(50_000))

    def write_back(self) -> bool:
        job = self.files.writeback.take()
        if job is None:
            return False
        assert any(segment.references for segment in self.log.segments)
        job.run()
        job.release()
        assert not any(segment.references for segment in self.log.segments)
        return True


def test_what_was_written_is_handed_on_step_by_step_without_a_hole(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fill(STEP // 2)
    assert not world.write_back()
    for _ in range(4):
        world.fill(3 * STEP // 2)
        assert world.write_back()
    assert not world.write_back(), "once each"
    covered = 0
    for name, start, end in world.disk.ranges:
        assert name == f"{0:020d}.log"
        assert start <= covered < end <= world.log.size_bytes, "without a hole"
        covered = end
    assert world.log.size_bytes - covered < STEP + 100_000
    assert covered % 65_536 == 0, "the pages that are still appended to are left alone"
    assert len(world.disk.ranges) <= world.log.size_bytes // STEP


def test_each_segment_is_counted_from_its_own_beginning(tmp_path: Path) -> None:
    world = World(tmp_path, segment_bytes=3 * STEP)
    world.fill(8 * STEP)
    assert world.write_back()
    names = [name for name, _, _ in world.disk.ranges]
    assert len(set(names)) == 3 and names == sorted(names)
    assert all(start >= 0 for _, start, _ in world.disk.ranges)


def test_an_opened_log_begins_behind_what_lies_there(tmp_path: Path) -> None:
    first = World(tmp_path)
    first.fill(3 * STEP)
    first.log.close()
    again = World(tmp_path)
    again.fill(STEP // 2)
    assert not again.write_back()
    again.fill(STEP)
    assert again.write_back()
    ((_, start, end),) = again.disk.ranges
    assert start >= 2 * STEP - 65_536 and end > 3 * STEP


def test_a_segment_that_was_closed_meanwhile_is_passed_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fill(2 * STEP)
    world.log.close()
    assert not world.write_back() and world.disk.ranges == []


def test_nothing_is_asked_for_where_it_is_switched_off(tmp_path: Path) -> None:
    world = World(tmp_path, step_bytes=0)
    world.fill(3 * STEP)
    assert not world.write_back()


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    world = World(tmp_path)
    segment = world.log.active_segment
    segment.open()
    writeback = WriteBack(100)
    position = 0
    for _ in range(RANGES_MAX + 10):
        position = writeback.want(segment, position + 70_000)
    job = writeback.take()
    assert job is not None
    job.run()
    job.release()
    assert len(world.disk.ranges) == RANGES_MAX


@pytest.mark.parametrize("position", [0, 1 << 40])
def test_the_kernel_may_refuse_and_nothing_happens(tmp_path: Path, position: int) -> None:
    SystemDisk().start_writeback(-1, position, 100)
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open("rb") as file:
        SystemDisk().start_writeback(file.fileno(), position, 100)
