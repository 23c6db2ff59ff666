"""Cutting a follower's log, in a helper thread: by leader epoch, to begin anew, or to begin where the tier says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from appliance.base.background import Background
from appliance.broker_actors.partition_host import PartitionHost
from appliance.broker_actors.replica_fetcher import Following
from appliance.log.producer_snapshot import CorruptSnapshot
from appliance.tiering.body import BodyStore
from appliance.tiering.events import ManifestRead
from appliance.tiering.recovery import TierEnd
from appliance.tiering.store_calls import StoreCalls

_log = logging.getLogger(__name__)

TIER_RETRY_MS = 1_000


class TierNotReady(Exception):
    """The object store cannot say where a replica may begin; to be tried again."""


class CutHost(Protocol):
    """What this needs of its broker."""

    @property
    def background(self) -> Background: ...
    @property
    def partitions(self) -> PartitionHost: ...

    def fetch_again(self, following: Following) -> None: ...


class ReplicaCuts:
    """All methods are called on the loop's thread; meanwhile nobody but the helper touches the log."""

    def __init__(self, host: CutHost, store: BodyStore, threads: Background) -> None:
        self._host = host
        self._store = store
        self._threads = threads
        """For requests to the object store."""

    def truncate(self, following: Following, offset: int) -> None:
        log = following.hosted.log
        _log.info("%r: cut to %d, where its history leaves the leader's", following.hosted, offset)
        self._cut(following, self._host.background, lambda: log.truncate_to(offset))

    def start_anew(self, following: Following, offset: int) -> None:
        log = following.hosted.log
        _log.warning("%r: begins anew at %d", following.hosted, offset)
        self._cut(following, self._host.background, lambda: log.truncate_fully_and_start_at(offset))

    def start_from_tier(self, following: Following, leader_log_start_offset: int) -> None:
        """Where the tier ends: everything below is there, and it knows epochs and producers at that offset."""
        hosted = following.hosted
        calls = StoreCalls(self._store, hosted.topic_id, hosted.partition)

        def work() -> None:
            read = calls.read_manifest()
            if not isinstance(read, ManifestRead) or read.manifest is None:
                raise TierNotReady(f"the manifest cannot be read: {read}")
            tier = calls.read_tier_end(read.manifest)
            if not isinstance(tier, TierEnd) or tier.tail is None:
                raise TierNotReady(f"the end of the tier cannot be read: {tier}")
            hosted.log.truncate_fully_and_start_at(
                tier.end_offset,
                max(tier.start_offset, leader_log_start_offset),
                epochs=tier.epochs,
                producers=tier.tail.producers,
            )

        _log.info("%r: begins where the object store ends", hosted)
        self._cut(following, self._threads, work)

    def _cut(self, following: Following, threads: Background, work: Callable[[], None]) -> None:
        hosted = following.hosted
        self._host.partitions.write_now(hosted)
        hosted.cutting = True

        def done(result: Exception | None) -> None:
            hosted.cutting = False
            if isinstance(result, TierNotReady):
                _log.warning("%r: %s; tried again", hosted, result)
            elif isinstance(result, OSError | CorruptSnapshot):
                hosted.go_offline(f"its log cannot be cut: {result}")
            elif result is not None:
                hosted.go_offline(f"cutting its log failed: {type(result).__name__}: {result}")
            hosted.was_cut()
            self._host.partitions.cut_done(hosted)
            delay_ms = TIER_RETRY_MS if isinstance(result, TierNotReady) else 0
            self._host.background.schedule(delay_ms, lambda: self._host.fetch_again(following))

        threads.run(work, done)
