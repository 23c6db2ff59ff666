"""Jobs of a user's own, run as users run them: from another folder, by python and by spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.records.builder import NewRecord
from tests.support.java_tools import QUICK_START
from tests.support.spark_jobs import jobs_cluster

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(240)]

RUN_TIMEOUT_S = 200
JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("mine").config("spark.ui.enabled", "false").getOrCreate()
topic = spark.read.format("appliance").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "mine")
print("SUM", topic.load().selectExpr("sum(cast(string(value) as int))").first()[0])
"""
BY_SPARK_SUBMIT = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*BY_SPARK_SUBMIT, "--driver-java-options", " ".join(QUICK_START)], id="spark-submit"),
        pytest.param([sys.executable], id="python"),
    ],
)
def test_a_job_runs_from_any_folder_without_registering_anything(command: list[str], tmp_path: Path) -> None:
    job = tmp_path / "elsewhere" / "my_job.py"
    job.parent.mkdir()
    job.write_text(JOB)
    with jobs_cluster(tmp_path / "cluster") as cluster:
        cluster.topic("mine", 1)
        cluster.write("mine", 0, numbers(100))
        done = run([*command, str(job), cluster.servers], job.parent)
    assert f"SUM {sum(range(100))}" in done.stdout, done.stderr[-3_000:]


def test_a_job_of_ours_runs_by_name_from_any_folder(tmp_path: Path) -> None:
    with jobs_cluster(tmp_path / "cluster") as cluster:
        cluster.topic("mine", 1)
        cluster.write("mine", 0, numbers(100))
        command = [sys.executable, "-m", "spark.jobs.audit", *cluster.arguments("mine", "--cores", "1")]
        done = run(command, tmp_path)
    assert json.loads(done.stdout.splitlines()[-1])["topics"] == {"mine": {"hot": 100}}, done.stderr[-3_000:]


def numbers(count: int) -> list[NewRecord]:
    return [(1_700_000_000_000 + n, None, b"%d" % n, []) for n in range(count)]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """With nothing of this run's environment that would help to find the package."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON")}
    own |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
