"""Several data directories of one broker."""

from __future__ import annotations

import errno
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import TopicConfig
from appliance.base.disk import SystemDisk
from appliance.base.errors import ErrorCode, UserError
from appliance.base.ids import TopicPartition, uuid_to_text
from appliance.base.randomness import SeededRandomness
from appliance.log.directory_identity import DirectoryLock, Shutdown
from appliance.log.errors import LogUnavailable, LogWriteFailed
from appliance.log.log_directory import DirectoryState, LogDirectory
from appliance.log.log_manager import LogManager
from tests.support.fault_disk import FaultDisk
from tests.support.logs import TestClock, append, config_of, fill

A, B, C = Path("/a"), Path("/b"), Path("/c")
CONFIG = config_of(segment_bytes=500)
BROKEN = "broken"


class NoLock(DirectoryLock):
    """The disk in memory belongs to this test alone. A directory that is told to be broken cannot be used."""

    broken: frozenset[Path] = frozenset()

    def __init__(self, directory: Path) -> None:
        if directory in self.broken:
            raise OSError(errno.EIO, BROKEN)

    def release(self) -> None:
        pass


class World:
    """A disk with the directories of one broker; `start` is what a start of it does."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = FaultDisk(seed)
        for path in (A, B, C):
            self.disk.mkdir(path)
        self.disk.fsync_directory(Path("/"))
        self.topics: dict[str, uuid.UUID] = {}
        self.starts = 0

    def start(self, *paths: Path, broken: set[Path] | None = None, **options: Any) -> LogManager:
        class Lock(NoLock):
            pass

        Lock.broken = frozenset(broken or ())
        self.starts += 1
        defaults: Mapping[str, Any] = {"broker_id": 1, "cluster_id": "cluster", "boot_id": "boot-1"}
        manager = LogManager(
            paths,
            clock=TestClock(),
            disk=self.disk,
            # Ids differ from start to start.
            randomness=SeededRandomness(self.starts),
            lock=Lock,
            **{**defaults, **options},
        )
        manager.load_all(config_for, self.topics.get)
        manager.expect((log, self.topics[log.topic]) for log in self.expected)
        return manager

    expected: tuple[TopicPartition, ...] = ()

    def create(self, manager: LogManager, topic: str, partition: int = 0) -> LogDirectory:
        """Which directory the log comes into."""
        topic_id = self.topics.setdefault(topic, uuid.UUID(int=len(self.topics) + 1))
        log = manager.create(TopicPartition(topic, partition), topic_id, CONFIG)
        return manager.directory_of(log.directory)


def config_for(topic: str) -> TopicConfig:
    return CONFIG


@pytest.fixture
def world() -> World:
    return World()


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)


def listed(disk: FaultDisk, path: Path) -> list[str]:
    return bytes(disk.names[path / "known-directories"].data).decode().splitlines()


def failed(code: int, folder: Path) -> LogWriteFailed:
    return LogWriteFailed("writing", OSError(code, "no"), folder)


def test_a_new_log_goes_to_the_directory_with_the_fewest(world: World) -> None:
    manager = world.start(A, B)
    assert [world.create(manager, f"t{number}").path for number in range(5)] == [A, B, A, B, A]
    manager.delete(partition("t0"))
    manager.delete(partition("t2"))
    assert [world.create(manager, f"u{number}").path for number in range(3)] == [A, A, B]


def test_a_full_directory_gets_no_new_logs_while_another_has_room(world: World) -> None:
    manager = world.start(A, B)
    manager.write_failed(failed(errno.ENOSPC, A / "t-0"))
    assert {world.create(manager, f"t{number}").path for number in range(3)} == {B}
    manager.write_failed(failed(errno.ENOSPC, B / "t-0"))
    assert world.create(manager, "last").path == A


def test_each_directory_has_its_own_files_and_finds_its_logs_again(world: World) -> None:
    manager = world.start(A, B)
    for number in range(4):
        world.create(manager, f"t{number}")
        append(manager.logs[partition(f"t{number}")], b"x")
    ids = [directory.directory_id for directory in manager.directories]
    assert len(set(ids)) == 2
    manager.close({partition("t0"): 1, partition("t1"): 1}, broker_epoch=3)
    for path, topics in ((A, ("t0", "t2")), (B, ("t1", "t3"))):
        text = bytes(world.disk.names[path / "recovery-point-offset-checkpoint"].data).decode()
        assert [line.split()[0] for line in text.splitlines()[2:]] == list(topics)
        assert world.disk.exists(path / ".kafka_cleanshutdown") and world.disk.exists(path / "boot-id")

    # The order does not matter; the ids tell which is which.
    manager = world.start(B, A)
    assert [directory.directory_id for directory in manager.directories] == ids[::-1]
    assert manager.last_shutdown is Shutdown.CLEAN
    assert list(manager.logs) == [partition(f"t{number}") for number in range(4)]
    assert all(log.log_end_offset == 1 for log in manager.logs.values())
    assert [manager.high_watermark_of(partition(f"t{number}")) for number in range(4)] == [1, 1, 0, 0]
    assert {log.directory.parent for log in manager.logs.values()} == {A, B}


def test_one_failed_directory_ends_uncleanly_and_the_others_cleanly(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    fill(manager.logs[partition("t0")], 3)
    directory = manager.write_failed(failed(errno.EIO, A / "t0-0"))
    assert (directory.path, directory.state) == (A, DirectoryState.OFFLINE)
    assert manager.directories[1].state is DirectoryState.ONLINE
    assert manager.usable == [manager.directories[1]]
    assert manager.offline_directory_ids == [manager.directories[0].directory_id]
    assert {world.create(manager, f"u{number}").path for number in range(3)} == {B}
    steps = world.disk.steps
    manager.delete(partition("t0"))
    assert world.disk.steps == steps and world.disk.exists(A / "t0-0"), "nothing is touched on a disk that failed"
    manager.close({})
    assert not world.disk.exists(A / ".kafka_cleanshutdown") and world.disk.exists(B / ".kafka_cleanshutdown")
    manager = world.start(A, B)
    assert [d.last_shutdown for d in manager.directories] == [Shutdown.SAME_BOOT, Shutdown.CLEAN]
    assert manager.last_shutdown is Shutdown.SAME_BOOT


def test_a_close_that_cannot_flush_leaves_the_mark_only_in_the_others(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    append(manager.logs[partition("t0")], b"x")
    world.disk.fail("fdatasync", errno.EIO)
    manager.close({})
    assert not world.disk.exists(A / ".kafka_cleanshutdown") and world.disk.exists(B / ".kafka_cleanshutdown")


def test_checkpoints_that_fail_name_their_directory(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    write = manager.checkpoint({})
    world.disk.fail("fsync", errno.EIO)
    (error,) = write()
    assert manager.write_failed(error).path == A
    text = bytes(world.disk.names[B / "recovery-point-offset-checkpoint"].data).decode()
    assert "t1 0 0" in text
    assert manager.checkpoint({})() == [], "a failed directory is not written to any more"


# A directory that cannot be used at the start


def test_the_others_serve_and_know_what_may_be_missing(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    ids = {directory.path: directory.directory_id for directory in manager.directories}
    manager.close({})
    world.expected = (partition("t0"), partition("t1"))

    manager = world.start(A, B, broken={B})
    assert [directory.state for directory in manager.directories] == [DirectoryState.ONLINE, DirectoryState.OFFLINE]
    assert manager.directories[1].reason == BROKEN
    assert set(manager.directory_ids) == set(ids.values())
    assert manager.offline_directory_ids == [ids[B]] and manager.directories[1].directory_id == ids[B]
    assert list(manager.logs) == [partition("t0")]
    with pytest.raises(LogUnavailable, match=r"it may lie in .*/b") as refused:
        world.create(manager, "t1")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.disk.exists(A / "t1-0"), "it is not begun anew"
    assert world.create(manager, "new").path == A, "what is new may be made"
    manager.close({})

    world.expected = (partition("t0"), partition("t1"), partition("new"))
    manager = world.start(A, B)
    assert sorted(manager.logs) == [partition("new"), partition("t0"), partition("t1")]
    assert manager.not_found == {}


def test_without_any_usable_directory_there_is_no_start(world: World) -> None:
    with pytest.raises(UserError, match=r"cannot use the data folder /a: broken") as refusal:
        world.start(A, B, broken={A, B})
    assert refusal.value.exit_code == 3


def test_a_directory_of_another_broker_ends_the_start(world: World) -> None:
    world.start(B, broker_id=2).close({})
    with pytest.raises(UserError, match="/b belongs to broker 2"):
        world.start(A, B)


def test_a_mount_point_without_its_disk_is_not_written_to(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    b_id = manager.directories[1].directory_id
    assert b_id is not None
    manager.close({})
    away = [name for name in world.disk.names if B in name.parents]
    kept = {name: world.disk.names.pop(name) for name in away}
    world.expected = (partition("t0"), partition("t1"))

    manager = world.start(A, B)
    assert manager.directories[1].state is DirectoryState.OFFLINE
    assert manager.directories[1].reason == (
        f"it is empty, but data directory {uuid_to_text(b_id)} lay there: is its disk mounted?"
    )
    assert manager.directories[1].directory_id == b_id
    assert world.disk.listdir(B) == []
    with pytest.raises(LogUnavailable):
        world.create(manager, "t1")
    manager.close({})

    world.disk.names.update(kept)
    assert len(world.start(A, B).logs) == 2


def test_a_directory_that_is_named_no_more_still_may_hold_what_is_missing(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    manager.close({})
    world.expected = (partition("t0"), partition("t1"))
    manager = world.start(A)
    assert len(manager.directory_ids) == 2 and len(manager.offline_directory_ids) == 1
    with pytest.raises(LogUnavailable):
        world.create(manager, "t1")


def test_a_directory_that_moved_is_known_by_its_id(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    manager.close({})
    world.disk.rmdir(C)
    world.disk.rename(B, C)
    world.disk.mkdir(B)
    world.expected = (partition("t0"), partition("t1"))
    manager = world.start(A, C)
    assert len(manager.logs) == 2 and manager.offline_directory_ids == []
    assert {line.split()[1] for line in listed(world.disk, A)[2:]} == {"/a", "/c"}


def test_a_line_that_was_removed_gives_a_directory_up(world: World) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    a_id = manager.directories[0].directory_id
    assert a_id is not None
    manager.close({})
    world.expected = (partition("t0"), partition("t1"))
    world.disk.names[A / "known-directories"].data[:] = f"0\n1\n{uuid_to_text(a_id)} /a\n".encode()
    for name in [name for name in world.disk.names if B in name.parents]:
        del world.disk.names[name]
    manager = world.start(A, B)
    assert manager.offline_directory_ids == []
    assert world.create(manager, "t1").path == B
    assert manager.not_found == {partition("t1"): world.topics["t1"]}, "its users may still want to know"


def test_a_directory_alone_writes_no_list_and_a_second_one_begins_it(world: World) -> None:
    manager = world.start(A)
    world.create(manager, "t0")
    manager.close({})
    assert not world.disk.exists(A / "known-directories")
    manager = world.start(A, B)
    assert listed(world.disk, A) == listed(world.disk, B)
    assert listed(world.disk, A)[:2] == ["0", "2"]
    assert world.create(manager, "t1").path == B


def test_new_directories_beside_a_lost_one_begin_nothing_anew(world: World) -> None:
    """The first one is new, so nobody remembers the second; it may hold everything."""
    world.topics["t"] = uuid.UUID(int=1)
    world.expected = (partition("t"),)
    manager = world.start(A, B, broken={B})
    with pytest.raises(LogUnavailable, match="may lie in /b"):
        world.create(manager, "t")


def test_a_damaged_list_takes_its_directory_out_of_service(world: World) -> None:
    manager = world.start(A, B)
    manager.close({})
    world.disk.names[B / "known-directories"].data[:] = b"0\n7\n"
    manager = world.start(A, B)
    assert manager.directories[1].state is DirectoryState.OFFLINE
    assert "known-directories" in manager.directories[1].reason


@pytest.mark.parametrize("method", ["listdir", "pread"])
def test_a_disk_that_fails_while_logs_are_opened_goes_offline_with_them(world: World, method: str) -> None:
    manager = world.start(A, B)
    world.create(manager, "t0"), world.create(manager, "t1")
    fill(manager.logs[partition("t0")], 3), fill(manager.logs[partition("t1")], 3)
    manager.checkpoint({})()

    disk, plain = world.disk, getattr(world.disk, method)

    def fails(*arguments: Any) -> Any:
        if method == "listdir" and arguments[0] == A:
            raise OSError(errno.EIO, BROKEN)
        if method == "pread" and disk.descriptors[arguments[0]].inode is disk.names.get(
            A / "t0-0" / "partition.metadata"
        ):
            raise OSError(errno.EIO, BROKEN)
        return plain(*arguments)

    setattr(disk, method, fails)
    world.expected = (partition("t0"), partition("t1"))
    manager = world.start(A, B)
    assert list(manager.logs) == [partition("t1")]
    assert BROKEN in manager.directories[0].reason
    with pytest.raises(LogUnavailable):
        world.create(manager, "t0")


def test_a_full_disk_can_be_started_from_and_read(world: World) -> None:
    manager = world.start(A)
    world.create(manager, "t0")
    append(manager.logs[partition("t0")], b"x")
    manager.close({})
    # The mark of the clean end goes, which leaves some bytes.
    world.disk.capacity = sum(len(inode.data) for inode in world.disk._files()) - 50
    manager = world.start(A, min_free_bytes=10)
    assert manager.directories[0].state is DirectoryState.FULL
    assert manager.logs[partition("t0")].log_end_offset == 1
    world.disk.capacity += 1_000
    manager.check_space()
    assert manager.directories[0].state is DirectoryState.ONLINE


# The same partition twice


def test_a_partition_in_two_directories_is_opened_from_neither(world: World) -> None:
    for path in (A, B):
        manager = world.start(path)
        world.create(manager, "twice")
        fill(manager.logs[partition("twice")], 2)
        manager.logs[partition("twice")].raise_log_start(1)
        manager.close({partition("twice"): 2})
        world.disk.names.pop(path / "known-directories", None)
    manager = world.start(A, B)
    assert manager.logs == {}
    with pytest.raises(LogUnavailable, match=r"twice-0 lies in two data directories, /a/twice-0 and /b/twice-0"):
        world.create(manager, "twice")
    assert manager.checkpoint({})() == []
    manager.close({})
    for path in (A, B):
        text = bytes(world.disk.names[path / "log-start-offset-checkpoint"].data).decode()
        assert "twice 0 1" in text, "what the checkpoints say of it is kept"

    world.disk.rename(B / "twice-0", B / "twice-0.away")
    assert world.start(A, B).logs[partition("twice")].log_end_offset == 2


def test_of_two_topics_with_one_name_the_present_one_counts(world: World) -> None:
    manager = world.start(A)
    world.create(manager, "again")
    manager.close({})
    world.topics["again"] = uuid.UUID(int=99)
    manager = world.start(B)
    world.create(manager, "again")
    manager.close({})
    manager = world.start(A, B)
    log = manager.logs[partition("again")]
    assert (log.directory.parent, log.topic_id) == (B, uuid.UUID(int=99))
    assert world.disk.exists(A / "again-0"), "the other one is left alone"


# Side by side


class Threads(SystemDisk):
    """Notes the threads that flush."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def fdatasync(self, descriptor: int) -> None:
        self.names.add(threading.current_thread().name)
        super().fdatasync(descriptor)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_logs_are_opened_and_closed_side_by_side(tmp_path: Path, threads: int) -> None:
    disk = Threads()

    def start() -> LogManager:
        return LogManager(
            [tmp_path / "a", tmp_path / "b"],
            broker_id=1,
            cluster_id="c",
            clock=TestClock(),
            disk=disk,
            recovery_threads=threads,
            max_open_segments=4,
        )

    manager = start()
    for number in range(40):
        log = manager.create(partition("t", number), uuid.UUID(int=1), CONFIG)
        fill(log, number % 7)
    disk.names.clear()
    manager.close({partition("t", number): number % 7 for number in range(40)})
    assert all(name.startswith("logs-") for name in disk.names) == (threads > 0)
    manager = start()
    logs = manager.load_all(config_for)
    assert list(logs) == [partition("t", number) for number in range(40)]
    assert [log.log_end_offset for log in logs.values()] == [number % 7 for number in range(40)]
    assert manager.last_shutdown is Shutdown.CLEAN
    assert {len(directory.logs) for directory in manager.directories} == {20}
    manager.close({})


