"""Cases about records: produce, fetch, offsets in logs, deletion, leader epochs, producer ids."""

from __future__ import annotations

from typing import Any

from appliance.records.builder import build_batch
from appliance.wire.api import ApiKey
from appliance.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from appliance.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from appliance.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.differential.sides import CreatedTopic, Side, case
from tests.support.differential.topics import NO_TOPIC

LONG_AGO_MS = 1_600_000_000_000
IDS_SINCE = 13


def batch(*values: bytes, key: bytes | None = b"k", **fields: Any) -> bytes:
    records = [(LONG_AGO_MS + number, key, value, []) for number, value in enumerate(values)]
    return build_batch(records, **fields)


def produced(topic: CreatedTopic, partition: int, records: bytes | None, **fields: Any) -> ProduceRequest:
    data = TopicProduceData(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=records)],
    )
    return ProduceRequest(
        acks=fields.pop("acks", -1), timeout_ms=fields.pop("timeout_ms", 10_000), topic_data=[data], **fields
    )


def damaged(records: bytes, at: int, value: int) -> bytes:
    changed = bytearray(records)
    changed[at] = value
    return bytes(changed)


@case(ApiKey.PRODUCE, versions=range(3, 14))
def produce(side: Side) -> None:
    made = side.new_topic("t", partitions=2, retention_ms="-1")
    missing = CreatedTopic(side.named("missing"), NO_TOPIC)
    good = batch(b"one", b"two")

    def ask(label: str, topic: CreatedTopic, partition: int, records: bytes | None, **fields: Any) -> None:
        side.ask(label, produced(topic, partition, records, **fields))

    ask("acks all", made, 0, good)
    ask("acks one", made, 0, good, acks=1)
    ask("acks two", made, 0, good, acks=2)
    ask("acks minus two", made, 0, good, acks=-2)
    ask("a partition that is missing", made, 7, good)
    ask("a negative partition", made, -1, good)
    ask("a topic that is missing", missing, 0, good)
    ask("empty records", made, 0, b"")
    ask("a crc that is wrong", made, 0, damaged(good, len(good) - 1, 0xFF))
    ask("magic 1", made, 0, damaged(good, 16, 1))
    ask("magic 3", made, 0, damaged(good, 16, 3))
    ask("cut off", made, 0, good[:-3])
    ask("two batches", made, 0, good + batch(b"three"))
    ask("too large", made, 0, batch(b"x" * 1_100_000))
    ask("no topics", missing, 0, good) if False else side.ask("no topics", ProduceRequest(acks=-1, timeout_ms=1_000))
    none = TopicProduceData(name=made.name, topic_id=made.topic_id, partition_data=[])
    side.ask("no partitions", ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[none]))
    two = TopicProduceData(
        name=made.name,
        topic_id=made.topic_id,
        partition_data=[PartitionProduceData(index=index, records=good) for index in (0, 9, 1)],
    )
    side.ask("good and bad", ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[two]))
    compacted = side.new_topic("compacted", cleanup_policy="compact")
    ask("keyless on compacted", compacted, 0, batch(b"v", b"w", key=None))
    ask("keyed on compacted", compacted, 0, good)
    stamped = side.new_topic("stamped", retention_ms="-1", message_timestamp_type="LogAppendTime")
    ask("the log's own time", stamped, 0, good)
    bounded = side.new_topic("bounded", retention_ms="-1", message_timestamp_before_max_ms="1000")
    ask("too old", bounded, 0, good)
    few = side.new_topic("few", retention_ms="-1", min_insync_replicas="2")
    ask("too few in sync, all", few, 0, good)
    ask("too few in sync, one", few, 0, good, acks=1)
    idempotent = {"producer_id": side.set_up(InitProducerIdRequest(transactional_id=None)).producer_id}
    for label, epoch, sequence in (
        ("first of a producer", 0, 0),
        ("again", 0, 0),
        ("a gap", 0, 9),
        ("second", 0, 2),
        ("older duplicate", 0, 0),
        ("newer epoch", 1, 0),
        ("older epoch", 0, 4),
        ("newer epoch that does not begin", 2, 5),
    ):
        ask(label, made, 0, batch(b"a", b"b", producer_epoch=epoch, base_sequence=sequence, **idempotent))
    ask("an unknown producer in the middle", made, 1, batch(b"a", producer_epoch=0, base_sequence=5, **idempotent))
    ask("transactional without an id", made, 1, batch(b"a", producer_epoch=3, base_sequence=0, transactional=True,
        **idempotent))  # fmt: skip


