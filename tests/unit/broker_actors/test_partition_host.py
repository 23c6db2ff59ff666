from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from appliance.base.config import BrokerConfig
from appliance.base.disk import SystemDisk
from appliance.base.errors import ErrorCode
from appliance.broker_actors import log_care
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.log_care import FLUSH_LOOK_INTERVAL_MS, LogCare, retain
from appliance.broker_actors.partition_host import PartitionHost
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import MetadataImage
from appliance.controller.records import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionChanged,
    PartitionState,
    Record,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
)
from appliance.log.log_manager import LogManager
from appliance.partition.replica_sessions import ReplicaSession
from appliance.records.batch import parse_header
from appliance.records.builder import build_batch
from appliance.server.handlers.produce_results import PartitionResult
from appliance.wire.messages.produce import PartitionProduceResponse
from tests.support.hand_loop import HandBackground, HandClock

BROKER_ID = 1
TOPIC_ID = uuid.UUID(int=77)


class FailingDisk(SystemDisk):
    """Fails its writes with the errors that the test has put in."""

    def __init__(self) -> None:
        self.write_errors: list[int] = []
        self.sync_errors: list[int] = []
        self.free = 1 << 40

    def writev(self, descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
        if self.write_errors:
            raise OSError(self.write_errors.pop(0), "on purpose")
        return super().writev(descriptor, pieces)

    def fdatasync(self, descriptor: int) -> None:
        if self.sync_errors:
            raise OSError(self.sync_errors.pop(0), "on purpose")
        super().fdatasync(descriptor)

    def free_bytes(self, path: Path) -> int:
        return self.free


class World:
    """A partition host over real logs, with metadata that the test writes."""

    def __init__(self, folder: Path, *, later: bool = False, **properties: str) -> None:
        self.clock = HandClock()
        self.background = HandBackground(self.clock, later=later)
        self.disk = FailingDisk()
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in properties.items()})
        self.logs = LogManager(
            folder, broker_id=BROKER_ID, cluster_id="c", clock=self.clock, disk=self.disk, min_free_bytes=1_000
        )
        self.ticks = 0
        self.host = PartitionHost(BROKER_ID, self.logs, self.config, self.clock, self.background, self._begin_tick)
        self.host.set_serving(True)
        self.image = MetadataImage()
        self._number = 0
        self.leadership: list[tuple[str, int, bool]] = []
        self.host.watch(lambda hosted: self._told(hosted, True), lambda hosted: self._told(hosted, False))

    def _begin_tick(self) -> None:
        self.ticks += 1

    def _told(self, hosted: HostedPartition, leads: bool) -> None:
        self.leadership.append((hosted.topic, hosted.partition, leads))

    def commit(self, *records: Record) -> None:
        delta = MetadataDelta(self.image)
        self._number += 1
        delta.apply_commit(self._number, records)
        self.image = delta.build()
        self.host.apply(self.image, sorted(delta.changed_topics))

    def create(self, partitions: int = 1, **configs: str) -> None:
        self.commit(
            TopicCreated("t", TOPIC_ID),
            *[TopicConfigSet(TOPIC_ID, name.replace("_", "."), value) for name, value in configs.items()],
            *[PartitionChanged(TOPIC_ID, led_by(BROKER_ID, 0, number)) for number in range(partitions)],
        )

    def partition(self, number: int = 0) -> HostedPartition:
        hosted = self.host.get("t", number)
        assert hosted is not None
        return hosted


def led_by(leader: int, leader_epoch: int, partition: int = 0) -> PartitionState:
    return PartitionState(partition, leader, leader_epoch, leader_epoch, (BROKER_ID,), (BROKER_ID,))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path)


def append(hosted: HostedPartition, value: bytes = b"x") -> list[tuple[ErrorCode, int]]:
    told: list[tuple[ErrorCode, int]] = []
    hosted.append_records(
        build_batch([(1_700_000_000_000, b"k", value, [])]), lambda error, offset: told.append((error, offset))
    )
    return told


def values(hosted: HostedPartition) -> int:
    return sum(1 for _ in hosted.read_committed_batches())


def test_what_the_metadata_gives_to_this_broker_is_opened_and_led(world: World) -> None:
    generation = world.host.generation
    world.create(partitions=2)
    assert world.host.generation > generation
    assert world.leadership == [("t", 0, True), ("t", 1, True)]
    hosted = world.partition(1)
    assert (hosted.is_leader, hosted.leader_epoch, hosted.refusal()) == (True, 0, ErrorCode.NONE)
    assert world.host.get_by_id(TOPIC_ID, 1) is hosted
    assert (world.logs.directories[0].path / "t-1").is_dir()


