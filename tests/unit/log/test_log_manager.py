"""The data directory of a broker."""

from __future__ import annotations

import errno
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import TopicConfig
from appliance.base.disk import SystemDisk
from appliance.base.errors import InvariantBroken, UserError
from appliance.base.ids import TopicPartition, uuid_to_text
from appliance.base.randomness import SeededRandomness
from appliance.log.errors import LogWriteFailed
from appliance.log.log_manager import DirectoryLock, DirectoryState, LogManager, Shutdown, parse_folder_name
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, append, config_of, fill, read_all

DATA = Path("/data")
ORDERS = TopicPartition("orders", 0)
ORDERS_ID = uuid.UUID(int=0xABCD)
CONFIG = config_of(segment_bytes=500)


class NoLock(DirectoryLock):
    """The disk in memory belongs to this test alone."""

    def __init__(self, directory: Path) -> None:
        self.released = False

    def release(self) -> None:
        self.released = True


def manager_on(disk: FaultDisk, **options: Any) -> LogManager:
    defaults: Mapping[str, Any] = {"broker_id": 1, "cluster_id": "cluster", "boot_id": "boot-1", "lock": NoLock}
    return LogManager(
        DATA,
        clock=TestClock(),
        disk=disk,
        randomness=SeededRandomness(5),
        **{**defaults, **options},
    )


def config_for(topic: str) -> TopicConfig:
    return CONFIG


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    disk.fsync_directory(Path("/"))
    return disk


