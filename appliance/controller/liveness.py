"""Which brokers are alive: leases as the controller counts them (rules C3 to C5, B4, B5, B9, B10). Pure.

A broker's bound is the receipt of its last heartbeat plus lease plus margin; the broker itself counts its lease from
the send, so it has stopped answering before anything is elected in its place, whatever the network did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.controller.brokers import may_be_unfenced, may_stop
from appliance.controller.image import BrokerState, MetadataImage
from appliance.controller.records import (
    BrokerShuttingDown,
    EarlierLeader,
    PartitionChanged,
    Record,
    commit_number_of,
)
from appliance.wire.messages.internal_metadata import BrokerLeaseRequest, BrokerLeaseResponse

STALL_GRACE_MS = 500
"""Rule C5: what a controller adds to all bounds when its own loop stood still."""


@dataclass(frozen=True, slots=True)
class LeaseTimers:
    """Milliseconds; see the table in docs/metadata.md."""

    lease_ms: int = 2_000
    margin_ms: int = 500
    stall_max_ms: int = 500
    proof_max_ms: int = 3_000

    @classmethod
    def of(cls, config: BrokerConfig) -> LeaseTimers:
        return cls(
            lease_ms=config.get("broker.lease.ms"),
            margin_ms=config.get("broker.lease.margin.ms"),
            stall_max_ms=config.get("broker.loop.stall.max.ms"),
            proof_max_ms=config.get("controller.proof.max.ms"),
        )


@dataclass(frozen=True, slots=True)
class Unfence:
    """The broker has caught up: unfence it, then answer its heartbeat."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The broker wants to be fenced: do so, then answer its heartbeat."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The broker wants to stop: others take over what they can, then it is fenced; then answer its heartbeat."""


TAKEN_MAX = 100
"""Commits that a broker may not know of yet; of more than that the first ones count."""


@dataclass(slots=True)
class _Lease:
    broker_epoch: int
    bound_ms: int
    """Fence when this is over (monotonic)."""
    heard_ms: int = -1
    """Receipt of the last heartbeat; -1 for none since the take-over."""
    fencing: bool = False
    """A commit that fences it is on its way: no lease any more."""


class BrokerLiveness:
    """The volatile side of the brokers: what only this controller, in this term, knows."""

    def __init__(self, timers: LeaseTimers) -> None:
        self._timers = timers
        self._leases: dict[int, _Lease] = {}
        self.positions: dict[tuple[int, int], int] = {}
        """By broker id and epoch: the commit up to which its heartbeats said that it knows."""
        self._taken: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """By broker id and epoch: (commit that took a leadership from it, when), as far as it may not know them yet."""
        self._leaving: dict[tuple[int, int], int] = {}
        """By broker id and epoch: the commit with which its shutting down began."""
        self._may_stop_at = (-1, -1)
        self._may_stop_answer = False
        self._last_check_ms: int | None = None

    def took_over(self, image: MetadataImage, now_ms: int) -> None:
        """Rule C4: any unfenced broker may hold a lease that another controller gives it until its own proofs are old.

        `now_ms`: when the claim was settled, by the monotonic clock, as all times here.
        """
        bound_ms = now_ms + self._timers.proof_max_ms + self._timers.lease_ms + self._timers.margin_ms
        self._leases = {broker.broker_id: _Lease(broker.broker_epoch, bound_ms) for broker in image.live_brokers()}
        self._last_check_ms = now_ms
        self.positions.clear()
        self._taken.clear()
        self._leaving = {
            (broker.broker_id, broker.broker_epoch): image.position
            for broker in image.live_brokers()
            if broker.shutting_down
        }
        for topic in image.topics.values():
            self._take_notice([e for p in topic.partitions for e in p.earlier_leaders], now_ms)

    def committed(self, number: int, records: Iterable[Record], now_ms: int) -> None:
        """A commit was settled: who lost a leadership by it has to learn that (rule B9)."""
        for record in records:
            if isinstance(record, PartitionChanged) and record.state.earlier_leaders:
                new = [e for e in record.state.earlier_leaders if e.commit < 0]
                self._take_notice([msgspec.structs.replace(e, commit=number) for e in new], now_ms)
            elif isinstance(record, BrokerShuttingDown):
                self._leaving[record.broker_id, record.broker_epoch] = number

    def _take_notice(self, lost: Iterable[EarlierLeader], now_ms: int) -> None:
        for earlier in lost:
            broker = (earlier.broker_id, earlier.broker_epoch)
            taken = self._taken.setdefault(broker, [])
            if not taken or (taken[-1][0] < earlier.commit and len(taken) < TAKEN_MAX):
                taken.append((earlier.commit, now_ms))
            elif taken[-1][0] < earlier.commit:
                taken[-1] = (earlier.commit, taken[-1][1])

    def image_changed(self, image: MetadataImage, now_ms: int) -> None:
        """Forget brokers that are fenced or registered anew; a broker that was just unfenced gets time to beat."""
        live = {broker.broker_id: broker.broker_epoch for broker in image.live_brokers()}
        for broker_id, lease in list(self._leases.items()):
            if live.get(broker_id) != lease.broker_epoch:
                del self._leases[broker_id]
        for broker_id, broker_epoch in live.items():
            if broker_id not in self._leases:
                bound_ms = now_ms + self._timers.lease_ms + self._timers.margin_ms
                self._leases[broker_id] = _Lease(broker_epoch, bound_ms, now_ms)
        known = {(broker.broker_id, broker.broker_epoch) for broker in image.brokers.values()}
        for gone in [key for key in self.positions if key not in known]:
            del self.positions[gone]
        for gone in [key for key in self._taken if key not in known]:
            del self._taken[gone]
        for gone in [key for key in self._leaving if key not in known]:
            del self._leaving[gone]

    def heartbeat(
        self, request: BrokerLeaseRequest, image: MetadataImage, now_ms: int, *, proven_ms: int
    ) -> BrokerLeaseResponse | Unfence | Fence | ShutDown:
        """What to answer, or to commit before `answer_after_commit` does. `proven_ms`: last proof from the store."""
        broker = image.brokers.get(request.broker_id)
        if broker is None:
            return _refused(ErrorCode.BROKER_ID_NOT_REGISTERED, image)
        if broker.broker_epoch != request.broker_epoch or broker.dead:
            # Dead is final: a late heartbeat of a process that is gone must not raise it.
            return _refused(ErrorCode.STALE_BROKER_EPOCH, image)
        unknown_since_ms = self._heard_of(request, now_ms)
        if broker.fenced:
            # Unfenced with an image that still names it as a leader, it would serve beside the new one.
            caught_up = request.position >= commit_number_of(broker.broker_epoch) and unknown_since_ms is None
            if caught_up and may_be_unfenced(broker) and not (request.want_fence or request.want_shut_down):
                return Unfence()
            may_stop = request.want_shut_down or broker.shutting_down
            return BrokerLeaseResponse(controller_epoch=image.controller_epoch, should_shut_down=may_stop)
        lease = self._leases[request.broker_id]
        if lease.fencing:
            return BrokerLeaseResponse(controller_epoch=image.controller_epoch)
        if request.want_fence:
            lease.fencing = True
            return Fence()
        if request.want_shut_down and not broker.shutting_down:
            return ShutDown()
        if request.want_shut_down and self._others_know(broker, image) and self._may_stop(broker, image):
            lease.fencing = True
            return ShutDown()
        if unknown_since_ms is not None and now_ms - unknown_since_ms > self._timers.lease_ms:
            # Rule B9: it does not hear what is decided. It gets no lease, and B5 fences it.
            return BrokerLeaseResponse(controller_epoch=image.controller_epoch)
        lease.heard_ms = now_ms
        bound_ms = now_ms + self._timers.lease_ms + self._timers.margin_ms
        # One that has seen this epoch takes leases from nobody else any more. Any other may have sent this heartbeat
        # long ago, gone back to the controller before this one, and hold a newer lease from there.
        seen = request.controller_epoch >= image.controller_epoch
        lease.bound_ms = bound_ms if seen else max(bound_ms, lease.bound_ms)
        return BrokerLeaseResponse(
            controller_epoch=image.controller_epoch,
            is_fenced=False,
            is_firm=proven_ms >= 0 and now_ms - proven_ms < self._timers.proof_max_ms,
            lease_ms=self._timers.lease_ms,
        )

    def _heard_of(self, request: BrokerLeaseRequest, now_ms: int) -> int | None:
        """Since when the broker has not heard of a leadership that was taken from it; None when it knows all."""
        broker = (request.broker_id, request.broker_epoch)
        self.positions[broker] = max(self.positions.get(broker, -1), request.position)
        taken = self._taken.get(broker)
        if taken is None:
            return None
        taken[:] = [(commit, at_ms) for commit, at_ms in taken if commit > request.position]
        if taken:
            return taken[0][1]
        del self._taken[broker]
        return None

    def _others_know(self, broker: BrokerState, image: MetadataImage) -> bool:
        """Whether every other broker that lives has heard of what this one handed over."""
        leaving = self._leaving.get((broker.broker_id, broker.broker_epoch), -1)
        return all(
            self.positions.get((other.broker_id, other.broker_epoch), -1) >= leaving
            for other in image.live_brokers()
            if other.broker_id != broker.broker_id and not other.shutting_down
        )

    def _may_stop(self, broker: BrokerState, image: MetadataImage) -> bool:
        """Asked with every heartbeat: one look at all partitions serves as long as the image stays the same."""
        if self._may_stop_at != (broker.broker_id, image.position):
            self._may_stop_at = (broker.broker_id, image.position)
            self._may_stop_answer = may_stop(broker.broker_id, image)
        return self._may_stop_answer

    def late(self, now_ms: int) -> list[tuple[int, int]]:
        """(id, epoch) of all brokers whose bound is over; called often, and each is named once."""
        last, self._last_check_ms = self._last_check_ms, now_ms
        if last is not None and now_ms - last > self._timers.stall_max_ms:
            # This loop stood still: heartbeats may wait in the sockets.
            for lease in self._leases.values():
                lease.bound_ms = max(lease.bound_ms, now_ms) + STALL_GRACE_MS
            return []
        return self._fencing([broker_id for broker_id, lease in self._leases.items() if now_ms > lease.bound_ms])

    def died(self, broker_id: int, broker_epoch: int) -> list[tuple[int, int]]:
        """Rule B6: the process is known to be gone. Returns (id, epoch) to be fenced as dead, or nothing."""
        lease = self._leases.get(broker_id)
        return self._fencing([broker_id]) if lease is not None and lease.broker_epoch == broker_epoch else []

    def unheard(self) -> list[int]:
        """Brokers that hold a lease by the rule of a take-over, and of which no heartbeat has come here."""
        return [broker_id for broker_id, lease in self._leases.items() if lease.heard_ms < 0 and not lease.fencing]

    def age_ms(self, broker_id: int, now_ms: int) -> int:
        """Since the last heartbeat; -1 when none was heard in this term."""
        lease = self._leases.get(broker_id)
        return now_ms - lease.heard_ms if lease is not None and lease.heard_ms >= 0 else -1

    def _fencing(self, broker_ids: list[int]) -> list[tuple[int, int]]:
        chosen = [(broker_id, self._leases[broker_id]) for broker_id in sorted(broker_ids)]
        named = [(broker_id, lease.broker_epoch) for broker_id, lease in chosen if not lease.fencing]
        for _, lease in chosen:
            lease.fencing = True
        return named


def _refused(code: ErrorCode, image: MetadataImage) -> BrokerLeaseResponse:
    return BrokerLeaseResponse(error_code=code, controller_epoch=image.controller_epoch)
