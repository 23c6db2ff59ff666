"""A log goes from an Apache Kafka broker to ours and back, with the same files."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base.clock import SystemClock
from appliance.base.disk import SystemDisk
from appliance.base.ids import TopicPartition as Partition
from appliance.log.checkpoints import read_partition_metadata
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch, parse_header
from tests.support.kafka_peer import KafkaPeer
from tests.support.logs import append, config_of, read_all

pytestmark = pytest.mark.java

TOPIC = "there-and-back"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 400
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def kafka_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data of a stopped broker: a topic in five codecs, with a committed and an aborted transaction."""
    folder = tmp_path_factory.mktemp("kafka") / "peer"
    with KafkaPeer(folder=folder) as peer:
        admin = AdminClient({"bootstrap.servers": peer.bootstrap_servers})
        topic = NewTopic(TOPIC, 1, 1, config={"index.interval.bytes": "1000", "segment.bytes": str(1 << 20)})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        for codec in CODECS:
            produce(peer.bootstrap_servers, codec)
        transact(peer.bootstrap_servers, commit=True)
        transact(peer.bootstrap_servers, commit=False)
        produce(peer.bootstrap_servers, "none", size=3_000)
    yield folder
    shutil.rmtree(folder)


def produce(bootstrap_servers: str, codec: str, size: int = 300) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 50,
        }
    )
    for number in range(PER_CODEC):
        value = f"{codec} {number} ".encode() + uuid.uuid4().bytes * (size // 16)
        producer.produce(TOPIC, value, key=str(number), headers=[("codec", codec)])
        if number % 50 == 49:
            assert producer.flush(TIMEOUT_S) == 0


def transact(bootstrap_servers: str, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"transaction-{commit}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(TOPIC, f"transaction {commit} {number}".encode())
    producer.flush(TIMEOUT_S)
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def open_copy(kafka_folder: Path, target: Path, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    folder = target / f"{TOPIC}-0"
    if not folder.exists():
        shutil.copytree(kafka_folder / "data" / f"{TOPIC}-0", folder)
    topic_id = read_partition_metadata(SystemDisk(), folder / "partition.metadata")
    assert topic_id is not None
    return PartitionLog(
        folder,
        Partition(TOPIC, 0),
        topic_id,
        config_of(segment_bytes=1 << 20, index_interval_bytes=1000),
        SystemClock(),
        SystemDisk(),
        clean=clean,
        recovery_point=recovery_point,
    )


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_of_apache_kafka_is_opened_and_read(kafka_folder: Path, tmp_path: Path, clean: bool) -> None:
    log = open_copy(kafka_folder, tmp_path, clean=clean)
    records = read_all(log, max_bytes=100_000)
    assert [record.offset for record in records] == list(range(log.log_end_offset))
    assert len(records) == (len(CODECS) + 1) * PER_CODEC + 40 + 2
    assert {dict(record.headers).get("codec") for record in records} >= {codec.encode() for codec in CODECS}
    assert len(log.segments) == 2
    codecs = {header.codec for batch in log.batches(0) if (header := check_batch(batch))}
    assert codecs == {0, 1, 2, 3, 4}
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)
    # The marker of the transaction before may lie between its records: its commit was answered before that was written.
    headers = [parse_header(batch) for batch in log.batches(0)]
    own = [header for header in headers if header.producer_id == aborted.producer_id]
    assert own[0].base_offset == aborted.first_offset
    assert sum(header.record_count for header in own[:-1]) == 20
    assert own[-1].is_control and own[-1].base_offset == aborted.last_offset
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert len(log.producer_state) == len(CODECS) + 1 + 2
    middle = records[1_000]
    found = log.offset_for_timestamp(middle.timestamp)
    assert found is not None and found.timestamp == middle.timestamp and found.offset <= middle.offset


def test_what_we_build_of_its_log_are_the_files_that_it_built(kafka_folder: Path, tmp_path: Path) -> None:
    original = kafka_folder / "data" / f"{TOPIC}-0"
    log = open_copy(kafka_folder, tmp_path, clean=True)
    end = log.log_end_offset
    log.close(clean=False)
    for name in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint"):
        for path in log.directory.glob(name):
            path.unlink()
    log = open_copy(kafka_folder, tmp_path, clean=False)
    assert log.log_end_offset == end
    log.close()
    compared = 0
    for path in original.iterdir():
        if path.suffix == ".snapshot":
            continue  # entries come in another order, and with the time of the append instead of the record's
        if path.stat().st_size:
            assert (log.directory / path.name).read_bytes() == path.read_bytes(), path.name
            compared += 1
    assert compared >= 2 * 3 + 2


def test_apache_kafka_goes_on_with_a_log_that_we_appended_to(kafka_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "peer"
    shutil.copytree(kafka_folder, folder)
    log = open_copy(folder, folder / "data", clean=True)
    first = log.log_end_offset
    epoch = log.leader_epochs.latest
    for number in range(2_000):
        append(log, b"ours %d " % number * 150, leader_epoch=epoch, codec=number % 5, now_ms=SystemClock().now_ms())
    expected = [record.value for record in read_all(log, first, max_bytes=100_000)]
    assert len(log.segments) > 2
    log.close()

    with KafkaPeer(folder=folder) as peer:
        consumer = Consumer(
            {
                "bootstrap.servers": peer.bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "check.crcs": True,
            }
        )
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), TIMEOUT_S) == (0, log.log_end_offset)
        consumer.assign([TopicPartition(TOPIC, 0, first)])
        got: list[bytes | None] = []
        while len(got) < len(expected):
            messages = consumer.consume(500, TIMEOUT_S)
            assert messages and not any(message.error() for message in messages)
            got += [message.value() for message in messages]
        consumer.close()
        assert got == expected
        produce(peer.bootstrap_servers, "zstd")
    text = (folder / "server.log").read_text()
    assert "corrupt" not in text.lower() and "Rebuilding" not in text
    again = open_copy(folder, folder / "data", clean=True)
    assert again.log_end_offset == log.log_end_offset + PER_CODEC
