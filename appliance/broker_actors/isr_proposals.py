"""AlterPartition, as leaders send it: one request under way, what is proposed meanwhile goes with the next (P6 to P8).

A refusal, or no answer, goes back to the partition's machine, which proposes again at its next tick.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any, NamedTuple, Protocol

from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.client.connection import error_of
from appliance.partition.events import IsrRefused
from appliance.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)

_log = logging.getLogger(__name__)

TIMEOUT_MS = 5_000
"""For one request; the next goes to whichever controller is active then."""
PARTITIONS_PER_REQUEST_MAX = 5_000


class _Proposal(NamedTuple):
    isr: tuple[int, ...]
    partition_epoch: int
    leader_epoch: int


class ProposalHost(Protocol):
    """What this needs of its broker."""

    @property
    def broker_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def clock(self) -> Clock: ...

    def call_controller(self, request: Any, done: Any, timeout_ms: int) -> None: ...

    def soon(self, callback: Any) -> None: ...


class IsrProposals:
    """All methods are called on the loop's thread."""

    def __init__(self, host: ProposalHost) -> None:
        self._host = host
        self._waiting: dict[HostedPartition, _Proposal] = {}
        self._under_way = False
        self._posted = False

    def propose(self, hosted: HostedPartition, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Ask for this ISR, with all else that is proposed in this turn of the loop."""
        self._waiting[hosted] = _Proposal(isr, partition_epoch, hosted.leader_epoch)
        self._post()

    def _post(self) -> None:
        if not self._posted and not self._under_way:
            self._posted = True
            self._host.soon(self._send)

    def _send(self) -> None:
        self._posted = False
        if self._under_way:
            return
        chosen: dict[HostedPartition, _Proposal] = {}
        for hosted in list(self._waiting)[:PARTITIONS_PER_REQUEST_MAX]:
            proposal = self._waiting.pop(hosted)
            if hosted.leader is not None and hosted.leader_epoch == proposal.leader_epoch:
                chosen[hosted] = proposal
        if not chosen:
            return
        topics: dict[uuid.UUID, TopicData] = {}
        for hosted, proposal in chosen.items():
            topic = topics.setdefault(hosted.topic_id, TopicData(topic_id=hosted.topic_id))
            topic.partitions.append(self._row(hosted, proposal))
        self._under_way = True
        request = AlterPartitionRequest(
            broker_id=self._host.broker_id, broker_epoch=self._host.broker_epoch, topics=list(topics.values())
        )
        self._host.call_controller(request, lambda answer: self._answered(chosen, answer), TIMEOUT_MS)

    def _row(self, hosted: HostedPartition, proposal: _Proposal) -> PartitionData:
        followers = hosted.leader.followers if hosted.leader is not None else {}
        members = []
        for broker_id in proposal.isr:
            follower = followers.get(broker_id)
            epoch = self._host.broker_epoch if broker_id == self._host.broker_id else -1
            members.append(
                BrokerState(broker_id=broker_id, broker_epoch=follower.broker_epoch if follower is not None else epoch)
            )
        return PartitionData(
            partition_index=hosted.partition,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=proposal.partition_epoch,
        )

    def _answered(self, chosen: dict[HostedPartition, _Proposal], answer: Any) -> None:
        self._under_way = False
        rows: dict[tuple[uuid.UUID, int], PartitionDataResponse] = {}
        if isinstance(answer, AlterPartitionResponse) and not answer.error_code:
            rows = {(topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions}
        else:
            reason = answer if isinstance(answer, Exception) else error_of(answer.error_code).name
            _log.warning("the ISR of %d partitions could not be changed: %s", len(chosen), reason)
        now_ms = self._host.clock.monotonic_ms()
        for hosted, proposal in chosen.items():
            leader = hosted.leader
            if leader is None or hosted.leader_epoch != proposal.leader_epoch:
                continue
            row = rows.get((hosted.topic_id, hosted.partition))
            if row is not None and not row.error_code:
                _log.info("%r: in sync are %s now", hosted, row.isr)
                hosted.isr_answered(tuple(row.isr), row.partition_epoch, leader.replicas, now_ms)
                continue
            if row is not None and row.error_code != ErrorCode.INVALID_UPDATE_VERSION:
                _log.info("%r: ISR %s: %s", hosted, proposal.isr, error_of(row.error_code).name)
            if leader.partition_epoch == proposal.partition_epoch:
                leader.handle(IsrRefused(), now_ms)
        if self._waiting:
            self._post()
