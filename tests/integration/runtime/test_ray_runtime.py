"""What `appliance up --runtime ray` does: with stand-ins, then with real brokers. Two Ray clusters in all."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.ids import TopicPartition
from appliance.cli.reading import VisibleRecords
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.builder import build_batch
from tests.support.running import REAL, RunningAppliance, wait_for
from tests.support.standins import ask

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

# A home that cannot be written and an address of another cluster must not matter.
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
"""127.0.0.1, ::1 and 127.0.0.1 in IPv6, as /proc writes them."""
ENVIRONMENT = {"HOME": "/nonexistent", "RAY_ADDRESS": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def appliance(folder: Path) -> Iterator[RunningAppliance]:
    with RunningAppliance(folder, "--runtime", "ray", "--brokers", "2", environment=ENVIRONMENT) as running:
        yield running


@pytest.fixture(scope="module")
def brokers(appliance: RunningAppliance) -> list[str]:
    return str(appliance.ready(120)["bootstrap_servers"]).split(",")


def test_brokers_run_in_processes_of_their_own_outside_the_terminals_group(
    appliance: RunningAppliance, brokers: list[str]
) -> None:
    pids = {int(ask(broker, "pid")) for broker in brokers}
    assert len(pids) == 2
    assert all(os.getpgid(pid) != os.getpgid(appliance.process.pid) for pid in pids)


def test_ray_listens_on_loopback_only(appliance: RunningAppliance, brokers: list[str]) -> None:
    inodes = {_socket_inode(link) for pid in appliance.processes() for link in _descriptors(pid)} - {None}
    rows = [
        line.split()
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
    assert len(listening) > 5
    assert [address for address in listening if address.partition(":")[0] not in LOOPBACK] == []


def test_a_killed_actor_comes_back_on_its_port_and_data(appliance: RunningAppliance, brokers: list[str]) -> None:
    broker, neighbour = brokers
    ask(broker, "append kept")
    pid, neighbour_pid = ask(broker, "pid"), ask(neighbour, "pid")
    os.kill(int(pid), signal.SIGKILL)
    again = wait_for(lambda: _other_pid(broker, pid), 30, appliance.log)
    assert again != pid
    assert ask(broker, "read") == "kept"
    assert ask(neighbour, "pid") == neighbour_pid
    wait_for(lambda: "broker-1 is gone; Ray starts it again" in appliance.log(), 15, appliance.log)
    wait_for(lambda: f"broker-1 serves at {broker} again (pid {again})" in appliance.log(), 15, appliance.log)


def test_an_actor_whose_function_ends_is_started_again_by_the_supervisor(
    appliance: RunningAppliance, brokers: list[str]
) -> None:
    pid = ask(brokers[1], "pid")
    ask(brokers[1], "fail the disk is full")
    again = wait_for(lambda: _other_pid(brokers[1], pid), 30, appliance.log)
    assert again != pid
    assert "the disk is full; starting it again in 0 ms" in appliance.log()


def test_sigint_to_the_process_group_leaves_no_child_and_no_folder(
    appliance: RunningAppliance, brokers: list[str]
) -> None:
    appliance.signal_group(signal.SIGINT)
    assert appliance.exit_code() == 0
    appliance.wait_until_gone(5)
    assert _ray_folders(appliance) == []


def test_real_brokers_on_ray_outlive_kills_and_their_data_outlives_ray(
    tmp_path: Path, appliance: RunningAppliance
) -> None:
    assert appliance.process.poll() == 0, "the first Ray has ended"
    arguments = ("--brokers", "2", "--services", "none")
    topic = TopicPartition("flights", 0)
    with RunningAppliance(tmp_path, "--runtime", "ray", *arguments, module=REAL, environment=ENVIRONMENT) as running:
        ready = running.ready(120)
        with Client(ready["bootstrap_servers"], client_id="test") as client:
            client.create_topics([NewTopic("flights", num_partitions=1)])
            client.produce(topic, _batch(b"before"))
            leader = client.metadata(["flights"]).topics["flights"].partitions[0].leader
            (pid,) = re.findall(rf"broker-{leader} serves at \S+ \(pid (\d+)\)", running.log())
            os.kill(int(pid), signal.SIGKILL)
            client.produce(topic, _batch(b"after"))
        running.process.kill()
        running.wait_until_gone(15)
        assert _ray_folders(running) == []
    with RunningAppliance(tmp_path, "--runtime", "local", *arguments, module=REAL) as running:
        again = running.ready()
        assert again["cluster_id"] == ready["cluster_id"]
        with Client(again["bootstrap_servers"], client_id="test") as client:
            fetched = client.fetch(topic, 0)
        assert [record.value for record in VisibleRecords(fetched.records, 0)] == [b"before", b"after"]


def _batch(value: bytes) -> bytes:
    return build_batch([(time.time_ns() // 1_000_000, None, value, ())])


def _other_pid(address: str, pid: str) -> str:
    try:
        found = ask(address, "pid")
    except OSError:
        return ""
    return found if found != pid else ""


def _ray_folders(appliance: RunningAppliance) -> list[str]:
    """Folders of Ray that this appliance made; those of others that run beside it are not its business."""
    return [str(path) for path in Path("/tmp").glob(f"appliance-{appliance.process.pid}-*")]


def _descriptors(pid: int) -> list[str]:
    links = []
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                links.append(str(entry.readlink()))
            except OSError:
                continue
    except OSError:
        return []
    return links


def _socket_inode(link: str) -> str | None:
    return link.removeprefix("socket:[").removesuffix("]") if link.startswith("socket:[") else None
