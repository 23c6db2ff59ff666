"""`appliance topics import` makes topics of what Apache Kafka 4.3 has written; clients read the same from both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base.disk import SystemDisk
from appliance.client.connection import Connection
from appliance.log.foreign import find_logs
from appliance.log.producer_recovery import SNAPSHOT_SUFFIX
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.broker import RunningCluster, running_cluster
from tests.support.compat import CODECS, Server, produce, read_topic, samples
from tests.support.kafka_peer import KafkaPeer
from tests.support.requests import batch_of, list_offset
from tests.support.requests import produce as produce_batch
from tests.support.running import python_environment, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

WAIT_S = 90
MIXED, COMPACTED, DELETED, IDEMPOTENT = "mixed", "compacted.topic", "deleted-from", "idempotent"
CONFIGS = {
    # Some records are as old as 1970.
    MIXED: {"segment.bytes": "1048576", "index.interval.bytes": "1000", "retention.ms": "-1"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "200",
        "delete.retention.ms": "0",
    },
    DELETED: {"segment.bytes": "1048576"},
    IDEMPOTENT: {},
}
OLD = ("--config", "retention.ms=-1")


class Seen(NamedTuple):
    """A record as a client reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: tuple[int, int]


def seen(bootstrap_servers: str, topic: str, partitions: int = 1, isolation: str = "read_uncommitted") -> list[Seen]:
    server = Server(bootstrap_servers, Path(), 1)
    start = {"auto_offset_reset": "earliest", "isolation_level": isolation, "check_crcs": True}
    messages = read_topic(server, topic, partitions, **start)
    return sorted(
        (Seen(m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in messages),
        key=lambda one: one[:2],
    )


def everything(bootstrap_servers: str) -> dict[tuple[str, str], list[Seen]]:
    return {
        (topic, isolation): seen(bootstrap_servers, topic, 2 if topic == MIXED else 1, isolation)
        for topic in CONFIGS
        for isolation in ("read_uncommitted", "read_committed")
    }


class Source(NamedTuple):
    """What a broker of Apache Kafka has left behind, and what its clients read before."""

    data: Path
    read: dict[tuple[str, str], list[Seen]]
    producer_id: int


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("source") / "peer"
    properties = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500"}
    with KafkaPeer(folder=folder, properties=properties) as peer:
        fill(Server(peer.bootstrap_servers, folder, 1))
        producer_id = write_idempotently(peer)
        read = everything(peer.bootstrap_servers)
    yield Source(folder / "data", read, producer_id)
    shutil.rmtree(folder)


def fill(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    topics = [NewTopic(name, 2 if name == MIXED else 1, 1, config=configs) for name, configs in CONFIGS.items()]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    for number, codec in enumerate(CODECS):
        produce(server, MIXED, samples(), number % 2, compression_type=codec, enable_idempotence=True)
        values = [b"%s %d " % (codec.encode(), n) + os.urandom(400) for n in range(2_000)]
        produce(server, MIXED, values, number % 2, compression_type=codec, batch_num_messages=37)
    for outcome in ("commit", "abort", "commit"):
        transact(server, outcome)
    produce(server, MIXED, [b"after the transactions"], 0)

    for attempt in range(6):
        keyed = [one._replace(key=b"k%d" % (n % 5), timestamp=now_ms()) for n, one in enumerate(samples())]
        produce(server, COMPACTED, keyed, compression_type=CODECS[attempt % 5])
    wait_for(lambda: compacted_to(server) < 60, WAIT_S, lambda: f"{compacted_to(server)} records")

    produce(server, DELETED, [b"%d" % n + bytes(3_000) for n in range(1_000)], batch_num_messages=10)
    (future,) = admin.delete_records([TopicPartition(DELETED, 0, 777)]).values()
    assert future.result(WAIT_S).low_watermark == 777


def now_ms() -> int:
    return int(time.time() * 1000)


def compacted_to(server: Server) -> int:
    produce(server, COMPACTED, [samples()[0]._replace(timestamp=now_ms())])  # rolls the segment
    return len(seen(server.bootstrap_servers, COMPACTED))


def transact(server: Server, outcome: str) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": f"t-{outcome}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(30):
        producer.produce(MIXED, f"{outcome} {number}".encode(), partition=number % 2)
    producer.flush(WAIT_S)
    (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)(WAIT_S)


def write_idempotently(peer: KafkaPeer) -> int:
    """Seven batches of one producer, by hand, so that a test can go on with it elsewhere; returns its id."""
    with Connection(peer.host, peer.port, timeout_ms=10_000) as connection:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        producer_id = connection.call(request).producer_id
        topic = CreatableTopicResult(name=IDEMPOTENT)
        for number in range(7):
            batch = numbered(producer_id, number)
            wait_for(lambda batch=batch: not produce_batch(connection, topic, batch, version=9).error_code, WAIT_S)
        return producer_id


def numbered(producer_id: int, number: int, epoch: int = 0) -> bytes:
    return batch_of(b"%d" % number, b"and one", producer_id=producer_id, producer_epoch=epoch, base_sequence=2 * number)


def run_import(*arguments: str | Path, code: int = 0) -> str:
    """What it writes to standard output; to standard error when it has to fail."""
    command = [sys.executable, "-m", "appliance.cli", "topics", "import", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=python_environment(), check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path / "cluster", brokers=2) as running:
        yield running


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_clients_read_is_the_same_and_the_folder_is_not_touched(source: Source, cluster: RunningCluster) -> None:
    before = contents(source.data)
    at = ("-b", cluster.bootstrap_servers)
    run_import(source.data, "--topic", MIXED, *OLD, "--config", "segment.bytes=1048576", *at)
    run_import(source.data / f"{COMPACTED}-0", "--config", "cleanup.policy=compact", *at)
    rows = json.loads(run_import(source.data, "--topic", DELETED, "--format", "json", *OLD, *at))
    run_import(source.data, "--topic", IDEMPOTENT, *OLD, *at)
    assert contents(source.data) == before
    after = everything(cluster.bootstrap_servers)
    for key, expected in source.read.items():
        assert after[key] == expected, key
    assert rows[0] | {"bytes": 0, "folder": ""} == {
        "topic": DELETED,
        "partition": 0,
        "start": 777,
        "end": 1_000,
        "records": rows[0]["records"],
        "bytes": 0,
        "producers": 0,
        "folder": "",
        "imported": True,
    }
    with connected(cluster) as connections:
        starts = [list_offset(one, CreatableTopicResult(name=DELETED), -2) for one in connections]
        assert [one.offset for one in starts if not one.error_code] == [777]
    values = [one.value or b"" for one in after[MIXED, "read_committed"]]
    assert not any(value.startswith(b"abort ") for value in values) and any(v.startswith(b"commit ") for v in values)
    holes = [one.offset for one in after[COMPACTED, "read_uncommitted"]]
    assert len(holes) < holes[-1] + 1, "compaction left holes"


class connected:
    """Connections to all brokers."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.connections = [Connection("127.0.0.1", one.port, timeout_ms=10_000) for one in cluster.brokers.values()]

    def __enter__(self) -> list[Connection]:
        return self.connections

    def __exit__(self, *_: object) -> None:
        for one in self.connections:
            one.close()


def produced(connections: list[Connection], name: str, batch: bytes) -> tuple[int, int]:
    """(error code, base offset), from the leader."""
    answers = [produce_batch(one, CreatableTopicResult(name=name), batch) for one in connections]
    (answer,) = [one for one in answers if one.error_code != 6]
    return answer.error_code, answer.base_offset


def test_an_idempotent_producer_goes_on_where_it_was(source: Source, cluster: RunningCluster) -> None:
    run_import(source.data, "-t", IDEMPOTENT, "--as", "elsewhere", "-b", cluster.bootstrap_servers, *OLD)
    with connected(cluster) as connections:
        for number in range(2, 7):
            assert produced(connections, "elsewhere", numbered(source.producer_id, number)) == (0, 2 * number), "again"
        assert produced(connections, "elsewhere", numbered(source.producer_id, 9)) == (45, -1), "a gap"
        assert produced(connections, "elsewhere", numbered(source.producer_id, 7)) == (0, 14)
        assert produced(connections, "elsewhere", numbered(source.producer_id, 0, epoch=1)) == (0, 16)
        assert produced(connections, "elsewhere", numbered(source.producer_id, 8)) == (47, -1), "an old epoch"


def test_producers_whose_batches_are_gone_are_known_from_the_snapshot(
    source: Source, cluster: RunningCluster, tmp_path: Path
) -> None:
    """As after retention has taken all of a log; the producer may still repeat or go on."""
    folder = tmp_path / "data" / f"{IDEMPOTENT}-0"
    shutil.copytree(source.data / f"{IDEMPOTENT}-0", folder)
    (snapshot,) = [path for path in folder.iterdir() if path.name == f"{14:020}{SNAPSHOT_SUFFIX}"]
    for path in folder.iterdir():
        if path != snapshot:
            path.unlink()
    (folder / f"{14:020}.log").touch()
    run_import(folder, "-b", cluster.bootstrap_servers)
    with connected(cluster) as connections:
        assert produced(connections, IDEMPOTENT, numbered(source.producer_id, 6)) == (0, 12), "again"
        assert produced(connections, IDEMPOTENT, numbered(source.producer_id, 8)) == (45, -1), "a gap"
        assert produced(connections, IDEMPOTENT, numbered(source.producer_id, 7)) == (0, 14)


def test_an_imported_log_outlives_its_broker(source: Source, tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        run_import(source.data, "-t", MIXED, "-b", cluster.bootstrap_servers, *OLD, "-c", "segment.bytes=1048576")
        port = cluster.brokers[1].port
        cluster.brokers[1].stop()
        cluster.start_broker(1, port).wait_until_ready()
        for isolation in ("read_uncommitted", "read_committed"):
            expected = source.read[MIXED, isolation]
            assert seen(cluster.bootstrap_servers, MIXED, 2, isolation) == expected


def test_a_dry_run_needs_no_broker_and_says_what_there_is(source: Source) -> None:
    rows = json.loads(run_import(source.data, "--dry-run", "--format", "json", *OLD))
    assert [(row["topic"], row["partition"]) for row in rows] == [
        (COMPACTED, 0),
        (DELETED, 0),
        (IDEMPOTENT, 0),
        (MIXED, 0),
        (MIXED, 1),
    ]
    assert not any(row["imported"] for row in rows)
    assert rows[2]["records"] == 14 and rows[2]["end"] == 14


def test_what_cannot_be_imported_is_refused_before_anything_happens(
    source: Source, cluster: RunningCluster, tmp_path: Path
) -> None:
    at = ("-b", cluster.bootstrap_servers)

    def copied(name: str, partition: int = 0) -> Path:
        folder = tmp_path / f"copy-{len(list(tmp_path.iterdir()))}" / f"{name}-{partition}"
        shutil.copytree(source.data / folder.name, folder)
        return folder

    damaged = copied(MIXED)
    first = min(damaged.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[1_000] ^= 1
    first.write_bytes(content)
    assert "crc of the batch at offset" in run_import(damaged, *at, *OLD, code=1)
    assert "records that are" in run_import(copied(MIXED), *at, code=1)
    assert "no folder for partitions 0" in run_import(copied(MIXED, 1), *at, *OLD, code=1)
    assert "is neither the folder of a partition" in run_import(tmp_path / "cluster" / "object-store", *at, code=1)
    assert "is no folder" in run_import(tmp_path / "nowhere", *at, code=1)
    assert "no folder of topic nobody" in run_import(source.data, "-t", "nobody", *at, code=1)
    interrupted = copied(COMPACTED)
    (interrupted / f"{0:020}.log.swap").touch()
    assert "compaction was interrupted" in run_import(interrupted, *at, code=1)
    renamed = copied(IDEMPOTENT)
    renamed.rename(renamed.with_name("what"))
    assert "is not named <topic>-<partition>" in run_import(renamed.with_name("what"), *at, code=1)
    run_import(copied(IDEMPOTENT), *at)
    assert f"topic {IDEMPOTENT} exists" in run_import(copied(IDEMPOTENT), *at, code=1)
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics
    assert set(topics) == {IDEMPOTENT}


def test_a_torn_end_is_left_out_after_a_crash_only(source: Source, cluster: RunningCluster, tmp_path: Path) -> None:
    data = tmp_path / "crashed"
    shutil.copytree(source.data / f"{IDEMPOTENT}-0", data / f"{IDEMPOTENT}-0")
    newest = max((data / f"{IDEMPOTENT}-0").glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-5])
    (row,) = json.loads(run_import(data, "--dry-run", "--format", "json"))
    assert row["end"] == 12
    shutil.copy(source.data / ".kafka_cleanshutdown", data)
    assert "no whole batch at position" in run_import(data, "--dry-run", code=1)


def test_a_running_broker_is_left_alone(kafka_peer: KafkaPeer) -> None:
    with Connection(kafka_peer.host, kafka_peer.port, timeout_ms=10_000) as connection:
        name = f"busy-{os.getpid()}"
        NewTopic(name, 1, 1)
        admin = AdminClient({"bootstrap.servers": kafka_peer.bootstrap_servers})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)
        wait_for(
            lambda: not produce_batch(connection, CreatableTopicResult(name=name), batch_of(b"x")).error_code, WAIT_S
        )
    assert "a broker is running on" in run_import(kafka_peer.folder / "data", "-t", name, "--dry-run", code=1)


def test_open_transactions_are_named_and_may_be_aborted(cluster: RunningCluster, tmp_path: Path) -> None:
    folder = tmp_path / "source" / "peer"
    with KafkaPeer(folder=folder) as peer:
        server = Server(peer.bootstrap_servers, folder, 1)
        topic = "left-open"
        admin = AdminClient({"bootstrap.servers": peer.bootstrap_servers})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
        produce(server, topic, [b"before"])
        producer = Producer({"bootstrap.servers": peer.bootstrap_servers, "transactional.id": "open"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(WAIT_S)
        produce(server, topic, [b"after"])
        peer.kill()
        at = ("-b", cluster.bootstrap_servers)
        assert "from offset 1 on is open" in run_import(folder / "data", *at, code=1)
        run_import(folder / "data", "--abort-open-transactions", *at)
    committed = [one.value for one in seen(cluster.bootstrap_servers, topic, 1, "read_committed")]
    assert committed == [b"before", b"after"]


def test_an_interrupted_import_is_resumed(
    source: Source, cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appliance.cli import topics_import

    class Interrupted(Exception):
        pass

    sent = 0
    send = topics_import._Sender._send

    def once_too_often(self: Any, records: bytes, end: int) -> None:
        nonlocal sent
        sent += 1
        if sent == 3:
            raise Interrupted
        send(self, records, end)

    monkeypatch.setattr(topics_import._Sender, "_send", once_too_often)
    options: dict[str, Any] = {
        "topic": MIXED,
        "new_name": "",
        "replicas": -1,
        "config": ["retention.ms=-1"],
        "dry_run": False,
        "partial": False,
        "abort_open": False,
        "bootstrap_server": cluster.bootstrap_servers,
        "output": topics_import.Format.TEXT,
    }
    with pytest.raises(Interrupted):
        topics_import.import_topics([source.data], resume=False, **options)
    topics_import.import_topics([source.data], resume=True, **options)
    assert seen(cluster.bootstrap_servers, MIXED, 2) == source.read[MIXED, "read_uncommitted"]


def test_logs_are_found_with_what_their_data_folder_says(source: Source) -> None:
    logs = {str(log.topic_partition): log for log in find_logs(SystemDisk(), source.data)}
    assert logs[f"{DELETED}-0"].log_start_offset == 777
    assert all(log.is_clean for log in logs.values())
    assert len(logs[f"{MIXED}-0"].bases) > 2
