"""Lake output of whole brokers: two services at once, stock producers with transactions, the command line."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from appliance.base.clock import SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition as Place
from appliance.base.ids import uuid_to_text
from appliance.base.object_store import ObjectStoreError
from appliance.broker_actors.lake_service import OUTPUT_CHECK_INTERVALS, serve
from appliance.broker_actors.lake_service import Lake as LakeRounds
from appliance.cli.main import app
from appliance.client.client import Client
from appliance.client.results import NewTopic, OffsetResult
from appliance.tiering import reader as reader_module
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.lake import worker as worker_module
from appliance.tiering.lake.iceberg import open_tables
from appliance.tiering.lake.ledger import Ledger
from appliance.tiering.lake.names import DATA, Output, current_name
from appliance.tiering.lake.outputs import current_output, files_of, read_ledger, sweep
from appliance.tiering.s3 import S3Store
from tests.support.broker import RunningCluster, running_cluster
from tests.support.fault_store import FaultStore
from tests.support.laked import AT_ONCE, OUTPUT, Laked
from tests.support.moto_server import MotoServer
from tests.support.replicated import until
from tests.support.services import running_service

QUICK = {
    "tiering.task.interval.ms": "50",
    "tiering.retry.backoff.ms": "50",
    "log.retention.check.interval.ms": "100",
    "lake.check.interval.ms": "100",
}
LAKE = {"retention.ms": "-1", "tiering.max.lag.ms": "300", "lake.format": "parquet", "lake.max.age.ms": "0"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=QUICK) as running:
        yield running


class Lake:
    def __init__(self, cluster: RunningCluster, topic: str, partitions: int = 1, **configs: str) -> None:
        self.store = DirectoryStore(cluster.folder / "object-store")
        self.topic = topic
        with Client(cluster.bootstrap_servers) as client:
            configs = LAKE | {name.replace("_", "."): value for name, value in configs.items()}
            client.create_topics([NewTopic(topic, partitions, configs=configs)])
            self.topic_id = client.metadata([topic]).topics[topic].topic_id

    @property
    def output(self) -> Output:
        return current_output(self.store, self.topic_id).output

    def ledger(self, partition: int = 0) -> Ledger | None:
        return read_ledger(self.store, self.output, partition)

    def wait_for_rows(self, count: int, partition: int = 0) -> Ledger:
        def look() -> Ledger | None:
            ledger = self.ledger(partition)
            return ledger if ledger is not None and ledger.rows + ledger.dead >= count else None

        return until(look, f"{count} rows of {self.topic}-{partition}", 60)

    def rows(self, ledger: Ledger, kind: str = DATA) -> list[dict[str, Any]]:
        files = [file for file in files_of(self.store, self.output, ledger) if file.kind == kind]
        tables = [pq.read_table(pa.BufferReader(self.store.get(self.output.folder + file.name).data)) for file in files]
        return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["_offset"])


def verified(store: str, topic: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["lake", "verify", store, "--topic", topic, "--format", "json"])
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if found["whole"] else 1), done.stdout
    return found


def test_committed_records_become_rows_once_while_two_services_run(cluster: RunningCluster, tmp_path: Path) -> None:
    lake = Lake(cluster, "orders", partitions=2)
    servers, store = cluster.bootstrap_servers, str(cluster.folder / "object-store")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "lake", "linger.ms": 0, "log_level": 2})
    producer.init_transactions(30)
    with (
        running_service(serve, "one", servers, tmp_path, store, QUICK) as url,
        running_service(serve, "two", servers, tmp_path, store, QUICK),
    ):
        for round_number in range(6):
            producer.begin_transaction()
            for n in range(20):
                value = json.dumps({"n": round_number * 20 + n, "kept": round_number % 3 != 1})
                producer.produce("orders", value, key=b"k", partition=n % 2)
            if round_number % 3 == 1:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        for partition in range(2):
            producer.begin_transaction()
            producer.produce("orders", b"no json", partition=partition)
            producer.commit_transaction(30)
        ledgers = [lake.wait_for_rows(41, partition) for partition in range(2)]
        for partition, ledger in enumerate(ledgers):
            rows = lake.rows(ledger)
            wanted = [r * 20 + n for r in (0, 2, 3, 5) for n in range(partition, 20, 2)]
            assert [row["n"] for row in rows] == wanted
            assert all(row["kept"] and row["_key"] == b"k" for row in rows)
            assert (ledger.rows, ledger.dead) == (40, 1)

        def metrics() -> str:
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        until(lambda: 'appliance_lake_rows_total{partition="1",topic="orders"} 40.0' in metrics(), "the metrics", 30)
    report = verified(store, "orders")
    assert report["whole"] and sum(row["rows"] for row in report["partitions"]) == 80
    shown = CliRunner().invoke(app, ["status", "--lake", "-b", servers, "--format", "json"])
    told = [(row["topic"], row["rows"], row["lag"]) for row in json.loads(shown.stdout)["lake"]]
    assert told == [("orders", 40, 0)] * 2
    listed = CliRunner().invoke(app, ["lake", "ls", store, "--files"])
    assert listed.exit_code == 0 and "event_date=" in listed.stdout


def test_a_rebuild_makes_the_same_rows_under_other_configs(cluster: RunningCluster, tmp_path: Path) -> None:
    lake = Lake(cluster, "clicks", lake_schema="n bigint", lake_partition_by="n")
    servers, store = cluster.bootstrap_servers, str(cluster.folder / "object-store")
    with running_service(serve, "one", servers, tmp_path, store, QUICK):
        producer = Producer({"bootstrap.servers": servers, "log_level": 2})
        for n in range(10):
            producer.produce("clicks", json.dumps({"n": n % 3, "m": n}))
        assert producer.flush(30) == 0
        first = lake.wait_for_rows(10)
        names = pa.dataset.dataset(
            str(cluster.folder / "object-store" / lake.output.folder / "data"), partitioning="hive"
        ).to_table(columns=["n", "_offset"])
        assert sorted(names.column("n").to_pylist()) == sorted(n % 3 for n in range(10))
        done = CliRunner().invoke(app, ["lake", "rebuild", store, "clicks"])
        assert done.exit_code == 0, done.output
        second = lake.wait_for_rows(10)
        assert second.output != first.output and second.output == str(lake.output)
        assert [row["_offset"] for row in lake.rows(second)] == list(range(10))
    assert verified(store, "clicks")["whole"]
    dropped = CliRunner().invoke(app, ["lake", "drop", store, "clicks"])
    assert dropped.exit_code == 0 and read_ledger(lake.store, Output(lake.topic_id, 0), 0) is None
    assert verified(store, "clicks")["whole"]


def test_configs_that_cannot_be_followed_are_told(cluster: RunningCluster, tmp_path: Path, caplog: Any) -> None:
    Lake(cluster, "broken", lake_schema="n number")
    Lake(cluster, "lines", lake_value_format="csv")
    servers, store = cluster.bootstrap_servers, str(cluster.folder / "object-store")
    with running_service(serve, "one", servers, tmp_path, store, QUICK):
        until(lambda: "csv needs lake.schema" in caplog.text, "the reason of one topic", 30)
        producer = Producer({"bootstrap.servers": servers, "log_level": 2})
        producer.produce("broken", b"{}")
        assert producer.flush(30) == 0
        until(lambda: "there is no type 'number'" in caplog.text, "the reason of the other", 30)


def test_a_topic_becomes_an_iceberg_table(cluster: RunningCluster, tmp_path: Path) -> None:
    lake = Lake(cluster, "trips", partitions=2, lake_format="iceberg")
    servers, store = cluster.bootstrap_servers, (cluster.folder / "object-store").as_uri()
    (tmp_path / "one").mkdir()
    tables = open_tables("", "appliance", store, str(tmp_path / "one"))
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for n in range(10):
        producer.produce("trips", json.dumps({"n": n}), partition=n % 2)
    assert producer.flush(30) == 0

    def numbers() -> list[int]:
        name = tables.table_name(lake.output, "trips")
        if not tables._catalog.table_exists(name):
            return []
        return sorted(tables._catalog.load_table(name).scan().to_arrow().column("n").to_pylist())

    with running_service(serve, "one", servers, tmp_path, store, QUICK):
        until(lambda: len(numbers()) >= 10, "rows in the table", 60)
    assert numbers() == list(range(10))


def test_topics_of_which_nothing_waits_cost_a_lookup_in_six_rounds(cluster: RunningCluster, tmp_path: Path) -> None:
    topic = Lake(cluster, "idle", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    for n in range(9):
        producer.produce("idle", json.dumps({"n": n}), partition=n % 3)
    assert producer.flush(30) == 0
    store = FaultStore(topic.store)
    with Client(cluster.bootstrap_servers) as client:
        lake = LakeRounds(client, store, tmp_path, SystemClock(), BrokerConfig({}), lambda: False)

        def made() -> bool:
            lake.work()
            return sum(one.rows for one in lake.numbers if one.topic == "idle") == 9

        until(made, "all rows", 60)
        for _ in range(OUTPUT_CHECK_INTERVALS):
            lake.work()
        asked: list[str] = []
        store.rule = lambda operation, name: asked.append(name)  # type: ignore[func-returns-value]
        for _ in range(2 * OUTPUT_CHECK_INTERVALS):
            lake.work()
        assert [name for name in asked if uuid_to_text(topic.topic_id) in name] == [current_name(topic.topic_id)] * 2


class OneIsOut(Client):
    """A client that is told of one partition that it is out of service."""

    out = Place("partly", 1)

    def list_offsets(self, timestamps: Mapping[Place, int], isolation_level: int = 0) -> dict[Place, OffsetResult]:
        if self.out in timestamps:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.out} is out of service")
        return super().list_offsets(timestamps, isolation_level)


def test_a_partition_that_is_out_of_service_does_not_hold_up_the_others(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    topic = Lake(cluster, "partly", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 2})
    for n in range(9):
        producer.produce("partly", json.dumps({"n": n}), partition=n % 3)
    assert producer.flush(30) == 0
    with OneIsOut(cluster.bootstrap_servers) as client:
        rounds = LakeRounds(client, topic.store, tmp_path, SystemClock(), BrokerConfig({}), lambda: False)

        def rows() -> dict[int, int]:
            rounds.work()
            return {one.partition: one.rows for one in rounds.numbers if one.topic == "partly" and one.rows}

        until(lambda: rows() == {0: 3, 2: 3}, "the rows of the partitions that are in service", 60)
        # The service is not in trouble, and the one that comes back has its turn.
        assert not any(one.problem for one in rounds.numbers if one.topic == "partly")
        client.out = Place("partly", 7)
        until(lambda: rows() == {0: 3, 1: 3, 2: 3}, "the rows of the one that is back", 60)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "PAUSE_S", 0.01)
    monkeypatch.setattr(worker_module, "PAUSE_S", 0.01)


@pytest.mark.usefixtures("impatient")
def test_two_workers_over_a_bad_s3_make_each_row_once(moto: MotoServer, tmp_path: Path) -> None:
    lake = Laked(tmp_path, S3Store(moto.bucket(), "", moto.client_options), retention_ms=-1)
    for first in range(0, 24, 4):
        lake.put([{"n": n} for n in range(first, first + 4)])
    chance, lock = Random(7), threading.Lock()

    def trouble(operation: str, name: str) -> str | None:
        with lock:
            return chance.choice([None, None, None, None, "lose", "refuse"]) if "lake/" in name else None

    lake.store.rule = trouble
    specs = [replace(AT_ONCE, max_bytes=1), replace(AT_ONCE, max_bytes=500)]

    def work(number: int) -> None:
        worker = lake.worker(f"worker-{number}")
        for _ in range(200):
            try:
                if worker.work(specs[number]).next_offset == 24:
                    return
            except ObjectStoreError:
                continue

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    lake.store.rule = lambda operation, name: None
    lake.worker("last").work(specs[0])
    assert [row["n"] for row in lake.rows()] == list(range(24))
    sweep(lake.store, OUTPUT)
    assert lake.problems() == []