@case(ApiKey.FETCH)
def fetch(side: Side) -> None:
    made = side.new_topic("t", partitions=2, retention_ms="-1")
    missing = CreatedTopic(side.named("missing"), NO_TOPIC)
    for _ in range(3):
        side.set_up(produced(made, 0, batch(b"one", b"two")), 9)

    def wanted(topic: CreatedTopic, *offsets: tuple[int, int], **fields: Any) -> FetchTopic:
        rows = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
            for number, offset in offsets
        ]
        return FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=rows)

    def ask(label: str, *topics: FetchTopic, **fields: Any) -> Any:
        given = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, **fields}
        return side.ask(label, FetchRequest(topics=list(topics), **given))

    ask("from the start", wanted(made, (0, 0)))
    ask("from the middle of a batch", wanted(made, (0, 3)))
    ask("at the end", wanted(made, (0, 6)))
    ask("behind the end", wanted(made, (0, 7)))
    ask("before the start", wanted(made, (0, -1)))
    ask("an empty partition", wanted(made, (1, 0)))
    ask("two partitions", wanted(made, (0, 0), (1, 0)))
    ask("a partition that is missing", wanted(made, (7, 0)))
    ask("a topic that is missing", wanted(missing, (0, 0)))
    ask("good and bad", wanted(missing, (0, 0)), wanted(made, (0, 0), (7, 0)))
    ask("committed only", wanted(made, (0, 0)), isolation_level=1)
    ask("one byte", wanted(made, (0, 0)), max_bytes=1)
    ask("one byte of a partition", FetchTopic(
        topic=made.name,
        topic_id=made.topic_id,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
    ))  # fmt: skip
    ask("nothing")
    if side.version >= 9:
        ask("the current epoch", wanted(made, (0, 0), current_leader_epoch=0))
        ask("an epoch to come", wanted(made, (0, 0), current_leader_epoch=9))
    if side.version >= 12:
        ask("read in this epoch", wanted(made, (0, 2), last_fetched_epoch=0))
        ask("read in an epoch to come", wanted(made, (0, 2), last_fetched_epoch=3))
        ask("read behind the end", wanted(made, (0, 9), last_fetched_epoch=0))
    if side.version < 7:
        return
    opened = ask("a session begins", wanted(made, (0, 0), (1, 0)), session_epoch=0)
    session = opened.session_id
    ask("nothing is new", session_id=session, session_epoch=1) if False else None
    ask("goes on from the end", wanted(made, (0, 6)), session_id=session, session_epoch=1)
    side.set_up(produced(made, 1, batch(b"new")), 9)
    ask("something is new", session_id=session, session_epoch=2)
    forgotten = ForgottenTopic(topic=made.name, topic_id=made.topic_id, partitions=[1])
    ask("one is forgotten", session_id=session, session_epoch=3, forgotten_topics_data=[forgotten])
    ask("a partition that is missing joins", wanted(made, (5, 0)), session_id=session, session_epoch=4)
    ask("a topic that is missing joins", wanted(missing, (0, 0)), session_id=session, session_epoch=5)
    ask("an epoch that is wrong", session_id=session, session_epoch=9)
    ask("a session that nobody knows", session_id=session ^ 1, session_epoch=1)
    ask("ends the session", wanted(made, (0, 0)), session_id=session, session_epoch=-1)
    ask("the session is over", session_id=session, session_epoch=6)


@case(ApiKey.LIST_OFFSETS)
def list_offsets(side: Side) -> None:
    made = side.new_topic("t", partitions=2, retention_ms="-1")
    for _ in range(2):
        side.set_up(produced(made, 0, batch(b"one", b"two", b"three")), 9)

    def ask(label: str, name: str, partition: int, timestamp: int, **fields: Any) -> None:
        row = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=fields.pop("epoch", -1)
        )
        fields.setdefault("replica_id", -1)
        side.ask(label, ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[row])], **fields))

    for partition, what in ((0, "full"), (1, "empty")):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, LONG_AGO_MS + 1, LONG_AGO_MS + 9):
            ask(f"{what}, {timestamp}", made.name, partition, timestamp)
    ask("a partition that is missing", made.name, 9, -1)
    ask("a topic that is missing", side.named("missing"), 0, -1)
    ask("an illegal topic", "a/b", 0, -1)
    ask("a debugger asks", made.name, 0, -1, replica_id=-2)
    ask("a follower that is none asks", made.name, 0, -1, replica_id=5)
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1) for _ in range(2)]
    side.ask("twice", ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=made.name, partitions=twice)]))
    side.ask("nothing", ListOffsetsRequest(replica_id=-1))
    if side.version >= 2:
        ask("committed only", made.name, 0, -1, isolation_level=1)
    if side.version >= 4:
        ask("the current epoch", made.name, 0, -1, epoch=0)
        ask("an epoch to come", made.name, 0, -1, epoch=5)
        ask("an epoch to come, by time", made.name, 0, LONG_AGO_MS, epoch=5)


