"""Brokers come, are fenced, come back, stop and go for good (rules B1 to B5, B10, C5)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from appliance.base.errors import ErrorCode
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.elections import Outcome, may_take_over
from appliance.controller.image import BrokerState, MetadataImage, TopicState
from appliance.controller.records import (
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    Listener,
    LogState,
    PartitionState,
    Record,
)
from appliance.wire.messages.internal_metadata import RegisterBrokerRequest, RegisterBrokerResponse
from appliance.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def register(request: RegisterBrokerRequest, image: MetadataImage, rules: Rules) -> Decision:
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

    lost = log_state in (LogState.UNCLEAN, LogState.EMPTY)
    outcome = Outcome(image, rules, [registered], frozenset({broker_id} if lost else ()))

    def change(topic: TopicState, partition: PartitionState) -> PartitionState | None:
        if broker_id not in partition.replicas:
            return None
        wanted = _after_loss(partition, broker_id, log_state) if lost else _after_return(partition, broker_id, outcome)
        return outcome.settle(topic, partition, wanted)

    return Decision([registered, *outcome.changes(change)], lambda after: _accepted(after, broker_id))


def _after_loss(partition: PartitionState, broker_id: int, log_state: LogState) -> PartitionState:
    """Rule B3: a broker that may lack what it had is in sync nowhere, and eligible nowhere, if anybody else is."""
    elr = tuple(b for b in partition.elr if b != broker_id)
    isr = tuple(b for b in partition.isr if b != broker_id)
    if isr:
        return msgspec.structs.replace(partition, isr=isr, elr=elr)
    if elr:
        return msgspec.structs.replace(partition, isr=elr, elr=())
    if log_state is LogState.EMPTY:
        return msgspec.structs.replace(partition, data_lost=True)
    return partition


def _after_return(partition: PartitionState, broker_id: int, outcome: Outcome) -> PartitionState:
    """Its log is whole. It follows from here on where somebody leads; where nobody can, it may be the first to."""
    isr = tuple(b for b in partition.isr if b != broker_id)
    return msgspec.structs.replace(partition, isr=isr) if any(outcome.may_lead(b) for b in isr) else partition


def unfence(broker_id: int, broker_epoch: int, image: MetadataImage, rules: Rules) -> Decision:
    """The broker has caught up with its registration: it may lead, and does so where nobody else can."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch or not may_be_unfenced(broker):
        return Decision()
    record = BrokerUnfenced(broker_id, broker_epoch)
    outcome = Outcome(image, rules, [record])

    def change(topic: TopicState, partition: PartitionState) -> PartitionState | None:
        waits = partition.leader == NO_LEADER and broker_id in partition.replicas
        return outcome.settle(topic, partition) if waits else None

    return Decision([record, *outcome.changes(change)])


def may_be_unfenced(broker: BrokerState) -> bool:
    """Rule B5: dead is final. So is a controlled shutdown; the process that comes after it registers."""
    return broker.fenced and not broker.dead and not broker.shutting_down


def fence(
    broker_epochs: Sequence[tuple[int, int]],
    image: MetadataImage,
    rules: Rules,
    *,
    dead: bool = False,
    shutting_down: bool = False,
) -> Decision:
    """Rule C5: these brokers (id, epoch) lead nothing any more. All are marked before anything is elected."""
    events: list[Record] = []
    for broker_id, broker_epoch in broker_epochs:
        broker = image.brokers.get(broker_id)
        if (
            broker is not None
            and broker.broker_epoch == broker_epoch
            and not (broker.fenced and (broker.dead or not dead))
        ):
            events.append(BrokerFenced(broker_id, broker_epoch, dead, shutting_down))
    return _gone(
        frozenset(event.broker_id for event in events if isinstance(event, BrokerFenced)), events, image, rules
    )


def shut_down(broker_id: int, broker_epoch: int, image: MetadataImage, rules: Rules) -> Decision:
    """Rule B10: others lead what they can, and wait for it no more; it is fenced when there is nothing to wait for."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch or broker.fenced:
        return Decision()
    if not broker.shutting_down:
        event = BrokerShuttingDown(broker_id, broker_epoch)
        outcome = Outcome(image, rules, [event])

        def change(topic: TopicState, partition: PartitionState) -> PartitionState | None:
            return outcome.settle(topic, partition) if broker_id in partition.isr else None

        moved = list(outcome.changes(change))
        if moved or not may_stop(broker_id, outcome.image):
            return Decision([event, *moved])
    return fence([(broker_id, broker_epoch)], image, rules, shutting_down=True)


def may_stop(broker_id: int, image: MetadataImage) -> bool:
    """Whether it leads nothing that another replica, once in sync, could take over."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.leader == broker_id and any(
                may_take_over(image.brokers.get(b)) for b in partition.replicas if b != broker_id
            ):
                return False
    return True


def unregister(request: UnregisterBrokerRequest, image: MetadataImage, rules: Rules) -> Decision:
    """An operator says that a broker is gone for good. It has to be fenced: a living one would register again."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        code, reason = ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
        return answer(UnregisterBrokerResponse(error_code=code, error_message=reason))
    if not broker.fenced:
        reason = f"broker {request.broker_id} lives: stop it first"
        return answer(UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason))
    events: list[Record] = [BrokerUnregistered(broker.broker_id, broker.broker_epoch)]
    return Decision(
        _gone(frozenset({broker.broker_id}), events, image, rules).records, lambda after: UnregisterBrokerResponse()
    )


def repair(image: MetadataImage, rules: Rules) -> Decision:
    """What a controller before this one may have left half done: leaders that are fenced, elections that are due."""
    outcome = Outcome(image, rules)
    return Decision(list(outcome.changes(lambda topic, partition: outcome.settle(topic, partition))))


def _gone(broker_ids: frozenset[int], events: list[Record], image: MetadataImage, rules: Rules) -> Decision:
    if not events:
        return Decision()
    outcome = Outcome(image, rules, events)

    def change(topic: TopicState, partition: PartitionState) -> PartitionState | None:
        return None if broker_ids.isdisjoint(partition.isr) else outcome.settle(topic, partition)

    return Decision([*events, *outcome.changes(change)])


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
