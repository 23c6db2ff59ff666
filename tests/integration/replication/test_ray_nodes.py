"""Real brokers on a Ray cluster of three nodes (`make soak`: five) under load: kills, pauses, a lost node, a lost head.

Ray's head keeps its state in RocksDB, as terraform/ sets it, so that it can come back. One appliance for all tests, in
their order.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.chaos import PARTITIONS, TOPIC_CONFIGS, read_log, stock_loads, wait_for_progress
from tests.support.loads import Load, check
from tests.support.moto_server import MotoServer
from tests.support.replicated import until
from tests.support.repo import REPO
from tests.support.running import REAL, RunningAppliance, python_environment
from tests.support.status import status_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

TOPICS = ["ray-idempotent", "ray-plain", "ray-third"]
REPLICAS = 3
PROBLEM_TIMEOUT_S = 150.0


class Nodes:
    """Raylets beside the head's."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the raylets have ended"
        return line

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._line() == "done"


class Cluster:
    """The appliance on these nodes, as its operator sees it."""

    def __init__(self, running: RunningAppliance, nodes: Nodes, count: int, folder: Path) -> None:
        self.running, self.nodes, self.folder = running, nodes, folder
        self.names = [f"node-{number}" for number in range(1, count + 1)]
        self.bootstrap = str(running.ready(120)["bootstrap_servers"])
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        topics = [NewTopic(topic, PARTITIONS, REPLICAS, config=TOPIC_CONFIGS) for topic in TOPICS]
        for made in admin.create_topics(topics).values():
            made.result(30)

    def status(self) -> dict[str, Any]:
        return status_of(self.bootstrap)

    def leader(self) -> int:
        """The broker that leads most."""
        leads = {row["broker_id"]: row["leads"] for row in self.status()["brokers"]}
        return max(leads, key=lambda broker_id: leads[broker_id])

    def pids(self, broker_id: int) -> list[int]:
        """The processes that hold the broker's data directory."""
        folder = self.folder / "data" / f"broker-{broker_id}"
        return [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has_open(entry, folder)
        ]

    def wait_until_well(self) -> None:
        until(lambda: self.status()["problems"] == [], f"no problems: {self.running.log()[-2000:]}", PROBLEM_TIMEOUT_S)

    def wait_for_problem(self, pattern: str) -> None:
        def told() -> bool:
            return any(re.search(pattern, line) for line in self.status()["problems"])

        until(told, f"status to say {pattern}", PROBLEM_TIMEOUT_S)


def _has_open(process: Path, folder: Path) -> bool:
    try:
        return any(folder in entry.readlink().parents for entry in (process / "fd").iterdir())
    except OSError:
        return False


@pytest.fixture(scope="module", params=[3, pytest.param(5, marks=pytest.mark.soak)], ids="{} nodes".format)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    count: int = request.param
    folder = tmp_path_factory.mktemp("nodes")
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    with MotoServer() as moto:
        environment = {
            **moto.environment,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_gcs_storage": "rocksdb",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
        }
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.ray_nodes", *["1"] * count],
            cwd=REPO,
            env={**python_environment(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "nodes.log").open("w"),
            text=True,
        ) as process:
            nodes = Nodes(process)
            flags = ["--runtime", "ray", "--ray-address", nodes.address, "--brokers", str(count), "--services", "none"]
            flags += ["--object-store", f"s3://{moto.bucket()}/appliance"]
            with RunningAppliance(folder, *flags, module=REAL, environment=environment) as running:
                yield Cluster(running, nodes, count, folder)
                running.process.send_signal(signal.SIGTERM)
                running.exit_code()
            process.communicate()


@pytest.fixture(scope="module")
def loads(cluster: Cluster) -> Iterator[list[Load]]:
    """They write during all tests."""
    # Not kafka-python: having learned of one broker alone while the others were away, it was seen to ask no other.
    running = stock_loads(cluster.bootstrap, TOPICS)[:2]
    for load in running:
        load.thread.start()
    wait_for_progress(running)
    yield running
    for load in running:
        load.stopping.set()


def test_brokers_and_their_replicas_are_spread_over_the_nodes(cluster: Cluster, loads: list[Load]) -> None:
    cluster.wait_until_well()
    status = cluster.status()
    assert sorted(row["rack"] for row in status["brokers"]) == cluster.names
    assert sorted(row["node"] for row in status["controller"]["brokers"]) == cluster.names
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2}).list_topics(timeout=30)
    replicas = [row.replicas for topic in TOPICS for row in metadata.topics[topic].partitions.values()]
    assert all(len(set(row)) == REPLICAS for row in replicas)
    each, left = divmod(len(replicas), len(cluster.names))
    leads = Counter(row[0] for row in replicas)
    assert len(leads) == len(cluster.names) and set(leads.values()) == {each, each + bool(left)}, replicas


def test_killed_and_paused_leaders_cost_no_record(cluster: Cluster, loads: list[Load]) -> None:
    for pause_s in (0.0, 1.0, 4.0):
        (pid,) = cluster.pids(cluster.leader())
        if pause_s:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(pause_s)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, signal.SIGKILL)
        wait_for_progress(loads)
    cluster.wait_until_well()


def test_a_lost_node_is_told_of_and_its_broker_comes_back_with_its_data(cluster: Cluster, loads: list[Load]) -> None:
    victim = cluster.leader()
    status = cluster.status()
    (node,) = [row["node"] for row in status["controller"]["brokers"] if row["broker_id"] == victim]
    (pid,) = cluster.pids(victim)
    cluster.nodes.tell(f"lose {node.removeprefix('node-')}")
    # Its workers would end by themselves a little later.
    if cluster.pids(victim):
        os.kill(pid, signal.SIGKILL)
    cluster.wait_for_problem(f"broker {victim} is fenced")
    wait_for_progress(loads)
    assert cluster.pids(victim) == []
    before = set((cluster.folder / "data" / f"broker-{victim}" / f"{TOPICS[0]}-0").glob("*.log"))
    cluster.nodes.tell(f"return {node.removeprefix('node-')}")
    cluster.wait_until_well()
    assert len(cluster.pids(victim)) == 1, "never two with one id"
    after = set((cluster.folder / "data" / f"broker-{victim}" / f"{TOPICS[0]}-0").glob("*.log"))
    assert before and before <= after, "it began with what it had"
    wait_for_progress(loads)


def test_without_rays_head_records_flow_and_status_says_so(cluster: Cluster, loads: list[Load]) -> None:
    cluster.nodes.tell("kill-head")
    cluster.wait_for_problem("Ray's head at .* does not answer")
    wait_for_progress(loads)
    cluster.nodes.tell("start-head")
    cluster.wait_until_well()
    (pid,) = cluster.pids(cluster.leader())
    os.kill(pid, signal.SIGKILL)
    wait_for_progress(loads)
    cluster.wait_until_well()


def test_after_all_of_it_nothing_acknowledged_is_lost(cluster: Cluster, loads: list[Load]) -> None:
    for load in loads:
        load.stop()
    for load in loads:
        check(load, read_log(cluster.bootstrap, load.topic, PARTITIONS))