def test_records_are_committed_by_the_tick_and_not_before(world: World) -> None:
    world.create()
    hosted = world.partition()
    told = append(hosted)
    assert world.ticks == 1, "somebody has to write it"
    assert (told, hosted.high_watermark) == ([], 0)
    world.host.end_of_tick()
    assert told == [(ErrorCode.NONE, 0)]
    assert (hosted.high_watermark, hosted.log_end_offset, values(hosted)) == (1, 1, 1)


def test_while_not_serving_everything_is_refused(world: World) -> None:
    world.create()
    world.host.set_serving(False)
    assert world.partition().refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append(world.partition()) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    world.host.set_serving(True)
    assert world.partition().refusal() == ErrorCode.NONE


def test_a_full_disk_refuses_writes_until_there_is_space_and_reads_go_on(world: World) -> None:
    world.create()
    hosted = world.partition()
    append(hosted)
    world.host.end_of_tick()
    world.disk.write_errors = [errno.ENOSPC]
    world.disk.free = 10
    told = append(hosted)
    world.host.end_of_tick()
    assert told == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert (hosted.log_end_offset, values(hosted), hosted.refusal()) == (1, 1, ErrorCode.NONE)
    assert not hosted.plain, "the short way would not look at the disk's state"
    assert append(hosted) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    care = LogCare(world.host, world.logs, world.config, world.clock, world.background)
    care.start()
    world.background.advance(1_500)
    assert append(hosted) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    world.disk.free = 1 << 40
    world.background.advance(1_500)
    assert hosted.plain
    told = append(hosted)
    world.host.end_of_tick()
    assert told == [(ErrorCode.NONE, 1)]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_repetition_in_the_tick_of_a_write_that_fails_fails_too(world: World, error: int) -> None:
    world.create()
    hosted = world.partition()
    append(hosted)
    world.host.end_of_tick()

    def sent(sequence: int) -> tuple[PartitionResult, list[tuple[ErrorCode, int]]]:
        """A producer's batch, as a request and as a coordinator bring it."""
        batch = build_batch([(1, b"k", b"v", [])], producer_id=7, producer_epoch=0, base_sequence=sequence)
        result = PartitionResult(PartitionProduceResponse(index=0))
        result.hosted = hosted
        result.base_offset = hosted.append(memoryview(bytearray(batch)), parse_header(batch), world.clock.now_ms())
        result.required_offset = result.base_offset + 1
        told: list[tuple[ErrorCode, int]] = []
        hosted.append_records(batch, lambda code, offset: told.append((code, offset)))
        return result, told

    world.disk.write_errors = [error]
    results = [sent(0), sent(0), sent(1), sent(1)]
    assert [result.base_offset for result, _ in results] == [1, 1, 2, 2], "half of them repeat the other half"
    world.host.end_of_tick()
    assert not any(result.written() for result, _ in results)
    assert {result.answer.error_code for result, _ in results} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert [told for _, told in results] == [[(ErrorCode.KAFKA_STORAGE_ERROR, -1)]] * 4
    assert hosted.log_end_offset == 1
    assert hosted.log.producer_state.entries == {}, "the next attempt is no repetition"


def test_a_disk_that_fails_takes_every_partition_out_of_service(world: World) -> None:
    world.create(partitions=2)
    world.disk.write_errors = [errno.EIO] * 2
    told, also_told = append(world.partition(0)), append(world.partition(1))
    world.host.end_of_tick()
    assert told == also_told == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert world.partition(0).refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.partition(1).refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    assert ("t", 1, False) in world.leadership


def test_with_flush_messages_1_nothing_is_acknowledged_or_shown_before_it_is_durable(tmp_path: Path) -> None:
    world = World(tmp_path, later=True)
    world.create(flush_messages="1")
    world.background.do_work()
    hosted = world.partition()
    assert not hosted.plain
    told = append(hosted)
    world.host.end_of_tick()
    second = append(hosted)
    world.host.end_of_tick()
    assert (told, second, hosted.high_watermark, hosted.log_end_offset) == ([], [], 0, 2)
    assert len(world.background.waiting) == 1, "one flush at a time, for all that has come by then"
    world.background.do_work()
    assert (told, second, hosted.high_watermark) == ([(ErrorCode.NONE, 0)], [(ErrorCode.NONE, 1)], 2)
    assert hosted.log.recovery_point == 2


def test_a_failed_flush_is_never_forgiven(world: World) -> None:
    world.create(flush_messages="1")
    hosted = world.partition()
    world.disk.sync_errors = [errno.EIO]
    told = append(hosted)
    world.host.end_of_tick()
    assert told == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert hosted.refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    assert append(hosted) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_a_topic_that_wants_flushes_now_and_then_gets_them(world: World) -> None:
    world.create(partitions=1, flush_messages="2")
    hosted = world.partition()
    append(hosted)
    world.host.end_of_tick()
    care = LogCare(world.host, world.logs, world.config, world.clock, world.background)
    care.start()
    world.background.advance(2_000)
    assert hosted.log.recovery_point == 0
    append(hosted)
    world.host.end_of_tick()
    world.background.advance(2_000)
    assert hosted.log.recovery_point == 2


