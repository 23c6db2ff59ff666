"""Brokers come, are fenced, come back and go (rules B1 to B5, B10)."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.base.errors import ErrorCode
from appliance.controller.decisions import Decision, answer
from appliance.controller.delta import MetadataDelta
from appliance.controller.elections import changes, elect, lose_data
from appliance.controller.image import BrokerState, MetadataImage
from appliance.controller.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    Listener,
    LogState,
    PartitionState,
    Record,
)
from appliance.wire.messages.internal_metadata import RegisterBrokerRequest, RegisterBrokerResponse


def register(request: RegisterBrokerRequest, image: MetadataImage) -> Decision:
    """A broker process makes itself known; its epoch is the position of the record.

    INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION: it will never be accepted as it is. DUPLICATE_BROKER_REGISTRATION:
    another process of this id may still serve; try again.
    """
    broker_id = request.broker_id
    if request.cluster_id not in (None, image.cluster_id):
        reason = f"its data directory belongs to cluster {request.cluster_id}, this is cluster {image.cluster_id}"
        return _refused(ErrorCode.INCONSISTENT_CLUSTER_ID, image, reason)
    if broker_id < 0 or not request.listeners or request.log_state not in tuple(LogState):
        return _refused(ErrorCode.INVALID_REGISTRATION, image, "a broker needs an id of 0 or more and a listener")
    known = image.brokers.get(broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return answer(_accepted(image, broker_id))
    # Who knows the old epoch holds the lock of the directory in which it was noted: the old process has ended.
    if known is not None and not known.fenced and request.previous_broker_epoch != known.broker_epoch:
        reason = f"another process is registered as broker {broker_id} and not fenced yet"
        return _refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, image, reason)
    log_state = _log_state(request, known)
    registered = BrokerRegistered(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        listeners=tuple(Listener(at.name, at.host, at.port, at.security_protocol) for at in request.listeners),
        rack=request.rack,
        node=request.node,
        directory_ids=tuple(request.directory_ids),
        log_state=log_state,
    )

    def change(partition: PartitionState) -> PartitionState | None:
        if log_state is LogState.EMPTY and (changed := lose_data(partition, broker_id)) is not None:
            return changed
        return elect(partition, image, frozenset({broker_id})) if partition.leader == broker_id else None

    return Decision([registered, *changes(image, change)], lambda after: _accepted(after, broker_id))


def unfence(broker_id: int, broker_epoch: int, image: MetadataImage) -> Decision:
    """The broker has caught up with its registration: it may lead, and does so where nobody else can."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch or not may_be_unfenced(broker):
        return Decision()
    record = BrokerUnfenced(broker_id, broker_epoch)
    delta = MetadataDelta(image)
    delta.apply(record, position=-1)
    unfenced = delta.build()
    elections = changes(unfenced, lambda partition: elect(partition, unfenced) if broker_id in partition.isr else None)
    return Decision([record, *elections])


def may_be_unfenced(broker: BrokerState) -> bool:
    """Rule B5: dead is final. So is a controlled shutdown; the process that comes after it registers."""
    return broker.fenced and not broker.dead and not broker.shutting_down


def fence(
    broker_epochs: Sequence[tuple[int, int]], image: MetadataImage, *, dead: bool = False, shutting_down: bool = False
) -> Decision:
    """Rule C5: these brokers (id, epoch) lead nothing any more. All are marked before anything is elected."""
    records: list[Record] = []
    for broker_id, broker_epoch in broker_epochs:
        broker = image.brokers.get(broker_id)
        if (
            broker is not None
            and broker.broker_epoch == broker_epoch
            and not (broker.fenced and (broker.dead or not dead))
        ):
            records.append(BrokerFenced(broker_id, broker_epoch, dead, shutting_down))
    gone = frozenset(record.broker_id for record in records if isinstance(record, BrokerFenced))
    if gone:
        records += changes(image, lambda partition: elect(partition, image, gone) if partition.leader in gone else None)
    return Decision(records)


def repair(image: MetadataImage) -> Decision:
    """What a controller before this one may have left half done: leaders that are fenced, elections that are due."""
    return Decision(list(changes(image, lambda partition: elect(partition, image))))


def _log_state(request: RegisterBrokerRequest, known: BrokerState | None) -> LogState:
    """The directory's id decides whether the data is there; a directory without partitions has lost nothing."""
    state = LogState(request.log_state)
    if known is None or not known.directory_ids or not request.directory_ids:
        return state
    if set(known.directory_ids).isdisjoint(request.directory_ids):
        return LogState.EMPTY
    return LogState.SAME_BOOT if state is LogState.EMPTY else state


def _accepted(image: MetadataImage, broker_id: int) -> RegisterBrokerResponse:
    return RegisterBrokerResponse(
        controller_epoch=image.controller_epoch,
        cluster_id=image.cluster_id,
        broker_epoch=image.brokers[broker_id].broker_epoch,
    )


def _refused(code: ErrorCode, image: MetadataImage, reason: str) -> Decision:
    return answer(
        RegisterBrokerResponse(
            error_code=code,
            error_message=reason,
            controller_epoch=image.controller_epoch,
            cluster_id=image.cluster_id,
        )
    )
