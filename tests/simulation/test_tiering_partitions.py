"""Several partitions of two brokers over one bad bucket, with the real managers, logs and objects.

Partitions share nothing but the lines in which their requests wait, the bucket and its bad days: what one goes through
must leave nothing behind in another.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from appliance.tiering.directory import DirectoryStore
from appliance.tiering.manager import TieringManager
from appliance.tiering.names import parse_name
from appliance.tiering.reader import TierReader
from appliance.tiering.verify import verify_tier
from tests.support.fault_store import FaultStore
from tests.support.seeds import seeds
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import records_of
from tests.support.tiering_kit import Hosted, ManualBackground, ManualClock, manager_of

PARTITIONS, BROKERS = 5, 2
STEPS = 250
SETTLE_MAX = 200
SEGMENT_RECORDS_MAX = 12
"""Larger objects are merged ones."""


class Days:
    """See the module's text."""

    def __init__(self, seed: int, path: Path) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = FaultStore(DirectoryStore(path / "objects"), self._fate)
        self.managers = [self._manager() for _ in range(BROKERS)]
        self.partitions = [
            Hosted(path, self.clock, partition=number, local_retention_bytes=1, **(self._retention() if number else {}))
            for number in range(PARTITIONS)
        ]
        self.merged: set[str] = set()
        self.is_peace = False
        self.leaders = [self.chance.randrange(BROKERS) for _ in self.partitions]
        for hosted, broker in zip(self.partitions, self.leaders, strict=True):
            self.managers[broker].partition_leading(hosted)

    def _retention(self) -> dict[str, int]:
        return self.chance.choice([{}, {"retention_bytes": 2_000}, {"retention_ms": 60_000}])

    def _manager(self) -> TieringManager:
        return manager_of(
            self.store,
            self.background,
            self.clock,
            tiering_upload_max_in_flight=2,
            tiering_delete_delay_ms=0,
            tiering_upload_timeout_ms=3_000,
            tiering_retry_backoff_ms=100,
            tiering_retry_backoff_max_ms=1_000,
            log_retention_check_interval_ms=500,
            tiering_merge_min_age_ms=0,
        )

    def _fate(self, operation: str, name: str) -> str | None:
        known = parse_name(name.split("/", 3)[-1])
        if operation == "create" and known is not None and known.end - known.start > SEGMENT_RECORDS_MAX:
            self.merged.add(name)
        if self.is_peace:
            return None
        return self.chance.choice([None, None, None, None, "refuse", "lose"])

    def live(self) -> None:
        for _ in range(STEPS):
            self._step()
        self.is_peace = True
        for number in range(PARTITIONS):
            # The last leaders claim, and sweep what others have left.
            self._elect(number)
            self.partitions[number].append_segment()
        for _ in range(SETTLE_MAX):
            self.background.pass_time(2_000)
            self._tick()
            if not self.background.work() and self._is_at_rest():
                return
        raise AssertionError([row for manager in self.managers for row in manager.status()])

    def _step(self) -> None:
        number = self.chance.randrange(PARTITIONS)
        kind = self.chance.random()
        if kind < 0.4:
            self.partitions[number].append_segment(batches=self.chance.randint(1, 3), records=4)
        elif kind < 0.5:
            self._elect(number)
        elif kind < 0.53:
            self._restart(self.chance.randrange(BROKERS))
        self.background.pass_time(self.chance.choice([0, 50, 400, 4_000]))
        self._tick()
        # Threads end in any order, and some not yet.
        jobs = self.background.jobs
        for _ in range(self.chance.randint(0, 2 * len(jobs))):
            if jobs:
                work, done = jobs.pop(self.chance.randrange(len(jobs)))
                done(work())

    def _tick(self) -> None:
        for manager in self.managers:
            manager.tick()

    def _elect(self, number: int) -> None:
        hosted, old = self.partitions[number], self.managers[self.leaders[number]]
        hosted.leader_epoch += 1
        self.leaders[number] = self.chance.randrange(BROKERS)
        new = self.managers[self.leaders[number]]
        if new is not old:
            old.partition_stopped(TOPIC_ID, number)
        new.partition_leading(hosted)

    def _restart(self, broker: int) -> None:
        self.managers[broker].close()
        self.managers[broker] = self._manager()
        for number, leader in enumerate(self.leaders):
            if leader == broker:
                self.partitions[number].leader_epoch += 1
                self.managers[broker].partition_leading(self.partitions[number])

    def _is_at_rest(self) -> bool:
        ends = [hosted.log.active_segment.base_offset for hosted in self.partitions]
        report = verify_tier(self.store.inner, read_data=False)
        return (
            [one.end_offset for one in report.partitions] == ends
            and report.is_whole
            and not any(one.in_flight or one.garbage for one in report.partitions)
        )


@pytest.mark.parametrize("seed", seeds(5))
def test_what_one_partition_goes_through_leaves_nothing_in_another(seed: int, tmp_path: Path) -> None:
    days = Days(seed, tmp_path)
    days.live()
    report = verify_tier(days.store.inner)
    assert report.problems == []
    assert days.merged, "small objects became larger ones among all this"
    reader = TierReader(days.store.inner)
    for number, hosted in enumerate(days.partitions):
        manifest = reader.manifest(TOPIC_ID, number)
        assert manifest is not None and manifest.start_offset == hosted.log.log_start_offset
        start, end = manifest.start_offset, manifest.end_offset
        records = records_of([piece.records for piece in reader.read_range(TOPIC_ID, number, start, end)])
        found = [(record.offset, record.value) for record in records if start <= record.offset < end]
        assert found == [(offset, b"value %d" % offset) for offset in range(start, end)], (seed, number)
