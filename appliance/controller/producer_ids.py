"""AllocateProducerIds: blocks of producer ids (rule P13, KIP-730)."""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.controller.decisions import Decision, answer
from appliance.controller.image import MetadataImage
from appliance.controller.records import ProducerIdsAllocated
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_SIZE = 1_000
"""As in Kafka. A block whose commit nobody heard of is never given to another."""
_MAX_PRODUCER_ID = (1 << 63) - 1


def allocate_producer_ids(request: AllocateProducerIdsRequest, image: MetadataImage) -> Decision:
    """The next block, for a broker that is registered with that epoch."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return answer(AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED))
    if broker.broker_epoch != request.broker_epoch:
        return answer(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    first = image.next_producer_id
    if first > _MAX_PRODUCER_ID - BLOCK_SIZE:
        return answer(AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    return answer(
        AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE),
        [ProducerIdsAllocated(request.broker_id, request.broker_epoch, first + BLOCK_SIZE)],
    )
