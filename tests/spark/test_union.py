"""Each committed record exactly once, or an error, never a gap: while segments roll, tier, expire and leaders move."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from appliance.base.ids import TopicPartition
from spark.options import SourceOptions
from spark.planning import plan_batch
from tests.support.fault_proxy import FaultProxy, Rule
from tests.support.moto_server import MotoServer
from tests.support.replicated import until
from tests.support.union_read import FAILURES, TOPIC, UnionWorld

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]


@pytest.fixture
def bad_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultProxy, str]]:
    """S3 behind a proxy, for the brokers and for readers, and the URL of a bucket there."""
    with MotoServer() as moto, FaultProxy(moto.port) as proxy:
        bucket = moto.bucket()
        for name, value in {**moto.environment, "AWS_ENDPOINT_URL": proxy.endpoint_url}.items():
            monkeypatch.setenv(name, value)
        proxy.stall_s = 1.0
        yield proxy, f"s3://{bucket}/tier"


def bad_days(seed: int, share: float) -> Rule:
    """Of that share of requests something goes wrong; damage only where a checksum finds it."""
    chance, lock = random.Random(seed), threading.Lock()

    def rule(method: str, path: str) -> str | None:
        with lock:
            draw, which = chance.random(), chance.random()
        if draw >= share:
            return None
        kinds = ["503", "reset", "lose", "stall"]
        if method == "GET" and "/seg/" in path:
            kinds += ["cut", "damage"]
        return kinds[int(which * len(kinds))]

    return rule


def run(world: UnionWorld, proxy: FaultProxy, seed: int, kills: int, rounds_between: int) -> None:
    world.wait_until_records_expire()
    for number in range(kills):
        proxy.rule = bad_days(seed + number, 0.05)
        start_again = world.kill_leader()
        for _ in range(rounds_between):
            world.batch_round()
            world.stream_round()
        start_again()
        for _ in range(rounds_between):
            world.batch_round()
            world.stream_round()
    proxy.rule = lambda method, path: None
    world.settle()


def test_each_committed_record_is_read_once_while_records_move_a_leader_dies_and_the_store_fails_once(
    bad_store: tuple[FaultProxy, str], tmp_path: Path
) -> None:
    proxy, store = bad_store
    spoilt: list[str] = []

    def spoil_once(method: str, path: str) -> str | None:
        if method != "GET" or "/seg/" not in path or spoilt:
            return None
        spoilt.append(path)
        return "damage"

    with UnionWorld(tmp_path, store, seed=3, record_bytes=16_000, retention_bytes=3 << 20) as world:
        proxy.rule = spoil_once

        def read_on() -> bool:
            world.batch_round()
            world.stream_round()
            return bool(spoilt) and {"batch", "stream"} <= set(world.reads) and min(world.starts().values()) > 0

        until(read_on, "reads of both kinds, of a tier that fails once, until records expire", 90)
        world.kill_leader()
        world.batch_round()
        world.stream_round()
        world.settle()
        assert set(world.tiers) == {"hot", "tiered"}, world.reads


@pytest.mark.soak
def test_each_committed_record_is_read_once_while_records_move_and_a_broker_is_killed(
    bad_store: tuple[FaultProxy, str], tmp_path: Path
) -> None:
    proxy, store = bad_store
    with UnionWorld(tmp_path, store, seed=1) as world:
        run(world, proxy, seed=1, kills=1, rounds_between=3)
        assert world.reads["batch"] and world.reads["stream"] and set(world.tiers) == {"hot", "tiered"}, world.reads


@pytest.mark.soak
def test_spark_itself_reads_each_committed_record_once_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    with UnionWorld(tmp_path, "", seed=2) as world:
        world.wait_until_records_expire()
        start_again = world.kill_leader()
        good = []
        for fail_on_data_loss in (True, False):
            world.writer.go_on()
            good.append(read_with_spark(world, spark, fail_on_data_loss))
        start_again()
        print(good)
        # What has been written goes on moving for a while, and then rests.
        until(lambda: read_with_spark(world, spark), "a read without failure", 180)
        world.settle()


def read_with_spark(world: UnionWorld, spark: SparkSession, fail_on_data_loss: bool = True) -> bool:
    """A batch of all there is; whether it came to its end."""
    options = SourceOptions(world.servers, subscribe=(TOPIC,), read_committed=True, fail_on_data_loss=fail_on_data_loss)
    try:
        splits = plan_batch(options).splits
    except FAILURES:
        return False
    tps = {split.tp for split in splits}
    edges = {
        name: {TOPIC: {str(tp.partition): which(edge(s) for s in splits if s.tp == tp) for tp in sorted(tps)}}
        for name, which, edge in (
            ("startingOffsets", min, lambda split: split.start),
            ("endingOffsets", max, lambda split: split.end),
        )
    }
    reader = spark.read.format("appliance").option("kafka.bootstrap.servers", world.servers)
    reader = reader.option("subscribe", TOPIC).option("isolationLevel", "read_committed")
    reader = reader.option("failOnDataLoss", str(fail_on_data_loss).lower())
    for name, table in edges.items():
        reader = reader.option(name, json.dumps(table))
    try:
        found = reader.option("columns", "partition,offset,value").load().toArrow().to_pylist()
    except Exception as error:
        assert any(kind.__name__ in str(error) for kind in FAILURES), error
        return False
    rows: dict[TopicPartition, list[tuple[int, bytes]]] = {}
    for row in found:
        rows.setdefault(TopicPartition(TOPIC, row["partition"]), []).append((row["offset"], row["value"]))
    world.check(rows, list(splits), options)
    return True


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_each_committed_record_is_read_once_on_many_bad_days(bad_store: tuple[FaultProxy, str], tmp_path: Path) -> None:
    proxy, store = bad_store
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    print(f"seed {seed}")
    with UnionWorld(tmp_path, store, seed, brokers=3) as world:
        run(world, proxy, seed, kills=12, rounds_between=6)
        print(world.reads, world.tiers)
        assert set(world.tiers) == {"hot", "tiered"}, f"seed {seed}: {world.reads}"