def test_an_idle_segment_is_rolled_when_its_time_is_over(world: World) -> None:
    world.create(1, segment_ms="400000")
    hosted = world.partition()
    append(hosted)
    world.host.end_of_tick()
    LogCare(world.host, world.logs, world.config, world.clock, world.background).start()
    world.background.advance(300_000)
    assert len(hosted.log.segments) == 1
    world.background.advance(300_000)
    assert len(hosted.log.segments) == 2
    world.background.advance(900_000)
    assert len(hosted.log.segments) == 2


def test_a_new_leader_epoch_is_a_new_leadership(world: World) -> None:
    world.create()
    world.commit(PartitionChanged(TOPIC_ID, led_by(BROKER_ID, 3)))
    hosted = world.partition()
    assert hosted.leader_epoch == 3
    assert world.leadership == [("t", 0, True), ("t", 0, False), ("t", 0, True)]
    append(hosted)
    world.host.end_of_tick()
    assert hosted.log.leader_epochs.latest == 3


def test_who_does_not_lead_refuses(world: World) -> None:
    world.create()
    world.commit(PartitionChanged(TOPIC_ID, led_by(NO_LEADER, 1)))
    hosted = world.partition()
    assert hosted.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.leadership[-1] == ("t", 0, False)
    assert hosted.leader_epoch == 1


def test_metadata_that_was_rolled_back_takes_the_partition_out_of_service(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    world.commit(PartitionChanged(TOPIC_ID, led_by(BROKER_ID, 9)))
    append(world.partition())
    world.host.end_of_tick()
    world.logs.close(world.host.high_watermarks())
    again = World(tmp_path)
    again.logs.load_all(lambda topic: again.host.config_of(again.image, topic))
    again.create()
    assert again.partition().refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    assert "rolled back" in again.partition().offline


def test_a_deleted_topic_goes_with_its_files_even_while_batches_are_staged(world: World) -> None:
    world.create()
    told = append(world.partition())
    world.commit(TopicDeleted(TOPIC_ID))
    assert world.host.get("t", 0) is None
    assert world.host.by_id == {}
    assert not (world.logs.directories[0].path / "t-0").exists()
    assert len(told) == 1, "whoever waited was told"
    world.host.end_of_tick()


def test_a_topic_deleted_while_it_was_being_opened_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, later=True)
    world.create()
    assert world.host.is_opening
    world.commit(TopicDeleted(TOPIC_ID))
    world.background.do_work()
    assert world.host.get("t", 0) is None
    assert not world.host.is_opening
    assert not (world.logs.directories[0].path / "t-0").exists()


def test_a_topic_created_again_while_the_old_one_was_being_opened_is_opened_in_the_end(tmp_path: Path) -> None:
    world = World(tmp_path, later=True)
    world.create()
    again = uuid.UUID(int=78)
    world.commit(TopicDeleted(TOPIC_ID), TopicCreated("t", again), PartitionChanged(again, led_by(BROKER_ID, 0)))
    world.background.do_work()
    world.background.advance(2_000)
    world.background.do_work()
    assert world.partition().topic_id == again
    assert world.partition().log.topic_id == again
    assert world.partition().refusal() == ErrorCode.NONE


def test_many_logs_take_turns_to_be_asked_for_a_flush(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_care, "FLUSH_LOOKS_MIN", 10)
    care = LogCare(world.host, world.logs, world.config, world.clock, world.background)
    care.start()
    world.create(30)
    for number in range(30):
        append(world.partition(number))
        world.host.end_of_tick()
        world.partition(number).log.roll(world.clock.now_ms())
    # As if they had rolled in an earlier life.
    world.logs.files.rolled.clear()
    for flushed in (10, 20, 30):
        world.background.advance(FLUSH_LOOK_INTERVAL_MS)
        assert sum(hosted.log.recovery_point for hosted in world.host) == flushed


def test_one_that_has_rolled_is_asked_at_once_however_many_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_care, "FLUSH_LOOKS_MIN", 1)
    care = LogCare(world.host, world.logs, world.config, world.clock, world.background)
    care.start()
    world.create(30)
    for number in (17, 29):
        append(world.partition(number))
        world.host.end_of_tick()
        world.partition(number).log.roll(world.clock.now_ms())
    world.background.advance(FLUSH_LOOK_INTERVAL_MS)
    assert {hosted.partition for hosted in world.host if hosted.log.recovery_point} == {17, 29}
    world.background.advance(FLUSH_LOOK_INTERVAL_MS)
    assert not care._rolled


