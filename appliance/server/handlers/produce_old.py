"""Produce, versions 0 to 2, which carry message sets of magic 0 and 1: each becomes a batch, then all is as usual.

- A helper thread makes the batches; meanwhile the connection's next requests wait. A damaged message refuses its
  partition alone; one that is cut off at the end is passed over, and a set without messages is no error, as in Kafka.
- Above `message.conversion.max.bytes` everything is answered REQUEST_TIMED_OUT: the clients of that time know no better
  word for "again, later".
v1 throttle time · v2 the append time
"""

from __future__ import annotations

from typing import NamedTuple, cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.records.batch import MAGIC
from appliance.records.message_sets import MAGIC_AT, batch_of
from appliance.server.context import Broker
from appliance.server.handlers import produce
from appliance.server.requests import Pending, Request
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest
from appliance.wire.schema import Struct

BATCHES_SINCE = 3
Made = tuple[bytes, int] | Exception | None
"""A batch and its count of records, or why there is none; None: there was nothing."""


class _Work(NamedTuple):
    """A message set, and where it stands in the request."""

    place: int
    topic: str
    data: PartitionProduceData
    message_set: bytes


def handle(broker: Broker, request: Request) -> Struct | Pending | None:
    if request.api_version >= BATCHES_SINCE:
        return produce.handle(broker, request)
    body = cast(ProduceRequest, request.body)
    work: list[_Work] = []
    refused: dict[int, KafkaError] = {}
    place = size = 0
    for topic in body.topic_data:
        for data in topic.partition_data:
            error = produce.refusal_of(broker, request, topic, data.index)
            if error is not None:
                refused[place] = error
            elif data.records:
                # The receive buffer is used again before the helper is done.
                data.records = memoryview(bytearray(data.records))
                if not _is_batch(data.records):
                    work.append(_Work(place, topic.name, data, bytes(data.records)))
                    size += len(data.records)
            place += 1
    pending = request.pending()
    conversions = broker.conversions
    if not conversions.begin(size):
        busy = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too much is being converted for old clients")
        produce.append_converted(broker, request, pending, dict.fromkeys(range(place), busy))
        return pending

    def done(made: list[Made] | Exception) -> None:
        conversions.end(size)
        found = [made] * len(work) if isinstance(made, Exception) else made
        for each, batch in zip(work, found, strict=True):
            if isinstance(batch, tuple):
                each.data.records = memoryview(bytearray(batch[0]))
                conversions.count(conversions.produced, each.topic, batch[1])
            elif batch is None:
                each.data.records = b""
            else:
                refused[each.place] = _refusal(batch)
        produce.append_converted(broker, request, pending, refused)

    broker.background.run(lambda: [_made(each.message_set) for each in work], done)
    return pending


def _is_batch(records: bytes | memoryview) -> bool:
    """Clients of version 2 of the request could send them; what is too short to say so is nothing else."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] == MAGIC


def _made(message_set: bytes) -> Made:
    """Runs in a helper thread."""
    try:
        return batch_of(message_set)
    except Exception as error:
        return error


def _refusal(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