@case(ApiKey.DELETE_RECORDS)
def delete_records(side: Side) -> None:
    made = side.new_topic("t", partitions=2, retention_ms="-1")
    side.set_up(produced(made, 0, batch(b"one", b"two", b"three", b"four")), 9)

    def ask(label: str, name: str, partition: int, offset: int) -> None:
        row = DeleteRecordsPartition(partition_index=partition, offset=offset)
        side.ask(label, DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[row])], timeout_ms=10_000
        ))  # fmt: skip

    ask("some", made.name, 0, 2)
    ask("less than is gone", made.name, 0, 1)
    ask("behind the end", made.name, 0, 9)
    ask("a negative offset", made.name, 0, -2)
    ask("all", made.name, 0, -1)
    ask("of an empty partition", made.name, 1, -1)
    ask("a partition that is missing", made.name, 9, 0)
    ask("a topic that is missing", side.named("missing"), 0, 0)
    ask("an internal topic", "__consumer_offsets", 0, 0)
    compacted = side.new_topic("compacted", cleanup_policy="compact")
    ask("of a compacted topic", compacted.name, 0, 0)
    side.ask("nothing", DeleteRecordsRequest(timeout_ms=1_000))


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(side: Side) -> None:
    made = side.new_topic("t", partitions=2, retention_ms="-1")
    side.set_up(produced(made, 0, batch(b"one", b"two")), 9)

    def ask(label: str, name: str, partition: int, epoch: int, current: int = -1, **fields: Any) -> None:
        row = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
        if side.version >= 3:
            fields.setdefault("replica_id", -1)
        side.ask(label, OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=[row])], **fields
        ))  # fmt: skip

    ask("the current one", made.name, 0, 0)
    ask("the current one, known", made.name, 0, 0, 0)
    ask("one to come", made.name, 0, 5)
    ask("one to come is current", made.name, 0, 0, 5)
    ask("none", made.name, 0, -1)
    ask("of an empty partition", made.name, 1, 0)
    ask("a partition that is missing", made.name, 9, 0)
    ask("a topic that is missing", side.named("missing"), 0, 0)
    side.ask("nothing", OffsetForLeaderEpochRequest(replica_id=-1))


@case(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(side: Side) -> None:
    def ask(label: str, name: str | None, timeout_ms: int = 60_000, **fields: Any) -> Any:
        return side.ask(label, InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, **fields
        ))  # fmt: skip

    ask("idempotent", None)
    ask("idempotent, no time", None, 0)
    side.find_coordinator(side.named("x"), 1)
    first = ask("transactional", side.named("x"))
    ask("transactional again", side.named("x"))
    ask("an empty id", "")
    ask("no time", side.named("y"), 0)
    ask("negative time", side.named("y"), -1)
    ask("too much time", side.named("y"), 900_001)
    if side.version >= 3:
        ids = {"producer_id": first.producer_id, "producer_epoch": 0}
        ask("goes on with an old epoch", side.named("x"), **ids)
        ask("goes on", side.named("x"), producer_id=first.producer_id, producer_epoch=1)
        ask("goes on with a foreign id", side.named("x"), producer_id=first.producer_id + 9, producer_epoch=1)
        ask("goes on with half", side.named("x"), producer_id=first.producer_id, producer_epoch=-1)
        ask("goes on with the other half", side.named("x"), producer_id=-1, producer_epoch=1)
        ask("idempotent with an id", None, producer_id=5, producer_epoch=1)
        ask("goes on unknown", side.named("z"), producer_id=first.producer_id + 9, producer_epoch=1)


@case(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(side: Side) -> None:
    made = side.new_topic("t", partitions=2, retention_ms="-1")
    producer_id = side.set_up(InitProducerIdRequest(transactional_id=None)).producer_id
    side.set_up(produced(made, 0, batch(b"a", b"b", producer_id=producer_id, producer_epoch=0, base_sequence=0)), 9)

    def ask(label: str, name: str, *partitions: int) -> None:
        side.ask(label, DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[*partitions])]))

    ask("one producer and none", made.name, 0, 1)
    ask("a partition that is missing", made.name, 9)
    ask("a topic that is missing", side.named("missing"), 0)
    ask("an illegal topic", "a/b", 0)
    ask("no partitions", made.name)
    side.ask("nothing", DescribeProducersRequest())
