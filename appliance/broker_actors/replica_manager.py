"""Replication on a broker: who is followed, what leaders ask the controller for, when a new leader may begin.

The machines of `appliance.partition` decide; this gives them the metadata, the time and the answers of other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.broker_listeners import BrokerListeners
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.isr_proposals import IsrProposals
from appliance.broker_actors.leader_starts import LeaderStarts
from appliance.broker_actors.partition_host import PartitionHost
from appliance.broker_actors.partition_host_view import earlier_leaders_of
from appliance.broker_actors.replica_cuts import ReplicaCuts
from appliance.broker_actors.replica_fetcher import Following, ReplicaFetcher
from appliance.controller.image import MetadataImage, PartitionState
from appliance.partition.events import ReplicasFenced, Tick
from appliance.partition.follower import PartitionFollower
from appliance.partition.leader_start import BrokerView, LeaderStart
from appliance.partition.replication_quota import ReplicationQuota, is_listed
from appliance.server.server import Server
from appliance.tiering.body import BodyStore

TICK_MS = 500
"""How often leaders look for followers that lag, and propose again what was refused."""
CONNECT_TIMEOUT_MS = 2_000
_THROTTLED_LANE = -1
"""The fetchers of replicas that are throttled wait by themselves, and hold up no others."""


class ControllerCaller(Protocol):
    """The way to the active controller."""

    def call(self, request: Any, done: Callable[[Any], None], *, timeout_ms: int | None = None) -> None: ...


class ReplicatedBroker(Protocol):
    """What replication needs of its broker."""

    @property
    def broker_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def background(self) -> Background: ...
    @property
    def partitions(self) -> PartitionHost: ...
    @property
    def server(self) -> Server: ...
    @property
    def controller(self) -> Any: ...
    @property
    def listeners(self) -> BrokerListeners: ...


class ReplicaManager:
    """`PartitionHost.replication`. All methods are called on the loop's thread."""

    def __init__(
        self, broker: ReplicatedBroker, loop: asyncio.AbstractEventLoop, store: BodyStore, threads: Background
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._image = MetadataImage()
        self._fenced: dict[int, None] = {}
        self._began_ms = broker.clock.monotonic_ms()
        self._following: dict[HostedPartition, tuple[ReplicaFetcher, Following]] = {}
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._quota = ReplicationQuota()
        self._led: dict[HostedPartition, None] = {}
        self._proposals = IsrProposals(self)
        self._starts = LeaderStarts(self)
        self._cuts = ReplicaCuts(self, store, threads)
        self._timer: Timer | None = None
        self._closed = False

    def start(self) -> None:
        self._tick()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._starts.close()
        for fetcher in self._fetchers.values():
            fetcher.close()

    # What fetchers, proposals and starts see

    @property
    def broker_id(self) -> int:
        return self._broker.broker_id

    @property
    def broker_epoch(self) -> int:
        return self._broker.broker_epoch

    @property
    def config(self) -> BrokerConfig:
        return self._broker.config

    @property
    def clock(self) -> Clock:
        return self._broker.clock

    @property
    def background(self) -> Background:
        return self._broker.background

    @property
    def partitions(self) -> PartitionHost:
        return self._broker.partitions

    def begin_tick(self) -> None:
        self._broker.server.begin_tick()

    def after_write(self, callback: Callable[[], None]) -> None:
        self._broker.server.after_write.append(callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self._broker.background.schedule(0, callback)

    def call_controller(self, request: Any, done: Callable[[Any], None], timeout_ms: int) -> None:
        self._broker.controller.call(request, done, timeout_ms=timeout_ms)

    def link_to(self, broker_id: int) -> BrokerLink | None:
        broker = self._image.brokers.get(broker_id)
        if broker is None or self._closed:
            return None
        client_id = f"broker-{self.broker_id}-replica"
        address, security = (broker.host, broker.port), self._broker.listeners.security
        return BrokerLink(self._loop, self.background, address, client_id, CONNECT_TIMEOUT_MS, security)

    def truncate(self, following: Following, offset: int) -> None:
        self._cuts.truncate(following, offset)

    def start_anew(self, following: Following, offset: int) -> None:
        self._cuts.start_anew(following, offset)

    def start_from_tier(self, following: Following, leader_log_start_offset: int) -> None:
        self._cuts.start_from_tier(following, leader_log_start_offset)

    def fetch_again(self, following: Following) -> None:
        """The partition's log was cut, or could not be."""
        entry = self._following.get(following.hosted)
        if entry is not None and entry[1] is following:
            entry[0].fetch(following)

    # Metadata

    def image_came(self, image: MetadataImage) -> None:
        """Before partitions follow the image: brokers may have moved, come or gone."""
        before, self._image = self._image, image
        if before.brokers is image.brokers:
            return
        for (leader_id, _), fetcher in self._fetchers.items():
            old, new = before.brokers.get(leader_id), image.brokers.get(leader_id)
            if new is not None and (old is None or old.broker_epoch != new.broker_epoch):
                fetcher.address_changed()
        out_of_service = (
            broker_id for broker_id, broker in sorted(image.brokers.items()) if broker.fenced or broker.shutting_down
        )
        fenced = dict.fromkeys(broker_id for broker_id in out_of_service if broker_id != self.broker_id)
        if fenced != self._fenced:
            self._fenced = fenced

    def image_applied(self) -> None:
        """After partitions have followed the image."""
        now_ms = self.clock.monotonic_ms()
        fenced = tuple(self._fenced)
        for hosted in list(self._led):
            if hosted.leader is not None and hosted.leader.fenced != fenced:
                hosted.act(hosted.leader.handle(ReplicasFenced(fenced), now_ms))
        self._starts.look()

    def brokers(self) -> dict[int, BrokerView]:
        return {
            broker_id: BrokerView(broker.broker_epoch, broker.fenced, broker.dead)
            for broker_id, broker in self._image.brokers.items()
        }

    # Leading

    def start_of(self, hosted: HostedPartition, state: PartitionState) -> LeaderStart | None:
        """What a new leader has to wait for; None when for nothing."""
        config = self.config
        start = LeaderStart(
            leader_epoch=state.leader_epoch,
            quiet_ms=config.get("broker.lease.ms") + config.get("broker.lease.margin.ms"),
            last_fetch_ms=hosted.last_fetch_ms,
            began_ms=self._began_ms,
            earlier=tuple(one for one in earlier_leaders_of(state) if one.broker_id != self.broker_id),
        )
        return None if start.waits(self.brokers(), self.clock.monotonic_ms()).over else start

    def led(self, hosted: HostedPartition, state: PartitionState) -> None:
        if len(state.replicas) > 1 or hosted.start is not None:
            self._led[hosted] = None
        if hosted.leader is not None and self._fenced and len(state.replicas) > 1:
            hosted.act(hosted.leader.handle(ReplicasFenced(tuple(self._fenced)), self.clock.monotonic_ms()))
        if hosted.start is not None:
            self._starts.wait_for(hosted)

    def propose_isr(self, hosted: HostedPartition, isr: tuple[int, ...], partition_epoch: int) -> None:
        self._led[hosted] = None
        self._proposals.propose(hosted, isr, partition_epoch)

    def _tick(self) -> None:
        if self._closed:
            return
        self._timer = self.background.schedule(TICK_MS, self._tick)
        now_ms = self.clock.monotonic_ms()
        for hosted in list(self._led):
            leader = hosted.leader
            if leader is None:
                del self._led[hosted]
            elif not hosted.recovering and (leader.followers or leader.proposed_isr):
                hosted.act(leader.handle(Tick(), now_ms))

    # Following

    def followed(self, hosted: HostedPartition, state: PartitionState) -> None:
        """Another broker leads, or nobody does."""
        entry = self._following.get(hosted)
        lane = self._lane(hosted, state)
        if entry is not None:
            fetcher, following = entry
            machine = following.machine
            if (machine.leader_epoch, fetcher.leader_id, fetcher.lane) == (state.leader_epoch, state.leader, lane):
                return
            self.left(hosted)
        if state.leader_epoch < hosted.leader_epoch or hosted.offline:
            return
        if state.leader_epoch < hosted.log.leader_epochs.latest:
            hosted.go_offline(
                f"its log knows leader epoch {hosted.log.leader_epochs.latest}, above {state.leader_epoch} in the "
                "metadata: the metadata was rolled back"
            )
            return
        hosted.leader_epoch = state.leader_epoch
        if state.leader < 0:
            return
        machine = PartitionFollower(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            epochs=hosted.log.leader_epochs,
            log_start_offset=hosted.log_start_offset,
            log_end_offset=hosted.log_end_offset,
            high_watermark=hosted.high_watermark,
            backoff_max_ms=self.config.get("replica.fetch.backoff.ms"),
        )
        hosted.follow(machine)
        following = Following(hosted, machine)
        fetcher = self._fetcher(state.leader, lane)
        self._following[hosted] = (fetcher, following)
        fetcher.add(following)

    def left(self, hosted: HostedPartition) -> None:
        """Follow and lead it no more."""
        entry = self._following.pop(hosted, None)
        if entry is not None:
            fetcher, following = entry
            fetcher.remove(following)
            hosted.last_fetch_ms[fetcher.leader_id] = fetcher.last_sent_ms
            hosted.follower = None
            if not fetcher.partitions:
                fetcher.close()
                del self._fetchers[fetcher.leader_id, fetcher.lane]
        self._led.pop(hosted, None)

    def _lane(self, hosted: HostedPartition, state: PartitionState) -> int:
        listed = hosted.config.follower_replication_throttled_replicas
        if listed and self.broker_id not in state.isr and is_listed(listed, hosted.partition, self.broker_id):
            return _THROTTLED_LANE
        lanes: int = self.config.get("num.replica.fetchers")
        return (hosted.topic_id.int + hosted.partition) % lanes

    def _fetcher(self, leader_id: int, lane: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get((leader_id, lane))
        if fetcher is None:
            quota = self._quota if lane == _THROTTLED_LANE else None
            fetcher = self._fetchers[leader_id, lane] = ReplicaFetcher(self, leader_id, lane, quota)
        return fetcher
