"""Workers and drivers die by SIGKILL: what a read_committed reader finds in the output equals the input, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from appliance.records.builder import NewRecord
from tests.support.repo import REPO
from tests.support.spark_jobs import JobsCluster, jobs_cluster
from tests.support.trial_sink import MOMENTS, TrialSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

PARTITIONS = 2
DRIVER_TIMEOUT_S = 180


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobsCluster]:
    with jobs_cluster(tmp_path_factory.mktemp("once")) as found:
        yield found


def fill(cluster: JobsCluster, topic: str, count: int) -> list[bytes]:
    cluster.topic(topic, PARTITIONS)
    rows: list[NewRecord] = [(1_700_000_000_000 + n, b"k%d" % n, b"%06d" % n, []) for n in range(count)]
    for partition in range(PARTITIONS):
        cluster.write(topic, partition, rows[partition::PARTITIONS])
    return [row[2] or b"" for row in rows]


# In the middle of a batch, which is before its commit as well: tests/spark/test_stream.py.
@pytest.mark.parametrize("moment", [pytest.param(MOMENTS[0], marks=pytest.mark.soak), MOMENTS[1]])
def test_a_worker_that_dies_at_its_commit_leaves_each_row_once(
    cluster: JobsCluster, spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    spark.dataSource.register(TrialSource)
    name = moment.split()[0]
    source, target = f"in-{name}", f"out-{name}"
    values = fill(cluster, source, 600)
    cluster.topic(target, PARTITIONS)
    frame = spark.readStream.format("appliance").options(**cluster.options(source, startingOffsets="earliest"))
    writer = frame.load().select("key", "value").writeStream.format("appliance_trial")
    options = {"kafka.bootstrap.servers": cluster.servers, "topic": target, "delivery": "exactly_once"}
    writer = writer.options(**options, moment=moment, flag=str(tmp_path / "flag"))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(180)
    assert (tmp_path / "flag").exists(), "no worker died"
    assert cluster.values(target) == values


@pytest.mark.soak  # each life of a driver begins with a JVM
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_again_and_again_leaves_each_row_once(cluster: JobsCluster, tmp_path: Path) -> None:
    values = fill(cluster, "long-in", 6_000)
    cluster.topic("long-out", PARTITIONS)
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    chance = random.Random(seed)
    lives = 0
    for share in (0.15, 0.4, 0.7):
        # Killed as soon as so much is visible, and a bit: in the middle of some batch.
        driver = start_driver(cluster, tmp_path)
        try:
            wait_for_rows(cluster, driver, int(len(values) * share))
            time.sleep(chance.uniform(0, 0.3))
        finally:
            lives += driver.poll() is None
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(30)
    last = start_driver(cluster, tmp_path)
    try:
        told, _ = last.communicate(timeout=DRIVER_TIMEOUT_S)
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
    assert b"DONE" in told and last.returncode == 0, f"seed {seed}"
    assert lives == 3, "a driver ended before it was killed"
    assert cluster.values("long-out") == values, f"seed {seed}"


def start_driver(cluster: JobsCluster, folder: Path) -> subprocess.Popen[bytes]:
    """Its JVM and its workers are in a process group with it."""
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                *("-m", "tests.support.trial_driver", cluster.servers, "long-in", "long-out"),
                str(folder / "checkpoint"),
            ],
            cwd=REPO,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


def wait_for_rows(cluster: JobsCluster, driver: subprocess.Popen[bytes], count: int) -> None:
    deadline = time.monotonic() + DRIVER_TIMEOUT_S
    while len(cluster.rows("long-out")) < count:
        assert driver.poll() is None, "the driver has ended"
        assert time.monotonic() < deadline, f"not {count} rows within {DRIVER_TIMEOUT_S} s"
        time.sleep(0.1)
