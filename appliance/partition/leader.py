"""The leader of a partition: who is in sync, and up to where data is committed. Pure.

The high watermark is the smallest log end of all that are in sync, or may already be without our knowing (P4, P8 of
the replication protocol), and it stands still while the committed ISR is smaller than `min.insync.replicas` (KIP-966).
It never goes back within a leader epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from appliance.base.errors import ErrorCode, invariant
from appliance.partition.events import (
    AdvanceHighWatermark,
    Appended,
    Effect,
    Event,
    FollowerFetched,
    IsrDecided,
    IsrRefused,
    MinInsyncReplicasSet,
    ProposeIsr,
    Refuse,
    ReplicasFenced,
    Tick,
)

_UNKNOWN = -1
_NOBODY_ELSE = 1 << 62
"""The smallest end among the other in-sync replicas when there is none."""


@dataclass(slots=True)
class Follower:
    """What the leader knows of another replica, in this leader epoch."""

    replica_id: int
    broker_epoch: int = _UNKNOWN
    end_offset: int = _UNKNOWN
    last_fetch_ms: int = 0
    caught_up_ms: int = 0
    leader_end_at_last_fetch: int = 0
    log_start_offset: int = 0

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Remember a fetch at `offset`.

        One that has reached the leader's end of its last fetch was caught up then, even though under load it never
        equals the leader's newest end.
        """
        self.end_offset = offset
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_at_last_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.last_fetch_ms, self.leader_end_at_last_fetch = now_ms, leader_end_offset


