"""Apache Kafka and we clean the same files, twice: the same records, batches and aborted transactions are left."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from appliance.base.clock import SystemClock
from appliance.base.disk import SystemDisk
from appliance.base.ids import TopicPartition
from appliance.log.checkpoints import CorruptCheckpoint, read_offsets, read_partition_metadata
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import CODEC_MASK, BatchHeader, check_batch
from appliance.records.reader import Record, read_records
from tests.support.compaction import clean
from tests.support.kafka_jars import java_command
from tests.support.kafka_peer import KafkaPeer
from tests.support.logs import config_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TOPIC = "cleaned"
TIMEOUT_S = 40.0
DELETE_RETENTION_MS = 2_000
SEGMENT_BYTES = 20_000
NEVER, ALWAYS = "1.0", "0.0001"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPLAINTS = r"mismatch|corrupt|exception|error|out of order|invalid bytes|not found|missing"


class Cleaned(NamedTuple):
    """The same log before a round, and after Apache Kafka's."""

    before: Path
    after: Path


class Load:
    """Idempotent and transactional producers, all codecs, tombstones, keys short and long, headers."""

    def __init__(self) -> None:
        self._random = random.Random(7)

    def run(self, bootstrap_servers: str) -> None:
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "compression.type": codec,
                    "enable.idempotence": codec != "gzip",
                    "batch.num.messages": 20,
                    "linger.ms": 5,
                }
            )
            self._produce(producer, 300)
            assert producer.flush(TIMEOUT_S) == 0
        for name, outcomes in (("a", "CACA"), ("b", "AAC"), ("c", "A")):
            producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name})
            producer.init_transactions(TIMEOUT_S)
            for outcome in outcomes:
                producer.begin_transaction()
                self._produce(producer, 40)
                producer.flush(TIMEOUT_S)
                if outcome == "C":
                    producer.commit_transaction(TIMEOUT_S)
                else:
                    producer.abort_transaction(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        for _ in range(60):
            # What is left over stays in the active segment.
            producer.produce(TOPIC, self._random.randbytes(1_000), key=b"filler")
            producer.flush(TIMEOUT_S)

    def _produce(self, producer: Producer, count: int) -> None:
        source = self._random
        for n in range(count):
            key = b"key-%d" % source.randrange(120)
            if source.random() < 0.1:
                key *= 30
            value = None if source.random() < 0.15 else source.randbytes(source.randint(0, 200))
            headers = [("n", b"%d" % n)] if source.random() < 0.3 else []
            producer.produce(TOPIC, value, key=key, headers=headers)
            if n % 40 == 39:
                producer.flush(TIMEOUT_S)


def set_ratio(bootstrap_servers: str, ratio: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)


def active_base(folder: Path) -> int:
    return max(int(path.stem) for path in folder.glob("*.log"))


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cleaned]]:
    """Apache Kafka cleans, gets more records, waits until tombstones may go, and cleans again."""
    home = tmp_path_factory.mktemp("kafka")
    folder = home / "peer"
    data = folder / "data" / f"{TOPIC}-0"
    load = Load()
    found: list[Cleaned] = []
    with KafkaPeer(folder=folder, properties={"log.cleaner.backoff.ms": "100"}) as peer:
        servers = peer.bootstrap_servers
        configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": NEVER,
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "index.interval.bytes": "1000",
            "delete.retention.ms": str(DELETE_RETENTION_MS),
            "file.delete.delay.ms": "0",
        }
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(TIMEOUT_S)
        for number in range(2):
            load.run(servers)
            before = copy_of(data, home / f"before-{number}")
            time.sleep(DELETE_RETENTION_MS / 1_000)
            wanted = active_base(data)
            set_ratio(servers, ALWAYS)
            deadline = time.monotonic() + TIMEOUT_S
            checkpoint = folder / "data" / "cleaner-offset-checkpoint"
            while cleaned_to(checkpoint) < wanted:
                assert time.monotonic() < deadline, f"{cleaned_to(checkpoint)} of {wanted}: {peer.log_text[-2000:]}"
                time.sleep(0.1)
            set_ratio(servers, NEVER)
            found.append(Cleaned(before, copy_of(data, home / f"after-{number}")))
    yield found
    shutil.rmtree(home)


