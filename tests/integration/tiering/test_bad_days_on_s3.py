"""An S3 that stalls, refuses, cuts, answers too late or not at all, while brokers are killed and producers go on.

When it is over nothing is lost, nothing is left over, and the disks have shrunk.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from appliance.tiering.s3 import S3Store
from appliance.tiering.verify import TierReport, verify_tier
from tests.support.chaos import end_of
from tests.support.fault_proxy import FaultProxy
from tests.support.moto_server import MotoServer
from tests.support.replicated import ReplicatedCluster, until

TOPIC = "orders"
PARTITIONS = 2
BAD_S, BAD_MAX_S = 24.0, 120.0
SETTLE_S = 90.0
VALUE_BYTES = 8_000
LOCAL_BYTES_MAX = 3 << 20
"""Of one partition on one broker: the active segment and a little more."""
PROPERTIES = {
    "tiering.task.interval.ms": "50",
    "tiering.upload.timeout.ms": "2000",
    "tiering.retry.backoff.ms": "50",
    "tiering.retry.backoff.max.ms": "500",
    "tiering.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
}
CONFIGS = {
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "min.insync.replicas": "2",
    "tiering.max.lag.ms": "1500",
    "file.delete.delay.ms": "0",
}
FATES = (None, None, None, "503", "lose", "late", "cut", "reset", "stall")


class Load:
    """A producer that goes on until it is told to stop, and knows what was acknowledged."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.acknowledged: set[bytes] = set()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "log_level": 2,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.01):
            for partition in range(PARTITIONS):
                self.send(b"%d-%06d" % (partition, number), partition)
            number += 1

    def send(self, name: bytes, partition: int) -> None:
        def delivered(error: object, message: object) -> None:
            if error is None:
                self.acknowledged.add(name)

        self._producer.produce(TOPIC, name + b" " * VALUE_BYTES, partition=partition, on_delivery=delivered)
        self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        for partition in range(PARTITIONS):
            self.send(b"%d-last" % partition, partition)
        assert self._producer.flush(SETTLE_S) == 0


def values_of(cluster: ReplicatedCluster) -> Counter[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "log_level": 2})
    places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    ends = {place.partition: end_of(consumer, place) for place in places}
    try:
        consumer.assign(places)
        values: Counter[bytes] = Counter()

        def read_more() -> bool:
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                values[message.value().rstrip()] += 1
            at = {place.partition: place.offset for place in consumer.position(places)}
            return all(at[partition] >= end for partition, end in ends.items())

        until(read_more, "all records", SETTLE_S)
        return values
    finally:
        consumer.close()


def local_bytes(cluster: ReplicatedCluster) -> dict[str, int]:
    """Bytes of log files, by broker and partition."""
    return {
        f"{broker_id} {partition}": sum(
            path.stat().st_size
            for path in (cluster.folder / f"broker-{broker_id}" / f"{TOPIC}-{partition}").glob("*.log")
        )
        for broker_id in cluster.brokers
        for partition in range(PARTITIONS)
    }


@pytest.mark.timeout(420)
def test_after_bad_days_the_tier_is_whole_each_record_is_read_once_and_the_disks_have_shrunk(
    tmp_path: Path, moto: MotoServer, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**moto.environment, "AWS_ENDPOINT_URL": proxy.endpoint_url}.items():
        monkeypatch.setenv(name, value)
    bucket = moto.bucket()
    store = S3Store(bucket, "", moto.client_options)
    chance = random.Random(7)
    fates: Counter[str | None] = Counter()
    proxy.stall_s = 3.0

    def bad_day(method: str, path: str) -> str | None:
        if "/tier/" not in path:
            return None
        fate = chance.choice(FATES)
        fates[fate] += 1
        return fate

    with ReplicatedCluster(tmp_path, properties=PROPERTIES, store=f"s3://{bucket}") as cluster:
        cluster.create(TOPIC, PARTITIONS, **CONFIGS)
        load = Load(cluster.bootstrap_servers)
        proxy.rule = bad_day
        begun, kills = time.monotonic(), 0

        def have_been_bad_enough() -> bool:
            """On a busy machine a kill and what follows takes longer than the days are meant to last."""
            return time.monotonic() > begun + BAD_S and kills >= 2 and all(fates[fate] for fate in FATES)

        while not have_been_bad_enough():
            assert time.monotonic() < begun + BAD_MAX_S, (kills, fates)
            victim = cluster.leader(TOPIC, kills % PARTITIONS)
            cluster.kill(victim)
            kills += 1
            time.sleep(2)
            cluster.start(victim)
            cluster.wait_for_isr(TOPIC, 1, 2, 3)
        proxy.rule = lambda method, path: None
        load.stop()

        report = TierReport()

        def is_at_rest() -> bool:
            nonlocal report
            report = verify_tier(store, read_data=False)
            return (
                len(report.partitions) == PARTITIONS
                and report.is_whole
                and not any(one.in_flight or one.garbage for one in report.partitions)
                and sum(one.records for one in report.partitions) >= len(load.acknowledged)
            )

        until(is_at_rest, f"a tier at rest: {report.problems}", SETTLE_S)
        assert verify_tier(store).problems == [], "with every byte read"
        values = values_of(cluster)
        assert load.acknowledged <= set(values), "nothing that was acknowledged is lost"
        assert {value: count for value, count in values.items() if count > 1} == {}, "each record once"
        end = time.monotonic() + SETTLE_S
        while max((sizes := local_bytes(cluster)).values()) > LOCAL_BYTES_MAX:
            assert time.monotonic() < end, f"the disks have not shrunk: {sizes}"
            time.sleep(0.2)
        total = sum(one.size_bytes for one in report.partitions)
        assert total > 4 * LOCAL_BYTES_MAX, "there was something to shrink"
