"""Whose turn it is on a broker, and what becomes of a round that goes wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.base.ids import TopicPartition
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.log_cleaner import DEATHS_MAX, IDLE_MS, LogCleaner
from appliance.broker_actors.log_cleaner_worker import Report
from appliance.controller.records import TopicDeleted
from appliance.log.cleaner import CleaningJob, CleaningRound
from appliance.records.builder import build_batch
from appliance.records.errors import CorruptBatch
from tests.unit.broker_actors.test_partition_host import TOPIC_ID, World

COMPACT = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.1",
    "internal_segment_bytes": "600",
    "file_delete_delay_ms": "0",
    "remote_storage_enable": "false",
}


class HandWorker:
    """A helper that works when the test says so, in this process."""

    def __init__(self) -> None:
        self.job: CleaningJob | None = None
        self.on_report: Callable[[Report], None] | None = None
        self.rests = 0
        self.closed = False

    @property
    def is_busy(self) -> bool:
        return self.on_report is not None

    def clean(self, job: CleaningJob, on_report: Callable[[Report], None]) -> None:
        self.job, self.on_report = job, on_report

    def work(self) -> None:
        assert self.job is not None and self.on_report is not None
        report = self.on_report
        round_ = CleaningRound(self.job, SystemDisk())
        try:
            for cleaned in round_.run():
                report({"cleaned": cleaned._asdict()})
        except CorruptBatch as error:
            self.end({"failed": str(error), "is_damage": True})
        except OSError as error:
            self.end({"failed": str(error), "is_damage": False})
        else:
            self.end({"done": round_.end_offset, "stats": asdict(round_.stats), "took_ms": 5})

    def end(self, last: Report) -> None:
        report, self.on_report, self.job = self.on_report, None, None
        assert report is not None
        report(last)

    def rest(self) -> None:
        self.rests += 1

    def close(self) -> None:
        self.closed = True


class CleanerWorld(World):
    def __init__(self, folder: Path, **properties: str) -> None:
        super().__init__(folder, **properties)
        self.workers: list[HandWorker] = []
        self.cleaner = LogCleaner(self.host, self.clock, self.background, self._new_worker)

    def _new_worker(self, number: int) -> HandWorker:
        self.workers.append(HandWorker())
        return self.workers[-1]

    def look(self) -> None:
        """Let the time of one look pass."""
        self.background.advance(15_100)

    def fill(self, hosted: HostedPartition, count: int = 40) -> None:
        for n in range(count):
            batch = build_batch([(self.clock.now_ms(), b"k%d" % (n % 3), b"%04d" % n * 10, [])])
            hosted.append_records(batch, lambda *_: None)
            self.host.end_of_tick()
        self.make_durable(hosted)

    def make_durable(self, hosted: HostedPartition) -> None:
        hosted.log.flush()
        self.logs.checkpoint(self.host.high_watermarks())()


@pytest.fixture
def world(tmp_path: Path) -> CleanerWorld:
    return CleanerWorld(tmp_path)


def values(hosted: HostedPartition) -> int:
    return sum(1 for _ in hosted.read_committed_batches())


def begin(world: CleanerWorld, partitions: int = 1, **configs: str) -> list[HostedPartition]:
    world.create(partitions=partitions, **(COMPACT | configs))
    world.cleaner.start()
    return [world.partition(n) for n in range(partitions)]


def test_a_dirty_log_is_cleaned_and_its_end_is_noted(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    before = values(hosted)
    world.look()
    world.workers[0].work()
    assert values(hosted) < before
    assert hosted.log.cleaned_offset == hosted.log.segments[-1].base_offset
    numbers = world.cleaner.numbers
    assert numbers.rounds == 1 and numbers.cleaned_bytes > numbers.written_bytes > 0
    assert not world.workers[0].is_busy, "it is clean now"
    assert numbers.max_dirty_percent == 0 and world.cleaner.time_since_last_run_ms == 0
    again = world.logs.directories[0]
    world.make_durable(hosted)
    assert f"t 0 {hosted.log.cleaned_offset}" in (again.path / "cleaner-offset-checkpoint").read_text()


def test_what_is_not_compacted_is_left_alone(world: CleanerWorld) -> None:
    (hosted,) = begin(world, cleanup_policy="delete")
    world.fill(hosted)
    world.look()
    assert not world.workers or not world.workers[0].is_busy


def test_a_log_below_its_ratio_waits(world: CleanerWorld) -> None:
    (hosted,) = begin(world, min_cleanable_dirty_ratio="0.99")
    world.fill(hosted)
    world.look()
    world.workers[0].work()
    world.fill(hosted, 3)
    world.look()
    assert not world.workers[0].is_busy
    assert 0 < world.cleaner.numbers.max_dirty_percent < 99


def test_nothing_happens_while_the_cleaner_is_switched_off(tmp_path: Path) -> None:
    world = CleanerWorld(tmp_path, log_cleaner_enable="false")
    (hosted,) = begin(world)
    world.fill(hosted)
    world.look()
    assert not world.workers


def test_as_many_logs_at_a_time_as_there_are_threads(tmp_path: Path) -> None:
    world = CleanerWorld(tmp_path, log_cleaner_threads="2", log_cleaner_dedupe_buffer_size="4000000")
    all_hosted = begin(world, partitions=3)
    for hosted in all_hosted:
        world.fill(hosted)
    world.look()
    assert [worker.is_busy for worker in world.workers] == [True, True]
    jobs = [worker.job for worker in world.workers]
    assert len({job.directory for job in jobs if job}) == 2
    assert {job.map_bytes for job in jobs if job} == {2_000_000}
    for worker in world.workers:
        worker.work()
    assert sum(worker.is_busy for worker in world.workers) == 1, "the third has its turn at once"


def test_damage_takes_a_log_out_and_the_others_go_on(world: CleanerWorld) -> None:
    damaged, sound = begin(world, partitions=2)
    for hosted in (damaged, sound):
        world.fill(hosted)
    path = damaged.log.segments[0].path
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    for _ in range(3):
        world.look()
        for worker in world.workers:
            if worker.is_busy:
                worker.work()
    assert list(world.cleaner.numbers.uncleanable) == [TopicPartition("t", 0)]
    assert world.cleaner.refused_logs == [damaged.log]
    assert "crc" in world.cleaner.numbers.uncleanable[TopicPartition("t", 0)]
    assert sound.log.cleaned_offset > 0 and damaged.log.cleaned_offset == -1
    assert not damaged.offline, "what can be read still is"


def test_a_log_that_was_cut_meanwhile_is_not_taken_for_damaged(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    world.look()
    hosted.log.truncate_to(3)
    world.workers[0].work()
    assert not world.cleaner.numbers.uncleanable
    assert hosted.log.cleaned_offset == -1
    assert hosted.log.log_end_offset == 3


def test_a_log_that_was_deleted_meanwhile_is_forgotten(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    world.look()
    world.commit(TopicDeleted(TOPIC_ID))
    world.workers[0].work()
    assert not world.cleaner.numbers.uncleanable and not world.workers[0].is_busy
    assert world.host.get_by_id(uuid.UUID(int=77), 0) is None


def test_a_helper_that_dies_has_other_tries(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    for death in range(1, DEATHS_MAX + 1):
        assert not world.cleaner.numbers.uncleanable, death
        world.look()
        world.workers[0].end({"failed": "it ended with -9", "is_damage": False, "has_died": True})
    assert "-9" in world.cleaner.numbers.uncleanable[TopicPartition("t", 0)]
    world.look()
    assert not world.workers[0].is_busy


def test_a_full_disk_is_a_reason_to_try_again(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    for _ in range(DEATHS_MAX + 1):
        world.look()
        world.workers[0].end({"failed": "no space left", "is_damage": False})
    assert not world.cleaner.numbers.uncleanable
    world.look()
    world.workers[0].work()
    assert hosted.log.cleaned_offset > 0


def test_a_young_log_is_asked_for_its_times_first(world: CleanerWorld) -> None:
    (hosted,) = begin(world, min_compaction_lag_ms="100000")
    world.fill(hosted)
    world.look()
    assert not world.workers or not world.workers[0].is_busy
    world.background.advance(120_000)
    assert world.workers[0].is_busy


def test_idle_helpers_end(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    world.look()
    world.workers[0].work()
    world.background.advance(IDLE_MS + 20_000)
    assert world.workers[0].rests > 0


def test_the_end_of_the_broker_ends_the_helpers(world: CleanerWorld) -> None:
    (hosted,) = begin(world)
    world.fill(hosted)
    world.look()
    world.cleaner.close()
    assert world.workers[0].closed
    world.workers[0].work()
    assert hosted.log.cleaned_offset == -1, "nobody listens any more"


def test_of_a_tiered_log_only_what_the_tier_has_is_compacted(world: CleanerWorld) -> None:
    (hosted,) = begin(world, remote_storage_enable="true")
    world.fill(hosted)
    world.look()
    assert not world.workers or not world.workers[0].is_busy
    tiered_end = hosted.log.segments[2].base_offset
    hosted.tiered_to(tiered_end)
    world.look()
    world.workers[0].work()
    assert hosted.log.cleaned_offset == tiered_end
    assert hosted.log.compacted_to == tiered_end
    hosted.tiered_to(hosted.log.segments[-1].base_offset)
    world.look()
    assert hosted.log.compacted_to == -1, "a round is under way"
    world.workers[0].work()
    assert hosted.log.compacted_to == hosted.log.segments[-1].base_offset