def copy_of(data: Path, target: Path) -> Path:
    """A copy of the log while nobody writes."""
    shutil.copytree(data, target / f"{TOPIC}-0", ignore=shutil.ignore_patterns("*.deleted"))
    return target


def cleaned_to(checkpoint: Path) -> int:
    try:
        return read_offsets(SystemDisk(), checkpoint).get(TopicPartition(TOPIC, 0), -1)
    except CorruptCheckpoint:
        # Apache Kafka makes an empty one first.
        return -1


def open_log(folder: Path) -> PartitionLog:
    topic_id = read_partition_metadata(SystemDisk(), folder / f"{TOPIC}-0" / "partition.metadata")
    assert topic_id is not None
    log = PartitionLog(
        folder / f"{TOPIC}-0",
        TopicPartition(TOPIC, 0),
        topic_id,
        config_of(
            cleanup_policy=("compact",),
            segment_bytes=SEGMENT_BYTES,
            index_interval_bytes=1_000,
            delete_retention_ms=DELETE_RETENTION_MS,
            file_delete_delay_ms=0,
        ),
        SystemClock(),
        SystemDisk(),
        clean=True,
    )
    log.flush()
    log.stored_recovery_point = log.recovery_point
    return log


def batches_of(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    return [(check_batch(batch), list(read_records(batch))) for batch in log.batches(log.local_log_start_offset)]


def facts(header: BatchHeader) -> tuple[object, ...]:
    """All but sizes, sums and the time of the horizon, which tells when the round was."""
    return (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.attributes & ~(CODEC_MASK if header.record_count == 0 else 0),
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


@pytest.fixture(scope="module")
def ours(rounds: list[Cleaned]) -> list[PartitionLog]:
    """The logs from before each round, cleaned by us."""
    logs = []
    for each in rounds:
        log = open_log(each.before)
        clean(log, SystemDisk(), SystemClock().now_ms())
        logs.append(log)
    return logs


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_records_are_left(rounds: list[Cleaned], ours: list[PartitionLog], number: int) -> None:
    kafkas = open_log(rounds[number].after)
    theirs = [record for _, records in batches_of(kafkas) for record in records]
    assert [record for _, records in batches_of(ours[number]) for record in records] == theirs
    assert len(theirs) > 200
    assert any(record.value is None for record in theirs)


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_batches_are_left(rounds: list[Cleaned], ours: list[PartitionLog], number: int) -> None:
    kafkas = {facts(header) for header, _ in batches_of(open_log(rounds[number].after))}
    mine = {facts(header) for header, _ in batches_of(ours[number])}
    assert kafkas - mine == set()
    # The end of each segment is marked, where Apache Kafka marks only that of the whole round.
    assert all(fields[-1] == 0 for fields in mine - kafkas)
    assert len(mine - kafkas) <= len(ours[number].segments)


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_segments_and_transactions_are_left(
    rounds: list[Cleaned], ours: list[PartitionLog], number: int
) -> None:
    kafkas = open_log(rounds[number].after)
    log = ours[number]
    assert log.aborted_transactions(0, log.log_end_offset) == kafkas.aborted_transactions(0, kafkas.log_end_offset)
    assert [segment.base_offset for segment in log.segments] == [segment.base_offset for segment in kafkas.segments]
    known = {(key, entry.epoch, entry.last_sequence) for key, entry in log.producer_state.entries.items()}
    assert known == {(key, entry.epoch, entry.last_sequence) for key, entry in kafkas.producer_state.entries.items()}


@pytest.mark.parametrize("number", [0, 1])
def test_kafkas_tool_reads_our_files(ours: list[PartitionLog], number: int) -> None:
    log = ours[number]
    paths = [path for suffix in ("log", "index", "timeindex", "txnindex") for path in log.directory.glob(f"*.{suffix}")]
    wanted = ",".join(str(path) for path in sorted(paths) if path.stat().st_size)
    command = java_command("org.apache.kafka.tools.DumpLogSegments", "--files", wanted, "--deep-iteration")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    # It wonders about holes, and about times of batches that are empty now; at Apache Kafka's own files, too.
    text = re.sub(r"Found timestamp mismatch in :.*\n( +Index timestamp: \d+, log timestamp: -1\n)+", "", text)
    assert not re.search(COMPLAINTS, text, re.I), text[:2000]
    assert text.count("isvalid: true") == len(batches_of(log))
    assert "isvalid: false" not in text
