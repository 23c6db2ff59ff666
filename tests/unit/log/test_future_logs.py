"""Logs move between two directories of a broker, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.log.future_logs import MOVING_FILE, FutureLog, fits_in_a_name, future_name, parse_future_name
from appliance.log.log_manager import LogManager
from appliance.records.batch import check_batch
from tests.support.log_life import NoLock, contents
from tests.support.logs import START_MS, TOPIC_ID, TOPIC_PARTITION, TestClock, batch_of, config_of

CONFIG = config_of(segment_bytes=400)


def open_manager(folder: Path) -> LogManager:
    paths = [folder / "one", folder / "two"]
    for path in paths:
        path.mkdir(exist_ok=True)
    return LogManager(paths, broker_id=1, cluster_id="c", clock=TestClock(), disk=SystemDisk(), lock=NoLock)


def append(manager: LogManager, *values: bytes) -> None:
    log = manager.logs[TOPIC_PARTITION]
    for value in values:
        batch = batch_of(value)
        log.stage(memoryview(batch), check_batch(batch), 0, START_MS)
    log.write_staged()


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    manager = open_manager(tmp_path)
    manager.load_all(lambda topic: CONFIG)
    manager.create(TOPIC_PARTITION, TOPIC_ID, CONFIG)
    append(manager, *(b"%d" % number * 50 for number in range(10)))
    return manager


def begun(manager: LogManager) -> FutureLog:
    source = manager.directory_of(manager.logs[TOPIC_PARTITION].directory)
    (target,) = [each for each in manager.directories if each is not source]
    return manager.futures.begin(TOPIC_PARTITION, target, CONFIG)


def move(moved: FutureLog) -> None:
    while moved.lag:
        moved.copy(200, START_MS)
    moved.prepare()
    assert moved.may_swap
    moved.swap()


def test_names_are_apache_kafkas(manager: LogManager) -> None:
    name = future_name(TOPIC_PARTITION, manager.randomness)
    assert name.startswith(f"{TOPIC_PARTITION}.") and name.endswith("-future")
    assert parse_future_name(name) == TOPIC_PARTITION
    assert parse_future_name(str(TOPIC_PARTITION)) is None
    assert fits_in_a_name(TOPIC_PARTITION)
    assert not fits_in_a_name(TOPIC_PARTITION._replace(topic="x" * 240))


def test_a_log_goes_on_where_it_has_moved_to(manager: LogManager, tmp_path: Path) -> None:
    log = manager.logs[TOPIC_PARTITION]
    before, source = contents(log), log.directory
    move(begun(manager))
    assert manager.logs[TOPIC_PARTITION] is log
    assert log.directory.parent != source.parent
    assert contents(log) == before
    assert not source.exists() and not manager.futures.under_way
    append(manager, b"more")
    manager.close({TOPIC_PARTITION: 11})
    again = open_manager(tmp_path).load_all(lambda topic: CONFIG)[TOPIC_PARTITION]
    assert (again.directory, again.log_end_offset) == (log.directory, 11)


def test_what_was_deleted_within_a_segment_stays_deleted(manager: LogManager, tmp_path: Path) -> None:
    log = manager.logs[TOPIC_PARTITION]
    log.raise_log_start(5)
    log.delete_local_segments_below(4)
    move(begun(manager))
    assert log.log_start_offset == 5
    manager.close({TOPIC_PARTITION: 10}, clean=False)
    assert open_manager(tmp_path).load_all(lambda topic: CONFIG)[TOPIC_PARTITION].log_start_offset == 5


def test_nothing_takes_over_that_is_not_all_there(manager: LogManager) -> None:
    moved = begun(manager)
    moved.copy(1 << 20, START_MS)
    assert not moved.may_swap, "the log start is not stored yet"
    moved.prepare()
    append(manager, b"more")
    assert not moved.may_swap
    moved.copy(1 << 20, START_MS)
    assert moved.may_swap
    manager.logs[TOPIC_PARTITION].flush()
    assert not moved.may_swap, "more of the log in use is durable"
    moved.prepare()
    assert moved.may_swap


def test_a_move_is_given_up(manager: LogManager) -> None:
    moved = begun(manager)
    moved.copy(1 << 20, START_MS)
    moved.prepare()
    assert (moved.log.directory / MOVING_FILE).exists()
    manager.futures.cancel(TOPIC_PARTITION)
    assert not (moved.log.directory / MOVING_FILE).exists()
    assert not moved.future.directory.exists()
    move(begun(manager))


def test_a_log_that_may_have_moved_to_a_lost_directory_is_not_opened(manager: LogManager, tmp_path: Path) -> None:
    moved = begun(manager)
    moved.copy(1 << 20, START_MS)
    moved.prepare()
    manager.close({TOPIC_PARTITION: 10}, clean=False)
    moved.target.path.rename(tmp_path / "unplugged")
    assert TOPIC_PARTITION not in open_manager(tmp_path).load_all(lambda topic: CONFIG)
