"""The requests that go to a partition's leader: each function asks once; an answer or an error for each partition."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import ZERO_UUID, TopicPartition
from appliance.client.connection import Connection, error_of
from appliance.client.results import AbortedTransaction, EpochEnd, FetchResult, OffsetResult, ProduceResult
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from appliance.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from appliance.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from appliance.wire.schema import Struct

LAST_VERSION_WITH_NAMES = 12
"""Of Produce and Fetch alike: later ones name topics by id only (KIP-516)."""
CONSUMER = -1
"""The replica id of whoever is no replica."""
LIST_OFFSETS_VERSION_OF = {-3: 7, -4: 8, -5: 9, -6: 11}
"""The first version that knows a special timestamp; older brokers would look for a record with it."""


class FetchLimits(NamedTuple):
    """How much to read and how long to wait for it."""

    max_bytes: int
    max_wait_ms: int
    min_bytes: int
    isolation_level: int


def list_offsets(
    connection: Connection, timestamps: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> dict[TopicPartition, OffsetResult | KafkaError]:
    """ListOffsets of one broker.

    Raises:
        KafkaError: UNSUPPORTED_VERSION, the broker does not know a special timestamp.
        ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    version = connection.common_version(ListOffsetsRequest, timeout_ms)
    for timestamp in timestamps.values():
        if version < LIST_OFFSETS_VERSION_OF.get(timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} knows no timestamp {timestamp}")
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp]) for tp in part],
        )
        for topic, part in groupby(sorted(timestamps), lambda tp: tp.topic)
    ]
    request = ListOffsetsRequest(
        replica_id=CONSUMER, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms
    )
    answers: dict[TopicPartition, OffsetResult | KafkaError] = {}
    for topic in connection.call(request, version, timeout_ms).topics:
        for got in topic.partitions:
            tp = TopicPartition(topic.name, got.partition_index)
            result = OffsetResult(got.offset, got.timestamp, got.leader_epoch)
            answers[tp] = _error(got.error_code, f"ListOffsets of {tp}") or result
    return answers


def offsets_for_leader_epoch(
    connection: Connection, epochs: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """OffsetForLeaderEpoch of one broker.

    Raises:
        KafkaError, ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    topics = [
        OffsetForLeaderTopic(
            topic=topic,
            partitions=[OffsetForLeaderPartition(partition=tp.partition, leader_epoch=epochs[tp]) for tp in part],
        )
        for topic, part in groupby(sorted(epochs), lambda tp: tp.topic)
    ]
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics)
    answers: dict[TopicPartition, EpochEnd | KafkaError] = {}
    for topic in connection.call(request, timeout_ms=timeout_ms).topics:
        for got in topic.partitions:
            tp = TopicPartition(topic.topic, got.partition)
            result = EpochEnd(got.leader_epoch, got.end_offset)
            answers[tp] = _error(got.error_code, f"OffsetForLeaderEpoch of {tp}") or result
    return answers


def fetch(
    connection: Connection,
    tp: TopicPartition,
    topic_id: uuid.UUID,
    offset: int,
    limits: FetchLimits,
    timeout_ms: int,
) -> dict[TopicPartition, FetchResult | KafkaError]:
    """Fetch one partition, without a session.

    Raises:
        KafkaError, ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    partition = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=limits.max_bytes)
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=[FetchTopic(topic=tp.topic, topic_id=topic_id, partitions=[partition])],
    )
    response = connection.call(request, _version_for(connection, FetchRequest, topic_id, timeout_ms), timeout_ms)
    whole = _error(response.error_code, f"Fetch of {tp}")
    if whole is not None:
        return {tp: whole}
    found = [p for topic in response.responses for p in topic.partitions if p.partition_index == tp.partition]
    return {tp: _fetched(tp, offset, found[0])} if found else {}


def _fetched(tp: TopicPartition, offset: int, got: PartitionData) -> FetchResult | KafkaError:
    error = _error(got.error_code, f"Fetch of {tp} from offset {offset}")
    if error is not None and error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return error
    return FetchResult(
        ErrorCode.NONE if error is None else error.code,
        got.high_watermark,
        got.last_stable_offset,
        got.log_start_offset,
        [AbortedTransaction(a.producer_id, a.first_offset) for a in got.aborted_transactions or ()],
        bytes(got.records or b""),
    )


def produce(
    connection: Connection,
    tp: TopicPartition,
    topic_id: uuid.UUID,
    batches: bytes | bytearray | memoryview,
    acks: int,
    acks_timeout_ms: int,
    timeout_ms: int,
) -> dict[TopicPartition, ProduceResult | KafkaError]:
    """Produce to one partition; with acks=0 nothing is waited for.

    Raises:
        KafkaError, ConnectionLost, CallTimedOut: see `Connection.call`.
    """
    data = PartitionProduceData(index=tp.partition, records=memoryview(batches))
    topic = TopicProduceData(name=tp.topic, topic_id=topic_id, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=acks_timeout_ms, topic_data=[topic])
    version = _version_for(connection, ProduceRequest, topic_id, timeout_ms)
    if acks == 0:
        connection.send(request, version, timeout_ms)
        return {tp: ProduceResult(-1, -1)}
    answers: dict[TopicPartition, ProduceResult | KafkaError] = {}
    for got_topic in connection.call(request, version, timeout_ms).responses:
        for got in got_topic.partition_responses:
            result = ProduceResult(got.base_offset, got.log_append_time_ms)
            what = f"Produce to {tp}" + (f": {got.error_message}" if got.error_message else "")
            answers[TopicPartition(tp.topic, got.index)] = _error(got.error_code, what) or result
    return answers


def _version_for(connection: Connection, request: type[Struct], topic_id: uuid.UUID, timeout_ms: int) -> int:
    """The common version; without the topic's id one that still takes names."""
    version = connection.common_version(request, timeout_ms)
    return min(version, LAST_VERSION_WITH_NAMES) if topic_id == ZERO_UUID else version


def _error(code: int, what: str) -> KafkaError | None:
    return None if code == ErrorCode.NONE else KafkaError(error_of(code), what)