@dataclass(slots=True)
class PartitionLeader:
    """One leader epoch of one partition."""

    broker_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    """As committed."""
    replicas: tuple[int, ...]
    log_end_offset: int
    high_watermark: int
    min_insync_replicas: int
    replica_lag_time_max_ms: int
    started_ms: int
    epoch_start_offset: int = field(init=False)
    followers: dict[int, Follower] = field(init=False)
    proposed_isr: tuple[int, ...] = ()
    """What was asked for at the present partition epoch and may have been committed; empty when nothing was."""
    proposal_in_flight: bool = False
    fenced: tuple[int, ...] = ()
    """Replicas that may not be in the ISR now, whatever they have."""
    _others_end: int = field(init=False, default=_NOBODY_ELSE)

    def __post_init__(self) -> None:
        self.epoch_start_offset = self.log_end_offset
        self.followers = {
            replica_id: Follower(replica_id, caught_up_ms=self.started_ms)
            for replica_id in self.replicas
            if replica_id != self.broker_id
        }
        self._others_changed()

    @property
    def enough_in_sync(self) -> bool:
        """Whether acks=all may be accepted: as `min.insync.replicas` says, or all that there are."""
        in_sync = len(self.isr)
        return in_sync >= self.min_insync_replicas or in_sync >= len(self.replicas)

    @property
    def max_isr(self) -> tuple[int, ...]:
        """Everybody who is in sync, or may already be without our knowing."""
        return self.isr + tuple(replica for replica in self.proposed_isr if replica not in self.isr)

    # The road of a record: numbers, no objects.

    def appended(self, end_offset: int) -> int:
        """The leader's log ends at `end_offset` now; returns the high watermark."""
        self.log_end_offset = end_offset
        offset = end_offset if end_offset < self._others_end else self._others_end
        if offset > self.high_watermark:
            self.high_watermark = offset
        return self.high_watermark

    def follower_fetched(self, replica_id: int, broker_epoch: int, offset: int, now_ms: int) -> int:
        """A follower in this leader epoch has everything before `offset`; returns the high watermark."""
        follower = self.followers[replica_id]
        follower.broker_epoch = broker_epoch
        follower.fetched(offset, self.log_end_offset, now_ms)
        if replica_id in self.isr or replica_id in self.proposed_isr:
            self._others_changed()
        return self.appended(self.log_end_offset)

    def caught_up(self, replica_id: int) -> list[Effect]:
        """A follower that is not in sync has fetched: what is to be asked for, if it may join (P6)."""
        return [] if replica_id in self.isr else self._propose_with(replica_id)

    def low_watermark(self, own_log_start_offset: int) -> int:
        """The smallest log start among this replica and those that are not fenced."""
        followers = [one for one in self.followers.values() if one.replica_id not in self.fenced]
        return min([own_log_start_offset, *(follower.log_start_offset for follower in followers)])

    def report(self) -> list[Effect]:
        """Ask for the ISR as it is: with it the controller hears that this leader has recovered (KIP-704)."""
        return [] if self.proposal_in_flight else self._propose(self.isr)

    # Everything, as events and effects.

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event and return what must happen."""
        before = self.high_watermark
        effects: list[Effect] = []
        match event:
            case Appended(end_offset):
                invariant(end_offset >= self.log_end_offset, f"a leader's log went back to {end_offset}")
                self.appended(end_offset)
            case FollowerFetched():
                refusal = self._refusal(event)
                if refusal is not None:
                    return [refusal]
                self.follower_fetched(event.replica_id, event.broker_epoch, event.offset, now_ms)
                effects = self._propose_with(event.replica_id)
            case IsrDecided(isr, partition_epoch, replicas):
                self._decided(isr, partition_epoch, replicas, now_ms)
            case IsrRefused():
                # Whatever was proposed still counts until a higher partition epoch has been read.
                self.proposal_in_flight = False
            case MinInsyncReplicasSet(min_insync_replicas):
                self.min_insync_replicas = min_insync_replicas
                self._others_changed()
                self.appended(self.log_end_offset)
            case ReplicasFenced(replica_ids):
                self.fenced = replica_ids
                effects = self._propose_wanted(now_ms)
            case Tick():
                effects = self._propose_wanted(now_ms)
            case _:
                assert_never(event)
        if self.high_watermark > before:
            effects.append(AdvanceHighWatermark(self.high_watermark))
        return effects

    def _refusal(self, event: FollowerFetched) -> Refuse | None:
        if event.leader_epoch < self.leader_epoch:
            return Refuse(event.replica_id, ErrorCode.FENCED_LEADER_EPOCH)
        if event.leader_epoch > self.leader_epoch:
            return Refuse(event.replica_id, ErrorCode.UNKNOWN_LEADER_EPOCH)
        follower = self.followers.get(event.replica_id)
        if follower is None:
            return Refuse(event.replica_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if event.broker_epoch < follower.broker_epoch:
            return Refuse(event.replica_id, ErrorCode.STALE_BROKER_EPOCH)
        if event.offset > self.log_end_offset:
            return Refuse(event.replica_id, ErrorCode.OFFSET_OUT_OF_RANGE)
        return None

    def _decided(self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...], now_ms: int) -> None:
        if partition_epoch <= self.partition_epoch:
            return
        self.isr, self.partition_epoch, self.replicas = isr, partition_epoch, replicas
        self.proposed_isr, self.proposal_in_flight = (), False
        for replica_id in replicas:
            if replica_id != self.broker_id and replica_id not in self.followers:
                self.followers[replica_id] = Follower(replica_id, caught_up_ms=now_ms)
        for replica_id in [replica_id for replica_id in self.followers if replica_id not in replicas]:
            del self.followers[replica_id]
        self._others_changed()
        self.appended(self.log_end_offset)

    def _others_changed(self) -> None:
        """Renew the smallest end among the others, kept so that an append compares two numbers only."""
        if not self.enough_in_sync:
            # The high watermark stands still (it never goes back, whatever this says).
            self._others_end = _UNKNOWN
            return
        # A plain loop: it runs for every fetch of a follower in sync.
        least, followers, me = _NOBODY_ELSE, self.followers, self.broker_id
        for replica_id in self.max_isr if self.proposed_isr else self.isr:
            if replica_id != me:
                follower = followers.get(replica_id)
                end_offset = follower.end_offset if follower is not None else _UNKNOWN
                if end_offset < least:
                    least = end_offset
        self._others_end = least

    def _propose_with(self, replica_id: int) -> list[Effect]:
        """Ask for a follower that has caught up to be taken into the ISR (P6)."""
        if self.proposal_in_flight or not self._may_join(self.followers[replica_id]):
            return []
        return self._propose((*self.isr, replica_id))

    def _may_join(self, follower: Follower) -> bool:
        if follower.replica_id in self.max_isr or follower.replica_id in self.fenced:
            return False
        return follower.end_offset >= max(self.high_watermark, self.epoch_start_offset)

    def _propose_wanted(self, now_ms: int) -> list[Effect]:
        """Ask for the ISR as it should be now, if it is another, or if an earlier wish was refused.

        Without those that are fenced, or were not caught up for `replica.lag.time.max.ms`; they keep counting until the
        commit is known. With those that have all, but could not join when they fetched last.
        """
        if self.proposal_in_flight:
            return []
        wanted = tuple(
            replica_id
            for replica_id in self.max_isr
            if replica_id == self.broker_id or not self._lags(replica_id, now_ms)
        )
        wanted += tuple(follower.replica_id for follower in self.followers.values() if self._may_join(follower))
        return self._propose(wanted) if wanted != self.isr or self.proposed_isr else []

    def _lags(self, replica_id: int, now_ms: int) -> bool:
        follower = self.followers.get(replica_id)
        if follower is None or replica_id in self.fenced:
            return True
        if follower.end_offset == self.log_end_offset:
            # In a fetch session one that has all does not name the partition any more: its time begins with the next
            # record that it does not fetch.
            follower.caught_up_ms = now_ms
            return False
        return now_ms - follower.caught_up_ms > self.replica_lag_time_max_ms

    def _propose(self, isr: tuple[int, ...]) -> list[Effect]:
        # Whoever may be added counts from before the request is sent (P8); earlier proposals may still arrive too.
        self.proposed_isr = tuple(dict.fromkeys((*self.proposed_isr, *isr)))
        self.proposal_in_flight = True
        self._others_changed()
        return [ProposeIsr(isr, self.partition_epoch)]
