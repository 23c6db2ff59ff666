"""Requests that tests send to a broker over `appliance.client.connection.Connection`."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping, Sequence

from appliance.client.connection import Connection
from appliance.records.builder import build_batch
from appliance.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from appliance.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from appliance.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

TOPIC_IDS_SINCE = 13
_numbers = itertools.count()


def new_topic(
    connection: Connection,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    name: str = "",
    replicas: int = 1,
) -> CreatableTopicResult:
    """Create a topic; without a name, one that no other test has."""
    topic = CreatableTopic(
        name=name or f"topic-{next(_numbers)}",
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    response = connection.call(CreateTopicsRequest(topics=[topic]))
    (result,) = response.topics
    assert result.error_code == 0, result
    return result


def batch_of(*values: bytes, timestamp_ms: int | None = None, key: bytes | None = None, **options: int) -> bytes:
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return build_batch([(now_ms, key, value, []) for value in values], **options)  # type: ignore[arg-type]


def produce_request(
    topic: CreatableTopicResult, records: Mapping[int, bytes | None], *, acks: int = 1, timeout_ms: int = 5_000
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in records.items()],
            )
        ],
    )


def produce(
    connection: Connection,
    topic: CreatableTopicResult,
    records: bytes | None,
    *,
    partition: int = 0,
    version: int = 9,
    acks: int = 1,
) -> PartitionProduceResponse:
    """Produce one batch to one partition."""
    response = connection.call(produce_request(topic, {partition: records}, acks=acks), version)
    (answer,) = response.responses[0].partition_responses
    return answer


def fetch_request(
    topic: CreatableTopicResult | tuple[str, uuid.UUID],
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    **options: int,
) -> FetchRequest:
    name, topic_id = topic if isinstance(topic, tuple) else (topic.name, topic.topic_id)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                    for partition, offset in offsets.items()
                ],
            )
        ],
        **options,
    )


def partitions_of(response: FetchResponse) -> dict[int, PartitionData]:
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def fetch(
    connection: Connection, topic: CreatableTopicResult, offset: int, *, partition: int = 0, version: int = 12
) -> PartitionData:
    """Fetch from one partition, without waiting."""
    response = connection.call(fetch_request(topic, {partition: offset}), version)
    return partitions_of(response)[partition]


def list_offset(
    connection: Connection,
    topic: CreatableTopicResult,
    timestamp: int,
    *,
    partition: int = 0,
    version: int = 11,
    isolation_level: int = 0,
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic.name, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
            )
        ],
    )
    return connection.call(request, version).topics[0].partitions[0]


def values_of(records: object) -> Sequence[bytes | None]:
    """The values of all records in fetched batches."""
    from appliance.records.batch import split_batches
    from appliance.records.reader import read_records

    if records is None:
        return []
    assert isinstance(records, bytes | bytearray | memoryview)
    return [record.value for batch in split_batches(records) for record in read_records(batch)]
