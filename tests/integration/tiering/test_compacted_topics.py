"""A compacted topic on a whole broker: the object store has what compaction left, and brings it back."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.records.reader import read_records
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.manifest import Manifest, SegmentItem
from appliance.tiering.reader import TierReader
from appliance.tiering.verify import read_manifests, verify_tier
from tests.support.broker import RunningCluster
from tests.support.replicated import until
from tests.support.total_loss import cluster_over, lose_disks, tier

TOPIC = "accounts"
KEYS, TURNS = 60, 6
QUICK = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.scheduler.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "restore.offset.gap": "1000",
}
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "1048576",
    "segment.ms": "100",
}
State = dict[bytes, bytes | None]


def write(cluster: RunningCluster, rows: State) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})
    for key, value in rows.items():
        producer.produce(TOPIC, value, key=key, partition=0)
    assert producer.flush(60) == 0


def read(cluster: RunningCluster) -> list[tuple[int, bytes, bytes | None]]:
    """Every record; what lies behind the last one, such as the gap of a restored log, has none."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "log_level": 2}
    consumer = Consumer({**config, "enable.partition.eof": True, "auto.offset.reset": "error"})
    first, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    consumer.assign([TopicPartition(TOPIC, 0, first)])
    found: list[tuple[int, bytes, bytes | None]] = []

    def at_the_end() -> bool:
        for message in consumer.consume(500, 0.3):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return True
            found.append((message.offset(), message.key(), message.value()))
        return False

    until(at_the_end, "the end of the partition")
    consumer.close()
    return found


def manifest_of(store: DirectoryStore) -> Manifest:
    return next(manifest for manifest in read_manifests(store) if manifest.topic == TOPIC)


def in_tier(store: DirectoryStore) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a reader of the object store alone finds."""
    manifest = manifest_of(store)
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    reader = TierReader(store)
    for piece in reader.read_range(manifest.topic_id, 0, manifest.start_offset, manifest.end_offset):
        position, data = 0, piece.records
        while position < len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            rows += [(row.offset, row.key, row.value) for row in read_records(data[position : position + size])]
            position += size
    return rows


def state_of(rows: list[tuple[int, bytes | None, bytes | None]]) -> State:
    newest = {key or b"": value for _, key, value in rows}
    return {key: value for key, value in newest.items() if value is not None}


def is_compacted(store: DirectoryStore, expected: State) -> bool:
    """Whether the tier has everything, and little else."""
    manifest = manifest_of(store)
    cleaned = any(isinstance(item, SegmentItem) and item.cleaned > 0 for item in manifest.items)
    rows = in_tier(store)
    return cleaned and state_of(rows) == expected and len(rows) < 3 * KEYS


def test_the_tier_has_what_compaction_left_and_brings_it_back(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    newest: State = {}
    with cluster_over(tmp_path / "first", bucket, 1, QUICK) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(20)
        store = DirectoryStore(bucket)
        for turn in range(TURNS):
            rows: State = {b"k%d" % key: b"%d-%d" % (turn, key) * 200 for key in range(KEYS)}
            write(cluster, rows)
            newest |= rows
        write(cluster, {b"k0": None, b"k1": None})
        del newest[b"k0"], newest[b"k1"]

        def follows() -> bool:
            # An active segment is neither tiered nor compacted: something new closes it.
            write(cluster, {b"last": b"1"})
            return any(m.topic == TOPIC for m in read_manifests(store)) and is_compacted(store, newest)

        newest[b"last"] = b"1"
        until(follows, "the tier to follow compaction")
        assert state_of(read(cluster)) == newest
        until(lambda: verify_tier(store, topics=[TOPIC]).is_whole, "the tier to be whole")
    lose_disks(tmp_path / "first")

    with cluster_over(tmp_path / "second", bucket, 1, QUICK) as cluster:
        code, found = tier("restore", bucket.as_uri(), "--bootstrap-server", cluster.bootstrap_servers)
        assert code == 0, found
        assert state_of(read(cluster)) == newest
        write(cluster, {b"k2": None, b"k3": b"after"})
        newest.pop(b"k2")
        newest[b"k3"] = b"after"
        assert state_of(read(cluster)) == newest
        until(lambda: verify_tier(store, topics=[TOPIC]).is_whole, "the tier to be whole")
