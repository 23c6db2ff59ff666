"""A whole broker with several data directories: who holds what, a disk that is really full, and one that is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from appliance.base.disk import SystemDisk
from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.log.scan import walk_batches
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.support.broker import RunningCluster, running_cluster
from tests.support.ports import free_port
from tests.support.repo import REPO
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce
from tests.support.small_disk import with_small_disk

WAIT_S = 20
MIB = 1 << 20
SYSTEM_DISK = SystemDisk()


def connect(cluster: RunningCluster) -> Connection:
    return Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000)


def folder_of(connection: Connection, topic: CreatableTopicResult, partition: int) -> Path:
    """The data directory that a partition lies in."""
    for directory in described(connection):
        for found in directory.topics:
            if found.name == topic.name and any(part.partition_index == partition for part in found.partitions):
                return Path(directory.log_dir)
    raise AssertionError(f"{topic.name}-{partition} is in no directory")


def described(connection: Connection, **wanted: list[int]) -> list[DescribeLogDirsResult]:
    topics = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in wanted.items()]
    response = connection.call(DescribeLogDirsRequest(topics=topics or None), 4)
    assert response.error_code == 0
    return response.results


def status_of(cluster: RunningCluster) -> tuple[int, dict]:
    command = [sys.executable, "-m", "appliance.cli", "status", "--format", "json"]
    command += ["--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    folders = [tmp_path / "disk1", tmp_path / "disk2", tmp_path / "disk3"]
    with running_cluster(tmp_path, log_dirs=folders) as cluster, connect(cluster) as connection:
        topic = new_topic(connection, partitions=6)
        for partition in range(6):
            produce(connection, topic, batch_of(b"x" * 100), partition=partition)
        results = described(connection)
        assert [result.log_dir for result in results] == [str(folder / "broker-1") for folder in folders]
        for result in results:
            assert result.error_code == 0 and result.total_bytes >= result.usable_bytes > 0
            (found,) = result.topics
            assert len(found.partitions) == 2
            for part in found.partitions:
                log = Path(result.log_dir) / f"{topic.name}-{part.partition_index}" / f"{0:020d}.log"
                assert (part.partition_size, part.offset_lag, part.is_future_key) == (log.stat().st_size, 0, False)
        (one,) = [result for result in described(connection, **{topic.name: [0]}) if result.topics]
        assert [part.partition_index for part in one.topics[0].partitions] == [0]
        assert not (cluster.data_dir(1) / "meta.properties").exists()
        ports = [result.log_dir for result in described(connection, none=[0]) if result.topics]
        assert ports == []
    # The same order or not, everything is found again.
    with running_cluster(tmp_path, log_dirs=folders[::-1]) as cluster, connect(cluster) as connection:
        for partition in range(6):
            assert list_offset(connection, topic, -1, partition=partition).offset == 1
        code, status = status_of(cluster)
        assert code == 0 and status["problems"] == []
        assert [row["path"] for row in status["directories"]] == [str(f / "broker-1") for f in folders[::-1]]
        assert {(row["state"], row["logs"]) for row in status["directories"]} == {("online", 2)}


def test_a_missing_directory_keeps_its_partitions_and_the_others_serve(tmp_path: Path) -> None:
    folders = [tmp_path / "disk1", tmp_path / "disk2"]
    with running_cluster(tmp_path, log_dirs=folders) as cluster, connect(cluster) as connection:
        topic = new_topic(connection, partitions=2)
        for partition in range(2):
            assert produce(connection, topic, batch_of(b"kept"), partition=partition).error_code == 0
        missing = next(number for number in range(2) if "disk2" in str(folder_of(connection, topic, number)))
    other = 1 - missing
    (tmp_path / "disk2").rename(tmp_path / "away")
    (tmp_path / "disk2").write_text("no folder")
    with running_cluster(tmp_path, log_dirs=folders) as cluster, connect(cluster) as connection:
        assert produce(connection, topic, batch_of(b"more"), partition=other).error_code == 0
        for version in (7, 9, 12):
            answer = produce(connection, topic, batch_of(b"lost?"), partition=missing, version=version)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for version in (11, 13):
            answer = fetch(connection, topic, 0, partition=missing, version=version)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert list_offset(connection, topic, -1, partition=missing).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        online, offline = described(connection)
        assert (online.error_code, len(online.topics[0].partitions)) == (0, 1)
        assert (offline.error_code, offline.log_dir) == (56, str(folders[1] / "broker-1"))
        assert (offline.topics, offline.total_bytes, offline.usable_bytes) == ([], -1, -1)
        assert produce(connection, new_topic(connection), batch_of(b"new")).error_code == 0
        code, status = status_of(cluster)
        assert code == 1
        assert any(f"data directory {folders[1]}/broker-1 is offline" in problem for problem in status["problems"])
        assert any(f"{topic.name}-{missing} is out of service" in problem for problem in status["problems"])
    assert not (folders[0] / "broker-1" / f"{topic.name}-{missing}").exists()
    (tmp_path / "disk2").unlink()
    (tmp_path / "away").rename(tmp_path / "disk2")
    with running_cluster(tmp_path, log_dirs=folders) as cluster, connect(cluster) as connection:
        assert [list_offset(connection, topic, -1, partition=p).offset for p in (missing, other)] == [1, 2]


def test_a_disk_that_is_really_full_refuses_writes_and_takes_them_again(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"

    def run() -> None:
        ballast = small / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 3 * MIB)
        with (
            running_cluster(
                tmp_path, log_dirs=[small, large], properties={"log.dir.min.free.bytes": str(MIB), "metrics.port": "0"}
            ) as cluster,
            connect(cluster) as connection,
        ):
            fill_and_free(cluster, connection, ballast)

    def fill_and_free(cluster: RunningCluster, connection: Connection, ballast: Path) -> None:
        topic = new_topic(connection, partitions=2)
        tight = next(number for number in range(2) if folder_of(connection, topic, number).is_relative_to(small))
        payload = os.urandom(300_000)
        acknowledged = 0
        while True:
            answer = produce(connection, topic, batch_of(payload), partition=tight)
            if answer.error_code:
                break
            assert answer.base_offset == acknowledged
            acknowledged += 1
            assert acknowledged < 20, "the disk never runs full"
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert acknowledged > 5
        assert produce(connection, topic, batch_of(b"s"), partition=tight).error_code == 56, "small ones neither"
        assert produce(connection, topic, batch_of(payload), partition=1 - tight).error_code == 0
        # Cut back to the last whole write, and readable.
        (log,) = (small / "broker-1" / f"{topic.name}-{tight}").glob("*.log")
        descriptor = os.open(log, os.O_RDONLY)
        try:
            found = list(walk_batches(SYSTEM_DISK, descriptor, 0, log.stat().st_size, 0))
        finally:
            os.close(descriptor)
        assert [header.base_offset for _, header, _ in found] == list(range(acknowledged))
        assert sum(header.size_in_bytes for _, header, _ in found) == log.stat().st_size
        for offset in range(acknowledged):
            assert fetch(connection, topic, offset, partition=tight).error_code == 0
        code, status = status_of(cluster)
        assert code == 1
        assert {row["path"]: row["state"] for row in status["directories"]} == {
            str(small / "broker-1"): "full",
            str(large / "broker-1"): "online",
        }

        ballast.unlink()
        deadline = time.monotonic() + WAIT_S
        while (answer := produce(connection, topic, batch_of(b"again"), partition=tight)).error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and time.monotonic() < deadline
            time.sleep(0.05)
        assert answer.base_offset == acknowledged
        assert list_offset(connection, topic, -1, partition=tight).offset == acknowledged + 1

    with_small_disk(small, 8 * MIB, run)


def test_the_numbers_of_each_directory_are_served(tmp_path: Path) -> None:
    port = free_port()
    folders = [tmp_path / "disk1", tmp_path / "disk2"]
    with (
        running_cluster(tmp_path, log_dirs=folders, properties={"metrics.port": str(port)}) as cluster,
        connect(cluster) as connection,
    ):
        new_topic(connection, partitions=3)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text = response.read().decode()
    first, second = (str(folder / "broker-1") for folder in folders)
    assert f'appliance_log_directory_state{{directory="{first}",state="online"}} 1.0' in text
    assert f'appliance_log_directory_state{{directory="{second}",state="offline"}} 0.0' in text
    assert f'appliance_log_directory_logs{{directory="{first}"}} 2.0' in text
    assert f'appliance_log_directory_offline_partitions{{directory="{second}"}} 0.0' in text
    assert "kafka_log_logmanager_offlinelogdirectorycount 0.0" in text
    free_bytes = float(text.split(f'appliance_log_directory_free_bytes{{directory="{first}"}} ')[1].split()[0])
    assert free_bytes > 0
