"""`appliance up --ray-address` on a Ray cluster of three raylets, with stand-ins for the brokers."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.repo import REPO
from tests.support.running import RunningAppliance, python_environment
from tests.support.standins import ask

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }


@pytest.fixture(scope="module")
def ray_address(environment: dict[str, str]) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.ray_nodes", "1", "2"],
        cwd=REPO,
        env={**python_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as nodes:
        assert nodes.stdout is not None
        address = nodes.stdout.readline().strip()
        assert address, "the raylets did not start"
        yield address
        nodes.communicate()


def test_brokers_go_where_slots_are_and_outlive_their_supervisor(
    tmp_path: Path, environment: dict[str, str], ray_address: str
) -> None:
    flags = ["--runtime", "ray", "--ray-address", ray_address, "--object-store", "s3://bucket/prefix"]
    flags += ["--brokers", "3", "--port", str(free_ports(3)), "--services", "none"]
    with RunningAppliance(tmp_path, *flags, environment=environment) as first:
        brokers = first.ready(120)["bootstrap_servers"].split(",")
        pids = [ask(broker, "pid") for broker in brokers]
        placement = json.loads((tmp_path / "data" / "appliance.json").read_text())["placement"]
        assert sorted(placement.values()) == ["node-1", "node-2", "node-2"]
        first.process.kill()
        first.process.wait()
        first.wait_until_gone(20)
        assert [ask(broker, "pid") for broker in brokers] == pids
    with RunningAppliance(tmp_path, *flags, environment=environment) as second:
        second.ready(120)
        assert [ask(broker, "pid") for broker in brokers] == pids, "they were found, not started again"
        second.process.send_signal(signal.SIGTERM)
        assert second.exit_code() == 0
        for broker in brokers:
            with pytest.raises(OSError):
                ask(broker, "pid")


def test_more_brokers_than_slots_are_refused(tmp_path: Path, environment: dict[str, str], ray_address: str) -> None:
    flags = ["--runtime", "ray", "--ray-address", ray_address, "--object-store", "s3://bucket/prefix"]
    with RunningAppliance(tmp_path, *flags, "--brokers", "4", environment=environment) as appliance:
        assert appliance.exit_code(120) == 2
        assert appliance.log().splitlines()[-1] == ("appliance: 4 brokers need as many broker slots; 2 nodes offer 3")
