"""Replicas whose disk has failed, or whose log cannot be found, leave the ISR at once (rule P12).

The metadata does not say in which data directory a replica lies, so the broker names the partitions. It would fall out
of the ISR anyway, for it fetches no more; where it leads, nobody else could notice. It is not remembered as one that
may be elected: nothing in that log is believed. Where it is alone in the ISR, those that may be elected take its place
(rule B3); without any nothing changes: nobody else has the records, and its clients are told KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import msgspec

from appliance.base.errors import ErrorCode
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.elections import Outcome
from appliance.controller.image import MetadataImage
from appliance.controller.records import PartitionChanged, PartitionState, Record
from appliance.wire.messages.internal_metadata import ReplicasOfflineRequest, ReplicasOfflineResponse


def others_have_it(partition: PartitionState, broker_id: int) -> bool:
    """Whether another replica has all that was acknowledged."""
    return any(member != broker_id for member in (*partition.isr, *partition.elr))


def replicas_offline(request: ReplicasOfflineRequest, image: MetadataImage, rules: Rules) -> Decision:
    """STALE_BROKER_EPOCH: the process that says so has been replaced."""
    broker_id = request.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return answer(ReplicasOfflineResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    outcome = Outcome(image, rules, lost=frozenset({broker_id}))
    records: list[Record] = []
    for named in request.topics:
        topic = image.topics_by_id.get(named.topic_id)
        for index in dict.fromkeys(named.partitions) if topic is not None else ():
            partition = image.partition_by_id(named.topic_id, index)
            # In the ELR, too: nobody may elect it for a log that is not there.
            if topic is None or partition is None or broker_id not in (*partition.isr, *partition.elr):
                continue
            isr, elr = (tuple(b for b in members if b != broker_id) for members in (partition.isr, partition.elr))
            if not isr:
                isr, elr = elr, ()
            if not isr:
                continue
            changed = outcome.settle(topic, partition, msgspec.structs.replace(partition, isr=isr, elr=elr))
            if changed is not None:
                records.append(PartitionChanged(named.topic_id, changed))
    return answer(ReplicasOfflineResponse(), records)
