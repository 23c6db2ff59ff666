"""A compacted topic as a map: how the runtime keeps configs and source offsets, in Kafka Connect's own layout."""

from __future__ import annotations

import time

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.partitioner import partition_for_key
from appliance.client.results import NewTopic
from appliance.records.batch import parse_header, split_batches
from appliance.records.builder import build_batch
from appliance.records.reader import Record, read_records

EARLIEST, LATEST = -2, -1
EMPTY_FETCHES_MAX = 20
CREATE_WAIT_S = 0.1
CREATE_TRIES = 50


def ensure_topic(client: Client, name: str, partitions: int, configs: dict[str, str] | None = None) -> int:
    """Make a topic unless it is there; returns how many partitions it has.

    Raises:
        KafkaError: it can be neither made nor found.
    """
    for _ in range(CREATE_TRIES):
        topic = client.metadata([name]).topics[name]
        if topic.error == ErrorCode.NONE and all(part.leader >= 0 for part in topic.partitions.values()):
            return len(topic.partitions)
        if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            try:
                client.create_topics([NewTopic(name, num_partitions=partitions, configs=configs or {})])
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        elif topic.error != ErrorCode.NONE and not topic.error.retriable:
            raise KafkaError(topic.error, f"topic {name}")
        time.sleep(CREATE_WAIT_S)
    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name} has no leaders")


def read_all(client: Client, tp: TopicPartition, start: int, end: int) -> list[Record]:
    """All records of [start, end), control records left out.

    Raises:
        KafkaError: reading failed, or nothing comes though more was promised.
    """
    records: list[Record] = []
    cursor, empty = start, 0
    while cursor < end:
        fetched = client.fetch(tp, cursor, max_wait_ms=500)
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start = client.list_offsets({tp: EARLIEST})[tp].offset
            if log_start > cursor:
                cursor = log_start
                continue
        if fetched.error != ErrorCode.NONE:
            raise KafkaError(fetched.error, f"Fetch of {tp} at {cursor}")
        before = cursor
        for batch in split_batches(memoryview(fetched.records)):
            header = parse_header(batch)
            if not header.is_control:
                records += [record for record in read_records(batch) if before <= record.offset < end]
            cursor = max(cursor, header.next_offset)
        empty = 0 if cursor > before else empty + 1
        if empty >= EMPTY_FETCHES_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{tp}: nothing comes at offset {cursor} of {end}")
    return records


class CompactedTopic:
    """The newest value of each key. One writer at a time for each key."""

    def __init__(self, client: Client, name: str, partitions: int) -> None:
        self._client = client
        self.name = name
        self._partitions = ensure_topic(client, name, partitions, {"cleanup.policy": "compact"})

    def load(self) -> dict[bytes, bytes]:
        """All keys that have a value. Raises: KafkaError."""
        tps = [TopicPartition(self.name, number) for number in range(self._partitions)]
        starts = self._client.list_offsets(dict.fromkeys(tps, EARLIEST))
        ends = self._client.list_offsets(dict.fromkeys(tps, LATEST))
        found: dict[bytes, bytes] = {}
        for tp in tps:
            for record in read_all(self._client, tp, starts[tp].offset, ends[tp].offset):
                if record.key is None:
                    continue
                if record.value is None:
                    found.pop(record.key, None)
                else:
                    found[record.key] = record.value
        return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a key's new value (None removes it); returns once it is durable. Raises: KafkaError."""
        batch = build_batch([(time.time_ns() // 1_000_000, key, value, [])])
        self._client.produce(TopicPartition(self.name, partition_for_key(key, self._partitions)), batch)
