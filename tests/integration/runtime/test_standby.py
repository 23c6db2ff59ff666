"""A whole appliance whose active controller is killed."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from appliance.client.client import Client
from appliance.client.connection import Connection
from appliance.client.results import NewTopic
from appliance.wire.messages.internal_metadata import ControllerStatusRequest, ControllerStatusResponse
from tests.support.running import REAL, RunningAppliance


def wait_for_log(running: RunningAppliance, words: str, after: str = "") -> None:
    deadline = time.monotonic() + 30
    while words not in running.log().partition(after)[2] if after else words not in running.log():
        assert time.monotonic() < deadline, running.log()
        time.sleep(0.1)


def status_of(bootstrap_servers: str) -> ControllerStatusResponse:
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    with Connection(host, int(port)) as connection:
        return connection.call(ControllerStatusRequest(), 0)


def test_the_second_controller_takes_over_and_the_first_stands_by_when_it_is_back(tmp_path: Path) -> None:
    flags = ("--brokers", "3", "--runtime", "local", "--services", "none")
    with RunningAppliance(tmp_path, *flags, module=REAL) as running:
        ready = running.ready()
        with Client(ready["bootstrap_servers"]) as client:
            client.create_topics([NewTopic("before", 3, 3)])
            wait_for_log(running, "controller 2 stands by")
            (pid,) = re.findall(r"controller-1 serves at \S+ \(pid (\d+)\)", running.log())
            os.kill(int(pid), signal.SIGKILL)
            client.create_topics([NewTopic("after", 3, 3)])
            assert sorted(client.metadata().topics) == ["after", "before"]
            wait_for_log(running, "stands by for controller", after="starting it again")
            answer = status_of(ready["bootstrap_servers"])
            assert (answer.active, answer.offline_partitions, answer.under_replicated_partitions) == (True, 0, 0)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0
