"""What `appliance up --runtime local` does with processes, shown with stand-ins for brokers and controller."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.running import RunningAppliance, wait_for
from tests.support.standins import CLUSTER_ID, ask

LOCAL = ("--runtime", "local")


def test_ready_tells_everything_a_client_needs(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--brokers", "3") as appliance:
        ready = appliance.ready()
        assert list(ready) == ["version", "cluster_id", "bootstrap_servers", "http", "connect", "object_store", "pid"]
        assert ready["version"] == 1
        assert ready["cluster_id"] == CLUSTER_ID
        assert ready["pid"] == appliance.process.pid
        assert ready["object_store"] == (tmp_path / "data" / "object-store").as_uri()
        brokers = ready["bootstrap_servers"].split(",")
        assert len({ask(broker, "pid") for broker in brokers}) == 3
        assert ready["http"].startswith("http://127.0.0.1:")
        assert ready["connect"] is None, "what is not installed is left out"
        assert "service-connect is left out" in appliance.log()


@pytest.fixture
def heard_hangup() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, and whoever is started then ignores it too, as it should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_process_ends_everything_with_code_0(tmp_path: Path, number: int, heard_hangup: None) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2") as appliance:
        appliance.ready()
        appliance.process.send_signal(number)
        assert appliance.exit_code() == 0
        assert appliance.processes() == []


def test_sigint_to_the_process_group_leaves_no_child(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2") as appliance:
        ready = appliance.ready()
        assert ask(ready["http"], "child").isdigit(), "a grandchild must go too"
        # A process that has just been started shows no environment for a moment.
        wait_for(lambda: len(appliance.processes()) == 6, 10, appliance.log)
        appliance.signal_group(signal.SIGINT)
        assert appliance.exit_code() == 0
        assert appliance.processes() == []


def test_a_signal_before_ready_ends_everything(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--broker", "run_never_ready") as appliance:
        wait_for(lambda: len(appliance.processes()) >= 3, 10, appliance.log)
        wait_for(lambda: "serves at" in appliance.log(), 10, appliance.log)
        appliance.process.send_signal(signal.SIGTERM)
        assert appliance.exit_code() == 0
        assert appliance.processes() == []


def test_a_second_signal_kills_what_does_not_end(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL) as appliance:
        ready = appliance.ready()
        ask(ready["bootstrap_servers"], "deaf")
        appliance.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "draining" in appliance.log(), 5, appliance.log)
        time.sleep(0.3)
        assert appliance.process.poll() is None, "it waits for the broker"
        started = time.monotonic()
        appliance.process.send_signal(signal.SIGTERM)
        assert appliance.exit_code() == 0
        assert time.monotonic() - started < 6
        assert appliance.processes() == []


def test_sigkill_of_the_parent_leaves_no_orphan(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2") as appliance:
        ready = appliance.ready()
        ask(ready["bootstrap_servers"].split(",")[0], "deaf")
        appliance.process.kill()
        appliance.wait_until_gone(20)


def test_the_folder_of_a_killed_appliance_can_be_used_again_at_once(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL) as first:
        first.ready()
        first.process.kill()
        first.process.wait()
        with RunningAppliance(tmp_path, *LOCAL) as second:
            assert second.ready()["cluster_id"] == CLUSTER_ID


def test_a_killed_broker_is_started_again_on_its_port_and_data(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2") as appliance:
        broker, neighbour = appliance.ready()["bootstrap_servers"].split(",")
        ask(broker, "append kept")
        pid, neighbour_pid = ask(broker, "pid"), ask(neighbour, "pid")
        os.kill(int(pid), signal.SIGKILL)
        again = wait_for(lambda: _other_pid(broker, pid), 10, appliance.log)
        assert again != pid
        assert ask(broker, "read") == "kept"
        assert ask(neighbour, "pid") == neighbour_pid
        wait_for(lambda: "broker-1 was killed by SIGKILL" in appliance.log(), 5, appliance.log)


@pytest.mark.parametrize("command", ["crash", "fail the disk is full"])
def test_what_keeps_ending_is_started_ever_more_slowly(tmp_path: Path, command: str) -> None:
    config = tmp_path / "server.properties"
    config.write_text("service.restart.backoff.ms=50\nservice.restart.backoff.max.ms=400\n")
    with RunningAppliance(tmp_path, *LOCAL, "--config", str(config)) as appliance:
        broker = appliance.ready()["bootstrap_servers"]
        for _ in range(4):
            pid = wait_for(lambda: _other_pid(broker, ""), 10, appliance.log)
            ask(broker, command)
            wait_for(lambda pid=pid: _other_pid(broker, pid), 10, appliance.log)
        pauses = [int(line.split(" in ")[-1].split()[0]) for line in appliance.log().splitlines() if "again in" in line]
        assert pauses == [0, 50, 100, 200]


def test_data_survives_a_restart_of_the_appliance(tmp_path: Path) -> None:
    remembered = []
    for _ in range(2):
        with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2") as appliance:
            first, second = appliance.ready()["bootstrap_servers"].split(",")
            ask(first, "append a")
            ask(second, "append b")
            remembered.append(json.loads((tmp_path / "data" / "appliance.json").read_text())["controller_ports"])
            appliance.process.send_signal(signal.SIGTERM)
            assert appliance.exit_code() == 0
    assert remembered[0] == remembered[1], "the controller is found where it was"
    assert (tmp_path / "data" / "broker-1" / "data").read_text() == "aa"
    assert (tmp_path / "data" / "broker-2" / "data").read_text() == "bb"


def test_brokers_listen_on_the_ports_that_follow(tmp_path: Path) -> None:
    port = free_ports(2)
    with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2", "--port", str(port)) as appliance:
        assert appliance.ready()["bootstrap_servers"] == f"127.0.0.1:{port},127.0.0.1:{port + 1}"


def test_a_taken_port_is_named_and_ends_with_code_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with RunningAppliance(tmp_path, *LOCAL, "--port", str(port)) as appliance:
            assert appliance.exit_code() == 3
            assert _last_line(appliance) == (
                f"appliance: broker 1: cannot listen on 127.0.0.1:{port}: Address already in use"
            )
            assert appliance.process.stdout is not None
            assert appliance.process.stdout.read() == b""
            assert appliance.processes() == []


def test_a_taken_http_port_ends_with_code_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with RunningAppliance(tmp_path, *LOCAL, "--http-port", str(port)) as appliance:
            assert appliance.exit_code() == 3
            assert f"service http: cannot listen on 127.0.0.1:{port}" in _last_line(appliance)


def test_a_folder_that_cannot_be_written_ends_with_code_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with RunningAppliance(tmp_path, *LOCAL, "--data-dir", str(tmp_path / "file")) as appliance:
        assert appliance.exit_code() == 3
        assert _last_line(appliance).startswith(f"appliance: data folder {tmp_path / 'file'} is not usable: ")


def test_a_folder_in_use_ends_with_code_3_at_once(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL) as first:
        bootstrap = first.ready()["bootstrap_servers"]
        started = time.monotonic()
        with RunningAppliance(tmp_path, *LOCAL) as second:
            assert second.exit_code() == 3
            assert time.monotonic() - started < 7
            assert f"is in use by another appliance (process {first.process.pid})" in _last_line(second)
        assert ask(bootstrap, "pid"), "the first is none the worse"


def test_an_object_store_that_does_not_answer_ends_with_code_4(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--controller", "run_without_store") as appliance:
        assert appliance.exit_code() == 4
        assert "is not reachable" in _last_line(appliance)
        assert appliance.processes() == []


def test_a_broker_that_crashes_at_its_start_ends_with_code_1(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--broker", "run_with_a_bug") as appliance:
        assert appliance.exit_code() == 1
        assert _last_line(appliance) == "appliance: broker-1 crashed: RuntimeError: a bug of ours"


def test_an_unknown_key_names_the_nearest_and_ends_with_code_2(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.retention.hour=2\n")
    with RunningAppliance(tmp_path, *LOCAL, "--config", str(config)) as appliance:
        assert appliance.exit_code() == 2
        assert _last_line(appliance) == (
            "appliance: unknown configuration key log.retention.hour; did you mean log.retention.hours?"
        )


def test_a_network_address_needs_insecure(tmp_path: Path) -> None:
    with RunningAppliance(tmp_path, *LOCAL, "--host", "0.0.0.0") as appliance:
        assert appliance.exit_code() == 2
        assert "--insecure" in _last_line(appliance)


def _last_line(appliance: RunningAppliance) -> str:
    return appliance.log().splitlines()[-1]


def _other_pid(address: str, pid: str) -> str:
    """The pid of whoever serves there now, empty if nobody or still the old one."""
    try:
        found = ask(address, "pid")
    except OSError:
        return ""
    return found if found != pid else ""
