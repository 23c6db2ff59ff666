"""On a cluster of processes: an executor dies by SIGKILL, and each row of the input is in the output once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.records.builder import NewRecord
from tests.support.repo import REPO
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_jobs import JobsCluster, jobs_cluster
from tests.support.trial_sink import MOMENTS

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

PARTITIONS = 2
DRIVER_TIMEOUT_S = 700


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobsCluster]:
    with jobs_cluster(tmp_path_factory.mktemp("brokers")) as found:
        yield found


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as found:
        yield found


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_executor_that_dies_at_its_commit_leaves_each_row_once(
    brokers: JobsCluster, executors: SparkCluster, tmp_path: Path, moment: str
) -> None:
    source, target = (f"{kind}-{moment.split()[0]}" for kind in ("in", "out"))
    rows: list[NewRecord] = [(1_700_000_000_000 + n, b"k%d" % n, b"%06d" % n, []) for n in range(600)]
    for topic in (source, target):
        brokers.topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        brokers.write(source, partition, rows[partition::PARTITIONS])
    flag = tmp_path / "flag"
    trial = {"moment": moment, "flag": str(flag), "executor": "true"}
    given = [brokers.servers, source, target, str(tmp_path / "checkpoint"), json.dumps(executors.config)]
    run_driver([*given, json.dumps(trial)], tmp_path / "driver.log")
    assert flag.exists(), "no executor died"
    assert brokers.values(target) == [row[2] for row in rows]


def run_driver(arguments: list[str], log: Path) -> None:
    """Its JVM and its workers are in a process group with it."""
    command = [sys.executable, "-m", "tests.support.trial_driver", *arguments]
    with log.open("wb") as output:
        driver = subprocess.Popen(
            command, cwd=REPO, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = driver.wait(DRIVER_TIMEOUT_S)
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait(30)
    assert code == 0 and "DONE" in log.read_text(), log.read_text()[-3_000:]