def test_logs_that_no_topic_owns_are_put_away(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    world.logs.close(world.host.high_watermarks())
    again = World(tmp_path)
    again.logs.load_all(lambda topic: again.host.config_of(again.image, topic))
    again.host.put_strays_away(again.image)
    assert not (tmp_path / "t-0").exists()
    assert len(list(tmp_path.glob("t-0.*-delete"))) == 1
    keep_ms = again.config.get("log.stray.keep.ms")
    assert again.logs.due_deletions(again.clock.now_ms() + keep_ms - 1) == []
    assert len(again.logs.due_deletions(again.clock.now_ms() + keep_ms)) == 1


def test_the_high_watermark_of_the_last_life_is_where_it_begins(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    append(world.partition())
    world.host.end_of_tick()
    world.logs.close(world.host.high_watermarks())
    again = World(tmp_path)
    again.logs.load_all(lambda topic: again.host.config_of(again.image, topic))
    again.create()
    assert (again.partition().high_watermark, again.partition().log_end_offset) == (1, 1)


def test_changed_configs_reach_the_log(world: World) -> None:
    world.create()
    world.commit(TopicConfigSet(TOPIC_ID, "max.message.bytes", "1000"))
    assert world.partition().config.max_message_bytes == 1_000
    assert world.partition().log.config.max_message_bytes == 1_000


@pytest.mark.parametrize(
    "config",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"cleanup_policy": "compact"},
        {"message_timestamp_before_max_ms": "1000"},
    ],
)
def test_topics_with_special_wishes_take_the_long_way(world: World, config: dict[str, str]) -> None:
    world.create()
    assert world.partition().plain
    world.commit(*[TopicConfigSet(TOPIC_ID, name.replace("_", "."), value) for name, value in config.items()])
    assert not world.partition().plain


def test_followers_are_told_of_a_higher_tiered_end_where_nothing_is_appended(world: World) -> None:
    world.create()
    hosted = world.partition()
    session = ReplicaSession(1, 2, 0)
    followed = session.follow((TOPIC_ID, 0))
    hosted.followed_by.append(followed)
    session.ready.clear()
    hosted.tiered_to(500)
    assert list(session.ready) == [followed]
    session.ready.clear()
    hosted.tiered_to(400)
    assert (hosted.tiered_end, list(session.ready)) == (500, [])


def test_a_log_counts_as_lost_only_after_an_unclean_election(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.must_recover = True
    world.create()
    world.commit(PartitionChanged(TOPIC_ID, led_by(BROKER_ID, 1)))
    assert (world.partition().recovering, world.partition().log_was_lost) == (True, False), "nobody ever wrote to it"
    recovering = {"leader_recovery_state": LeaderRecoveryState.RECOVERING}
    world.commit(PartitionChanged(TOPIC_ID, msgspec.structs.replace(led_by(BROKER_ID, 2), **recovering)))
    assert (world.partition().recovering, world.partition().log_was_lost) == (True, True)


def test_a_leader_that_must_look_at_the_tier_first_serves_only_then(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.must_recover = True
    world.create()
    assert world.partition().refusal() == ErrorCode.NONE, "a new partition has nothing in the tier"
    world.commit(PartitionChanged(TOPIC_ID, led_by(BROKER_ID, 1)))
    hosted = world.partition()
    assert hosted.recovering
    assert hosted.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    hosted.log.truncate_fully_and_start_at(500)
    hosted.recovered()
    assert hosted.refusal() == ErrorCode.NONE
    assert (hosted.high_watermark, hosted.log_end_offset) == (500, 500)
    told = append(hosted)
    world.host.end_of_tick()
    assert told == [(ErrorCode.NONE, 500)]


def test_a_mistake_of_ours_takes_only_its_partition_out_of_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appliance.base.errors import InvariantBroken

    world.create(partitions=2)

    def broken(*arguments: object) -> int:
        raise InvariantBroken("on purpose")

    monkeypatch.setattr(type(world.partition(0).log), "stage", broken)
    assert append(world.partition(0)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert world.partition(0).refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.partition(1).refusal() == ErrorCode.NONE


def test_retention_leaves_tiered_logs_to_the_tier(world: World) -> None:
    world.create(retention_ms="1", segment_bytes="1048576")
    append(world.partition())
    world.host.end_of_tick()
    retain(world.partition(), world.clock.now_ms() + 10_000)
    assert world.partition().log_start_offset == 0
    world.commit(TopicConfigSet(TOPIC_ID, "remote.storage.enable", "false"))
    retain(world.partition(), world.clock.now_ms() + 10_000)
    assert world.partition().log_start_offset == 1
