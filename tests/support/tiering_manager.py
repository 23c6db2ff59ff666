"""A partition with one tiering manager over a directory store with faults, and transactions in its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from appliance.records.control import build_marker
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.layout import SegmentTail, parse_tail
from appliance.tiering.manager import PartitionTieringStatus, TieringManager
from appliance.tiering.manifest import Manifest, SegmentItem, parse_manifest
from appliance.tiering.names import manifest_name, partition_folder
from tests.support.fault_store import FaultStore
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiering_kit import Hosted, ManualBackground, ManualClock, manager_of


class Kit:
    """One partition, one manager, one directory store with faults."""

    def __init__(self, tmp_path: Path, **broker_configs: object) -> None:
        self.path = tmp_path
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = FaultStore(DirectoryStore(tmp_path / "objects"))
        self.broker_configs = broker_configs
        self.manager = self.new_manager()

    def new_manager(self) -> TieringManager:
        return manager_of(self.store, self.background, self.clock, **self.broker_configs)

    def hosted(self, **more: Any) -> Hosted:
        hosted = Hosted(self.path, self.clock, **more)
        self.manager.partition_leading(hosted)
        return hosted

    def settle(self, ms: int = 0) -> None:
        """A tick and all the work that follows from it, after some time."""
        self.background.pass_time(ms)
        self.manager.tick()
        self.background.work()

    def work_but_uploads(self) -> None:
        """Do all jobs but those that send a segment."""
        jobs = self.background.jobs
        while waiting := [job for job in jobs if "upload" not in job[0].__code__.co_freevars]:
            jobs.remove(waiting[0])
            work, done = waiting[0]
            done(work())

    @property
    def manifest(self) -> Manifest:
        return parse_manifest(self.store.inner.get(manifest_name(TOPIC_ID, 0)).data)

    def tail(self, number: int) -> tuple[bytes, SegmentTail]:
        item = self.manifest.items[number]
        assert isinstance(item, SegmentItem)
        stored = self.store.inner.get(partition_folder(TOPIC_ID, 0) + item.name)
        return stored.data, parse_tail(stored.data[-item.tail :], stored.size)

    @property
    def status(self) -> PartitionTieringStatus:
        (row,) = self.manager.status()
        return row


def transactional(hosted: Hosted, producer_id: int, values: list[bytes]) -> int:
    return hosted.append(
        values, producer_id=producer_id, producer_epoch=0, base_sequence=hosted.log.log_end_offset, transactional=True
    )


def end_transaction(hosted: Hosted, producer_id: int, kind: int) -> int:
    return hosted.append_batch(
        build_marker(kind, 3, producer_id=producer_id, producer_epoch=0, now_ms=hosted.clock.now_ms())
    )
