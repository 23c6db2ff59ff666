"""Hundreds of small objects in a bucket become a few, while stock readers begin anew all the time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from appliance.tiering.names import parse_folder, parse_name
from appliance.tiering.s3 import S3Store
from appliance.tiering.verify import TierReport, verify_tier
from tests.support.moto_server import MotoServer
from tests.support.replicated import ReplicatedCluster, until

TOPIC = "trickle"
BATCHES = 160
PER_BATCH = 3
PAUSE_S = 0.03
PROPERTIES = {
    "tiering.task.interval.ms": "20",
    "tiering.delete.delay.ms": "300",
    "tiering.merge.min.age.ms": "0",
    "tiering.manifest.cache.max.age.ms": "0",
    "log.retention.check.interval.ms": "100",
}
CONFIGS = {
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "tiering.max.lag.ms": "60",
    "file.delete.delay.ms": "0",
}


class Readers:
    """Read the topic from its beginning again and again; each read must find what was there when it began."""

    def __init__(self, servers: str) -> None:
        self.reads = 0
        self.failed: list[str] = []
        self._servers = servers
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                committed_values(self._servers)
            except (AssertionError, KafkaException) as error:
                self.failed.append(str(error))
            self.reads += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)


def committed_values(servers: str) -> list[bytes]:
    """All committed values from the first to the last; they must be without a gap and without a double."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "r", "auto.offset.reset": "error", "log_level": 2})
    place = TopicPartition(TOPIC, 0, 0)
    try:
        end = consumer.get_watermark_offsets(place, timeout=30)[1]
        consumer.assign([place])
        values: list[bytes] = []

        def more() -> bool:
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                values.append(message.value())
            return end == 0 or int(consumer.position([place])[0].offset) >= end

        until(more, "all records")
    finally:
        consumer.close()
    assert values == [b"%06d" % number for number in range(len(values))]
    return values


def produce(servers: str) -> None:
    """A trickle of batches; behind each one a transaction that is aborted."""
    options = {"bootstrap.servers": servers, "linger.ms": 0, "log_level": 2}
    producer, aborting = Producer(options), Producer({**options, "transactional.id": "aborts"})
    aborting.init_transactions(30)
    for number in range(BATCHES):
        for n in range(PER_BATCH):
            producer.produce(TOPIC, b"%06d" % (number * PER_BATCH + n))
        assert producer.flush(30) == 0
        if number % 10 == 5:
            aborting.begin_transaction()
            aborting.produce(TOPIC, b"never to be seen")
            assert aborting.flush(30) == 0
            aborting.abort_transaction(30)
        time.sleep(PAUSE_S)


def test_small_objects_become_few_and_readers_notice_nothing(
    tmp_path: Path, moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    bucket = moto.bucket()
    store = S3Store(bucket, "", moto.client_options)
    with ReplicatedCluster(tmp_path, brokers=1, properties=PROPERTIES, store=f"s3://{bucket}") as cluster:
        cluster.create(TOPIC, 1, 1, **CONFIGS)
        servers = cluster.bootstrap_servers
        readers = Readers(servers)
        produce(servers)
        report = TierReport()

        def is_at_rest() -> bool:
            nonlocal report
            report = verify_tier(store, read_data=False)
            one = report.partitions[0] if report.partitions else None
            return one is not None and report.is_whole and not one.in_flight and not one.garbage and one.segments < 16

        until(is_at_rest, "a few objects")
        readers.stop()
        assert readers.failed == [] and readers.reads > 1
        assert len(committed_values(servers)) == BATCHES * PER_BATCH
    assert verify_tier(store).problems == [], "with every byte read"
    names = [parse_name(place[2]) for info in store.list("tier/") if (place := parse_folder(info.name)) is not None]
    assert max(name.seq for name in names if name is not None) > 30, "there were many before"