def test_an_error_of_ours_in_a_helper_thread_ends_the_start(tmp_path: Path) -> None:
    manager = LogManager(
        tmp_path, broker_id=1, cluster_id="c", clock=TestClock(), disk=SystemDisk(), recovery_threads=2
    )
    manager.create(partition("t"), uuid.UUID(int=1), CONFIG)
    manager.logs.clear()

    def no_config(topic: str) -> TopicConfig:
        raise KeyError(topic)

    with pytest.raises(KeyError):
        manager.load_all(no_config)
    manager.close({}, clean=False)


def test_a_long_start_tells_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = TestClock()
    manager = LogManager(tmp_path, broker_id=1, cluster_id="c", clock=clock, disk=SystemDisk())
    for number in range(4):
        manager.create(partition("t", number), uuid.UUID(int=1), CONFIG)
    manager.close({})
    manager = LogManager(tmp_path, broker_id=1, cluster_id="c", clock=clock, disk=SystemDisk())

    def slow(topic: str) -> TopicConfig:
        clock.time_ms += 2_500
        return CONFIG

    with caplog.at_level("INFO"):
        manager.load_all(slow)
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("opened")]
    assert told == ["opened 2 of 4 logs", "opened 4 of 4 logs", "opened 4 logs in 10.0 s"]
    manager.close({})
