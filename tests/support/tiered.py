"""A tier with known records in it, made by the real manager from a real log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.records.batch import split_batches
from appliance.records.reader import Record, read_records
from appliance.tiering.body import BodyStore
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.manifest import Manifest, SegmentItem, encode_manifest, parse_manifest
from appliance.tiering.names import manifest_name, partition_folder
from tests.support.fault_store import FaultStore
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiering_kit import Hosted, ManualBackground, ManualClock, manager_of


class Tiered:
    """One partition whose closed segments are all in a store with faults."""

    def __init__(self, path: Path, store: BodyStore | None = None, **topic_configs: Any) -> None:
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = FaultStore(store or DirectoryStore(path / "objects"))
        self.manager = manager_of(self.store, self.background, self.clock, tiering_delete_delay_ms=0)
        self.hosted = Hosted(path, self.clock, **topic_configs)
        self.manager.partition_leading(self.hosted)

    def tier(self, seconds: int = 1) -> None:
        """Let the manager do all there is to do."""
        for _ in range(4):
            self.background.pass_time(seconds * 250)
            self.manager.tick()
            self.background.work()

    @property
    def manifest(self) -> Manifest:
        return parse_manifest(self.store.inner.get(manifest_name(TOPIC_ID, 0)).data)

    def write_manifest(self, manifest: Manifest) -> None:
        """Put another manifest in the place of the present one."""
        name = manifest_name(TOPIC_ID, 0)
        self.store.inner.swap(name, encode_manifest(manifest), self.store.inner.get(name).etag)

    def object_name(self, number: int) -> str:
        item = self.manifest.items[number]
        assert isinstance(item, SegmentItem)
        return partition_folder(TOPIC_ID, 0) + item.name


def records_of(data: bytes | memoryview | Sequence[bytes | memoryview]) -> list[Record]:
    """All records of some whole batches."""
    pieces = [data] if isinstance(data, bytes | memoryview) else data
    return [record for piece in pieces for batch in split_batches(piece) for record in read_records(batch)]


def offsets_of(data: bytes | memoryview | Sequence[bytes | memoryview]) -> list[int]:
    return [record.offset for record in records_of(data)]
