"""Records from a real log through the tier on S3 and back, over real HTTP and with real helper threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.base.clock import SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.object_store import ObjectNotFound
from appliance.base.randomness import SystemRandomness
from appliance.server.background import LoopBackground
from appliance.tiering.body import BodyStore
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.fetcher import RemoteLogReader
from appliance.tiering.manager import PartitionTieringStatus, TieringManager
from appliance.tiering.reader import TierReader
from appliance.tiering.s3 import S3Store
from appliance.tiering.verify import verify_tier
from tests.support.fault_proxy import FaultProxy
from tests.support.moto_server import MotoServer
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import records_of
from tests.support.tiering_kit import Hosted

END = 1 << 60
CONFIGS = {
    "tiering.retry.backoff.ms": "50",
    "tiering.retry.backoff.max.ms": "200",
    "tiering.chunk.bytes": "8192",
    "tiering.manifest.cache.max.age.ms": "0",
    "restore.offset.gap": "0",
}


class Live:
    """A manager on an event loop, with some partitions that it tiers."""

    def __init__(self, path: Path, store: BodyStore, partitions: int, **topic_configs: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.background = LoopBackground(self.loop, threads=8, name="tiering")
        self.clock = SystemClock()
        config = BrokerConfig(CONFIGS)
        self.manager = TieringManager(store, self.background, self.clock, SystemRandomness(), config)
        self.reader = RemoteLogReader(store, self.clock, config, path / "cache")
        self.hosted = [Hosted(path, self.clock, partition=number, **topic_configs) for number in range(partitions)]
        for hosted in self.hosted:
            self.manager.partition_leading(hosted)

    def run_until(self, condition: Callable[[], bool], timeout_s: float = 20) -> None:
        """Tick and let the loop work until the condition holds."""

        async def run() -> None:
            deadline = time.monotonic() + timeout_s
            while not condition():
                assert time.monotonic() < deadline, [row for row in self.manager.status() if row.reason]
                self.manager.tick()
                await asyncio.sleep(0.02)

        self.loop.run_until_complete(run())

    @property
    def all_is_tiered(self) -> bool:
        return all(
            row.tiered_end == h.log.active_segment.base_offset for row, h in zip(self.rows, self.hosted, strict=True)
        )

    @property
    def rows(self) -> list[PartitionTieringStatus]:
        return self.manager.status()

    def close(self) -> None:
        self.manager.close()
        self.reader.close()
        self.background.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BodyStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "objects")
    moto: MotoServer = request.getfixturevalue("moto")
    return S3Store(moto.bucket(), "cluster", moto.client_options)


@pytest.fixture
def live(store: BodyStore, tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path, store, partitions=3, local_retention_ms=0)
    yield live
    live.close()


def read_all(live: Live, hosted: Hosted) -> list[bytes | None]:
    """Every value of a partition in order, old ones from the tier and new ones from the disk."""
    values: list[bytes | None] = []
    offset = hosted.log.log_start_offset
    while offset < hosted.log.local_log_start_offset:
        found = live.reader.fetch(hosted.topic_id, hosted.partition, offset, 5_000, END)
        assert found.next_offset > offset
        values += [record.value for record in records_of(found.records) if record.offset >= offset]
        offset = found.next_offset
    for batch in hosted.log.batches(offset):
        values += [record.value for record in records_of(bytes(batch)) if record.offset >= offset]
    return values


def fill(hosted: Hosted, segments: int) -> list[bytes]:
    """Some segments of records of different sizes, and an active one; returns all values."""
    values: list[bytes] = []
    for number in range(segments):
        for batch in range(4):
            some = [b"%d-%d-%d " % (number, batch, n) + b"x" * (batch * 700) for n in range(5)]
            hosted.append(some, codec=batch)
            values += some
        hosted.log.roll(hosted.clock.now_ms())
    hosted.append([b"still local"])
    return [*values, b"still local"]


def test_every_record_is_read_back_once_after_its_local_copy_has_gone(live: Live, store: BodyStore) -> None:
    expected = [fill(hosted, segments=6) for hosted in live.hosted]
    live.run_until(lambda: live.all_is_tiered)
    live.run_until(lambda: all(h.log.local_log_start_offset == h.log.active_segment.base_offset for h in live.hosted))
    for hosted, values in zip(live.hosted, expected, strict=True):
        assert len(list(hosted.log.segments)) == 1
        assert read_all(live, hosted) == values
        tier_reader = TierReader(store, read_bytes=3_000)
        end = hosted.log.local_log_start_offset
        pieces = [found.records for found in tier_reader.read_range(TOPIC_ID, hosted.partition, 0, end)]
        assert [record.value for record in records_of(pieces)] == values[:-1]
        found = live.reader.offset_for_timestamp(TOPIC_ID, hosted.partition, 0)
        assert found is not None and found.offset == 0
    report = verify_tier(store)
    assert report.is_whole
    assert [partition.records for partition in report.partitions] == [120, 120, 120]


def test_an_outage_delays_shows_its_reason_and_loses_nothing(
    moto: MotoServer, proxy: FaultProxy, tmp_path: Path
) -> None:
    store = S3Store(moto.bucket(), "", {**moto.client_options, "endpoint_url": proxy.endpoint_url})
    live = Live(tmp_path, store, partitions=2, local_retention_ms=0)
    try:
        expected = [fill(hosted, segments=3) for hosted in live.hosted]
        proxy.rule = lambda method, path: "503"
        live.run_until(lambda: all("503" in row.reason and row.waiting_segments == 3 for row in live.rows))
        assert [h.log.local_log_start_offset for h in live.hosted] == [0, 0]
        chance = iter(range(1_000_000))
        proxy.rule = lambda method, path: ("lose", None, "503", None, "reset")[next(chance) % 5]
        live.run_until(lambda: live.all_is_tiered)
        proxy.rule = lambda method, path: None
        live.run_until(lambda: not any(row.reason for row in live.rows))
        live.run_until(lambda: all(len(h.log.segments) == 1 for h in live.hosted))
        for hosted, values in zip(live.hosted, expected, strict=True):
            assert read_all(live, hosted) == values
        report = verify_tier(store)
        assert report.is_whole
        assert [partition.segments for partition in report.partitions] == [3, 3]
    finally:
        live.close()


def test_a_new_leader_on_another_disk_goes_on(store: BodyStore, tmp_path: Path) -> None:
    first = Live(tmp_path / "first", store, partitions=1, local_retention_ms=0)
    values = fill(first.hosted[0], segments=2)
    first.run_until(lambda: first.all_is_tiered)
    first.close()
    second = Live(tmp_path / "second", store, partitions=0)
    hosted = Hosted(tmp_path / "second", second.clock, leader_epoch=2, recovering=True)
    second.hosted.append(hosted)
    second.manager.partition_leading(hosted)
    second.run_until(lambda: not hosted.recovering)
    assert (hosted.log.log_start_offset, hosted.log.log_end_offset) == (0, 40)
    more = fill(hosted, segments=1)
    second.run_until(lambda: second.all_is_tiered)
    assert read_all(second, hosted) == values[:-1] + more
    assert verify_tier(store).is_whole
    second.close()


def test_a_damaged_answer_is_found_and_not_served(moto: MotoServer, proxy: FaultProxy, tmp_path: Path) -> None:
    bucket = moto.bucket()
    live = Live(tmp_path, S3Store(bucket, "", moto.client_options), partitions=1)
    fill(live.hosted[0], segments=1)
    live.run_until(lambda: live.all_is_tiered)
    live.close()
    proxied = S3Store(bucket, "", {**moto.client_options, "endpoint_url": proxy.endpoint_url})
    proxy.rule = lambda method, path: "damage" if "/seg/" in path else None
    problems = verify_tier(proxied, read_data=False).problems
    assert [problem.kind for problem in problems] == ["damaged"]
    proxy.rule = lambda method, path: None
    assert verify_tier(proxied).is_whole
    with pytest.raises(ObjectNotFound):
        proxied.get("nothing")
