"""Rules of the protocol, broken on purpose: each is to be noticed by the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.replica_manager import ReplicaManager
from appliance.controller import isr
from appliance.controller.elections import Outcome
from appliance.controller.liveness import BrokerLiveness
from appliance.controller.records import NO_LEADER, PartitionState
from appliance.partition.follower import FetchPosition, PartitionFollower
from appliance.partition.leader import PartitionLeader
from tests.support.replication_world import OnlyCommittedIsr

Patch = Callable[[str, Any], None]
"""Puts something else in the place of a dotted name."""

_decided, _late, _followed = isr._decided, BrokerLiveness.late, ReplicaManager.followed
_earlier, _longest = Outcome._earlier_leaders, Outcome._longest


def high_watermark_over_the_committed_isr(patch: Patch) -> None:
    patch("appliance.broker_actors.hosted_partition.PartitionLeader", OnlyCommittedIsr)


def answers_past_the_lease(patch: Patch) -> None:
    for question in ("lease_valid", "lease_firm"):
        patch(f"tests.support.cluster_brokers.Channel.{question}", lambda self, now_ms: self.broker_epoch >= 0)


def partition_epoch_not_checked(patch: Patch) -> None:
    def decided(broker_id: int, topic_id: Any, data: Any, outcome: Outcome) -> PartitionState:
        partition = outcome.image.partition_by_id(topic_id, data.partition_index)
        if partition is not None:
            data.partition_epoch = partition.partition_epoch
        return _decided(broker_id, topic_id, data, outcome)

    patch("appliance.controller.isr._decided", decided)


def truncation_to_the_high_watermark(patch: Patch) -> None:
    def followed(self: ReplicaManager, hosted: HostedPartition, state: PartitionState) -> None:
        if hosted.leader_epoch != state.leader_epoch and not hosted.cutting:
            self.partitions.write_now(hosted)
            hosted.log.truncate_to(hosted.high_watermark)
            hosted.was_cut()
        _followed(self, hosted, state)

    def position(self: PartitionFollower) -> FetchPosition:
        return FetchPosition(self.leader_epoch, self.log_end_offset, -1)

    patch("appliance.broker_actors.replica_manager.ReplicaManager.followed", followed)
    patch("appliance.partition.follower.PartitionFollower.position", property(position))


def failover_before_the_lease_ends(patch: Patch) -> None:
    patch("appliance.controller.liveness.BrokerLiveness.late", lambda self, now_ms: _late(self, now_ms + 1_300))


class MovesBelowMinIsr(PartitionLeader):
    """The high watermark moves also while too few are in sync."""

    def _others_changed(self) -> None:
        least, self.min_insync_replicas = self.min_insync_replicas, 1
        PartitionLeader._others_changed(self)
        self.min_insync_replicas = least


def high_watermark_moves_below_min_isr(patch: Patch) -> None:
    patch("appliance.broker_actors.hosted_partition.PartitionLeader", MovesBelowMinIsr)


def no_hand_over_from_a_live_leader(patch: Patch) -> None:
    def only_the_fenced(self: Outcome, leader: int, before: PartitionState) -> Any:
        return tuple(each for each in _earlier(self, leader, before) if not each.live)

    patch("appliance.controller.elections.Outcome._earlier_leaders", only_the_fenced)


def one_earlier_leader_instead_of_the_list(patch: Patch) -> None:
    def only_the_last(self: Outcome, leader: int, before: PartitionState) -> Any:
        without = msgspec.structs.replace(before, earlier_leaders=())
        return _earlier(self, leader, without)

    patch("appliance.controller.elections.Outcome._earlier_leaders", only_the_last)


def soft_lease_without_healthy_isr(patch: Patch) -> None:
    patch("appliance.broker_actors.hosted_partition.HostedPartition.has_healthy_isr", lambda self: True)


def first_that_lives_instead_of_the_longest(patch: Patch) -> None:
    def first(self: Outcome, topic: Any, before: PartitionState, able: Any, *, by_operator: bool) -> int:
        return next(iter(able), NO_LEADER) if _longest(self, topic, before, able, by_operator=by_operator) >= 0 else -1

    patch("appliance.controller.elections.Outcome._longest", first)