def test_a_new_directory_gets_its_identity(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    assert manager.last_shutdown is Shutdown.EMPTY
    text = bytes(disk.names[DATA / "meta.properties"].data).decode()
    assert text.splitlines() == [
        "cluster.id=cluster",
        f"directory.id={uuid_to_text(manager.directories[0].directory_id)}",
        "node.id=1",
        "version=1",
    ]
    assert manager_on(disk).directories[0].directory_id == manager.directories[0].directory_id


@pytest.mark.parametrize(
    ("options", "said"), [({"cluster_id": "other"}, "belongs to cluster"), ({"broker_id": 2}, "belongs to broker 1")]
)
def test_the_directory_of_another_is_refused(disk: FaultDisk, options: Mapping[str, Any], said: str) -> None:
    manager_on(disk)
    with pytest.raises(UserError, match=said) as refusal:
        manager_on(disk, **options)
    assert refusal.value.exit_code == 3


def test_a_directory_without_an_id_is_refused(disk: FaultDisk) -> None:
    manager_on(disk)
    disk.names[DATA / "meta.properties"].data[:] = b"cluster.id=cluster\nnode.id=1\n"
    with pytest.raises(UserError, match=r"directory\.id"):
        manager_on(disk)


def test_a_directory_is_locked_as_long_as_it_is_used(tmp_path: Path) -> None:
    def open_one() -> LogManager:
        return LogManager(tmp_path / "b", broker_id=1, cluster_id="c", clock=TestClock(), disk=SystemDisk())

    first = open_one()
    with pytest.raises(UserError, match="another process uses") as refusal:
        open_one()
    assert refusal.value.exit_code == 3
    first.close({})
    open_one().close({})


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use the data folder") as refusal:
        LogManager(tmp_path / "file", broker_id=1, cluster_id="c", clock=TestClock(), disk=SystemDisk())
    assert refusal.value.exit_code == 3


def test_a_disk_that_fails_at_the_start_gives_the_lock_back(disk: FaultDisk) -> None:
    locks = []

    def lock(directory: Path) -> DirectoryLock:
        locks.append(NoLock(directory))
        return locks[-1]

    disk.fail("fsync", errno.EIO)
    with pytest.raises(UserError):
        manager_on(disk, lock=lock)
    assert locks[0].released


def test_how_the_last_run_ended_is_known(disk: FaultDisk) -> None:
    first = manager_on(disk)
    assert first.last_shutdown is Shutdown.EMPTY
    first.load_all(config_for)
    assert manager_on(disk).last_shutdown is Shutdown.SAME_BOOT
    manager = manager_on(disk, boot_id="boot-2")
    assert manager.last_shutdown is Shutdown.UNCLEAN
    manager.close({}, broker_epoch=77)
    assert json.loads(bytes(disk.names[DATA / ".kafka_cleanshutdown"].data)) == {"version": 0, "brokerEpoch": 77}
    assert manager_on(disk, boot_id="boot-3").last_shutdown is Shutdown.CLEAN
    # The mark counts once.
    assert manager_on(disk, boot_id="boot-3").last_shutdown is Shutdown.SAME_BOOT
    assert manager_on(disk, boot_id="").last_shutdown is Shutdown.UNCLEAN
    assert manager_on(disk, boot_id="").last_shutdown is Shutdown.UNCLEAN


def test_what_may_be_missing_is_said_again_until_a_process_has_got_as_far_as_its_logs(disk: FaultDisk) -> None:
    manager_on(disk).load_all(config_for)
    # The host went down; the first process after it ended before a controller heard of it, and so did the second.
    for _ in range(2):
        assert manager_on(disk, boot_id="boot-2").last_shutdown is Shutdown.UNCLEAN
    third = manager_on(disk, boot_id="boot-2")
    third.load_all(config_for)
    assert manager_on(disk, boot_id="boot-2").last_shutdown is Shutdown.SAME_BOOT


def test_a_start_after_a_power_cut_is_not_taken_for_a_clean_one(disk: FaultDisk) -> None:
    for seed in range(20):
        disk = FaultDisk(seed)
        disk.mkdir(DATA)
        disk.fsync_directory(Path("/"))
        manager_on(disk).close({})
        manager = manager_on(disk)
        assert manager.last_shutdown is Shutdown.CLEAN
        append(manager.create(ORDERS, ORDERS_ID, CONFIG), b"x")
        disk.restart(power_cut=True)
        assert manager_on(disk, boot_id="boot-2").last_shutdown is Shutdown.UNCLEAN


def test_logs_are_found_again_with_their_checkpoints(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    log = manager.create(ORDERS, ORDERS_ID, CONFIG)
    other = manager.create(TopicPartition("a-b-3", 12), uuid.UUID(int=7), CONFIG)
    values = fill(log, 12)
    append(other, b"x")
    log.raise_log_start(3)
    manager.close({ORDERS: 11})

    manager = manager_on(disk)
    logs = manager.load_all(config_for)
    assert list(logs) == [TopicPartition("a-b-3", 12), ORDERS]
    again = logs[ORDERS]
    assert (again.topic_id, again.log_start_offset, again.log_end_offset, again.recovery_point) == (
        ORDERS_ID,
        3,
        12,
        12,
    )
    assert [record.value for record in read_all(again)] == values[3:]
    assert manager.high_watermark_of(ORDERS) == 11
    assert manager.high_watermark_of(TopicPartition("none", 0)) == 0


def test_logs_are_recovered_after_a_power_cut(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    log = manager.create(ORDERS, ORDERS_ID, CONFIG)
    values = fill(log, 12)
    log.flush()
    manager.checkpoint({ORDERS: 12})()
    fill(log, 5)
    disk.restart(power_cut=True)
    again = manager_on(disk, boot_id="boot-2").load_all(config_for)[ORDERS]
    assert again.log_end_offset >= 12
    assert [record.value for record in read_all(again)][:12] == values


def test_creating_a_log_that_is_open_returns_it(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    log = manager.create(ORDERS, ORDERS_ID, CONFIG)
    assert manager.create(ORDERS, ORDERS_ID, CONFIG) is log
    with pytest.raises(InvariantBroken):
        manager.create(ORDERS, uuid.UUID(int=9), CONFIG)


def test_creating_a_log_that_lies_there_opens_it_with_its_records(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    fill(manager.create(ORDERS, ORDERS_ID, CONFIG), 5)
    manager = manager_on(disk)
    assert manager.create(ORDERS, ORDERS_ID, CONFIG).log_end_offset == 5


def test_a_topic_that_was_created_again_begins_empty(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    fill(manager.create(ORDERS, ORDERS_ID, CONFIG), 5)
    manager.close({ORDERS: 5})
    manager = manager_on(disk)
    log = manager.create(ORDERS, uuid.UUID(int=9), CONFIG)
    assert (log.log_end_offset, manager.high_watermark_of(ORDERS)) == (0, 0)
    assert [name for name in disk.listdir(DATA) if name.endswith("-delete")]


def test_a_deleted_log_is_renamed_at_once_and_unlinked_after_the_delay(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    log = manager.create(ORDERS, ORDERS_ID, CONFIG)
    fill(log, 12)
    piece = log.read(0, 1000, 12)
    assert piece is not None
    piece.retain()
    manager.delete(ORDERS)
    manager.delete(ORDERS)
    assert not disk.exists(DATA / "orders-0") and manager.logs == {}
    (folder,) = [name for name in disk.listdir(DATA) if name.endswith("-delete")]
    assert folder.startswith("orders-0.") and len(folder) == len("orders-0.-delete") + 32
    assert piece.read()
    piece.release()
    assert manager.due_deletions(START_MS + 59_999) == []
    manager.unlink(manager.due_deletions(START_MS + 60_000))
    assert not disk.exists(DATA / folder)


def test_a_deletion_that_was_interrupted_is_finished_after_the_next_start(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    fill(manager.create(ORDERS, ORDERS_ID, CONFIG), 12)
    manager.delete(ORDERS)
    manager = manager_on(disk)
    assert manager.load_all(config_for) == {}
    manager.unlink(manager.due_deletions(START_MS))
    assert not [name for name in disk.listdir(DATA) if name.endswith("-delete")]


def test_the_folder_of_a_long_name_can_be_renamed(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    long = TopicPartition("t" * 249, 12345)
    manager.create(long, ORDERS_ID, CONFIG)
    manager.delete(long)
    (folder,) = [name for name in disk.listdir(DATA) if name.endswith("-delete")]
    assert len(folder) == 255


def test_other_folders_and_files_are_left_alone(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    disk.mkdir(DATA / "orders-7")
    disk.mkdir(DATA / "lost+found")
    disk.close(disk.open(DATA / "notes-1", 0o100))
    assert manager.load_all(config_for) == {}
    assert disk.exists(DATA / "orders-7") and disk.exists(DATA / "notes-1")


def test_a_damaged_checkpoint_means_that_more_is_checked(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    fill(manager.create(ORDERS, ORDERS_ID, CONFIG), 5)
    manager.close({ORDERS: 5})
    disk.names[DATA / "recovery-point-offset-checkpoint"].data[:] = b"garbage"
    manager = manager_on(disk)
    assert manager.load_all(config_for)[ORDERS].log_end_offset == 5


def test_a_close_that_cannot_flush_leaves_no_mark(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    append(manager.create(ORDERS, ORDERS_ID, CONFIG), b"x")
    disk.fail("fdatasync", errno.EIO)
    manager.close({})
    assert not disk.exists(DATA / ".kafka_cleanshutdown")


def failed(code: int) -> LogWriteFailed:
    return LogWriteFailed("writing", OSError(code, "no"), DATA / "orders-0")


def state_of(manager: LogManager) -> DirectoryState:
    assert manager.check_space() == []
    return manager.directories[0].state


def test_a_full_directory_takes_writes_again_when_enough_is_free(disk: FaultDisk) -> None:
    manager = manager_on(disk, min_free_bytes=1_000)
    used = sum(len(inode.data) for inode in disk._files())
    assert state_of(manager) is DirectoryState.ONLINE
    assert manager.write_failed(failed(errno.ENOSPC)).state is DirectoryState.FULL
    assert manager.directories[0].refusal == "the data directory /data is full"
    disk.capacity = used + 999
    assert state_of(manager) is DirectoryState.FULL
    disk.capacity = used + 1_000
    assert state_of(manager) is DirectoryState.ONLINE and not manager.directories[0].refusal
    disk.capacity = used + 999
    assert state_of(manager) is DirectoryState.ONLINE
    assert (manager.directories[0].total_bytes, manager.directories[0].free_bytes) == (used + 999, 999)


def test_a_directory_that_failed_stays_offline_and_ends_uncleanly(disk: FaultDisk) -> None:
    manager = manager_on(disk)
    append(manager.create(ORDERS, ORDERS_ID, CONFIG), b"x")
    assert manager.write_failed(failed(errno.EIO)).state is DirectoryState.OFFLINE
    assert manager.write_failed(failed(errno.ENOSPC)).state is DirectoryState.OFFLINE
    assert state_of(manager) is DirectoryState.OFFLINE and manager.directories[0].refusal
    manager.close({})
    assert not disk.exists(DATA / ".kafka_cleanshutdown")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("orders", None),
        ("orders-", None),
        ("orders-x", None),
        ("-1", None),
        ("ord ers-1", None),
        ("orders-0.0123-delete", None),
    ],
)
def test_folders_are_named_by_topic_and_partition(name: str, expected: TopicPartition | None) -> None:
    assert parse_folder_name(name) == expected
