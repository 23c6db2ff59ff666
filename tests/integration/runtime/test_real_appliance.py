"""A whole appliance on the local runtime, used through the command line as a user would."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.moto_server import CREDENTIALS, MotoServer
from tests.support.repo import REPO
from tests.support.running import REAL, RunningAppliance, python_environment, wait_for

LOCAL = ("--runtime", "local")


class Commands:
    """`appliance …` against one appliance."""

    def __init__(self, appliance: RunningAppliance) -> None:
        self.appliance = appliance
        self.ready = appliance.ready()
        self.bootstrap = str(self.ready["bootstrap_servers"])

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "appliance.cli", *arguments, "-b", self.bootstrap],
            cwd=REPO,
            env=python_environment(),
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stderr.decode()}\n{self.appliance.log()}"
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self.run(*arguments, "--format", "json", stdin=stdin))

    def records(self, topic: str, *arguments: str) -> list[dict[str, Any]]:
        """The topic's records, by partition and offset."""
        lines = self.run("consume", topic, "--from-beginning", "-e", "--format", "json", *arguments).splitlines()
        return sorted((json.loads(line) for line in lines), key=lambda record: (record["partition"], record["offset"]))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    folder = tmp_path_factory.mktemp("appliance")
    with RunningAppliance(folder, *LOCAL, "--brokers", "3", "--services", "none", module=REAL) as appliance:
        yield Commands(appliance)


def test_ready_names_brokers_that_answer(commands: Commands) -> None:
    status = commands.json("status")
    assert status["cluster_id"] == commands.ready["cluster_id"]
    assert [broker["address"] for broker in status["brokers"]] == commands.bootstrap.split(",")
    assert status["object_store"] == commands.ready["object_store"]
    assert status["problems"] == []


def test_status_tells_of_the_controller_and_of_every_broker(commands: Commands) -> None:
    controller = commands.json("status")["controller"]
    assert (controller["active"], controller["store"]) == (True, "ok")
    assert [broker["broker_id"] for broker in controller["brokers"] if not broker["fenced"]] == [1, 2, 3]
    assert b"healthy" in commands.run("status")


def test_the_tier_is_shown_verified_and_its_damage_found(commands: Commands) -> None:
    store = str(commands.ready["object_store"])
    commands.run("topics", "create", "tiered", "-c", "internal.segment.bytes=12000")
    for _ in range(3):
        commands.run("produce", "tiered", stdin=b"".join(b"%d\n" % number for number in range(1_000)))

    def tiered_end() -> int:
        rows = commands.json("status", "--tiering")["tiering"]
        return next((row["tiered_end"] for row in rows if row["topic"] == "tiered"), 0)

    wait_for(lambda: tiered_end() >= 2_000, 20, commands.appliance.log)
    (found,) = [row for row in tier_verify(store)["partitions"] if row["topic"] == "tiered"]
    assert (found["start_offset"], found["end_offset"], found["problems"]) == (0, 2_000, [])
    assert len(commands.records("tiered")) == 3_000

    (topic,) = commands.json("topics", "describe", "tiered")
    folder = Path(store.removeprefix("file://")) / "tier" / topic["topic_id"] / "00000" / "seg"
    first = min(path for path in folder.iterdir() if path.is_file())
    whole = first.read_bytes()
    first.write_bytes(whole[:100] + b"?" + whole[101:])
    assert [problem["kind"] for problem in tier_verify(store, code=1)["partitions"][0]["problems"]] == ["damaged"]
    first.write_bytes(whole)
    assert tier_verify(store)["whole"]


def tier_verify(store: str, code: int = 0) -> Any:
    command = [sys.executable, "-m", "appliance.cli", "tier", "verify", store, "--format", "json"]
    done = subprocess.run(command, cwd=REPO, env=python_environment(), capture_output=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_topic_lives_from_create_to_delete(commands: Commands) -> None:
    (created,) = commands.json("topics", "create", "lives", "-p", "3", "-c", "retention.ms=1000")
    assert (created["created"], created["partitions"], created["replicas"]) == (True, 3, 1)
    assert b"lives exists" in commands.run("topics", "create", "lives", "--if-not-exists")
    assert "lives" in [row["topic"] for row in commands.json("topics", "list")]
    (described,) = commands.json("topics", "describe", "lives")
    assert described["topic_id"] == created["topic_id"]
    assert described["configs"] == {"retention.ms": "1000"}
    assert [part["end"] for part in described["partitions"]] == [0, 0, 0]
    assert commands.run("topics", "delete", "lives") == b"lives deleted\n"
    assert "lives" not in [row["topic"] for row in commands.json("topics", "list")]
    commands.run("topics", "delete", "lives", "--if-exists")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topics", "create", "bad name!"), "INVALID_TOPIC_EXCEPTION"),
        (("topics", "create", "t", "-c", "retention.m=1"), "INVALID_CONFIG"),
        (("topics", "create", "t", "-r", "9"), "INVALID_REPLICATION_FACTOR"),
        (("topics", "describe", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "delete", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("consume", "nowhere", "-e"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_what_the_cluster_refuses_is_one_line_with_kafkas_code(
    commands: Commands, arguments: tuple[str, ...], words: str
) -> None:
    said = commands.run(*arguments, code=1).decode()
    assert said.startswith("appliance: ")
    assert words in said
    assert said.count("\n") == 1


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def lines_topics(commands: Commands) -> None:
    commands.run("topics", "create", "-p", "3", *(f"lines-{codec}" for codec in CODECS))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.usefixtures("lines_topics")
def test_lines_come_back_as_they_went_in(commands: Commands, codec: str) -> None:
    topic = f"lines-{codec}"
    lines = [f"key-{number % 7}:value {number} ä".encode() for number in range(3_000)]
    told = commands.json("produce", topic, "-K", ":", "-z", codec, "-H", "from=test", stdin=b"\n".join(lines))
    assert told["records"] == 3_000
    records = commands.records(topic)
    assert len(records) == 3_000
    assert {record["headers"]["from"] for record in records} == {"test"}
    by_key: dict[str, list[int]] = {}
    for record in records:
        by_key.setdefault(record["key"], []).append(int(record["value"].split()[1]))
    assert by_key == {f"key-{key}": list(range(key, 3_000, 7)) for key in range(7)}, "in order within each key"


def test_bytes_nulls_and_templates_are_shown_as_they_are(commands: Commands) -> None:
    commands.run("topics", "create", "bytes")
    commands.run("produce", "bytes", "-K", ":", "-Z", stdin=b"k:\xff\x00\nk:\n")
    first, second = commands.records("bytes")
    assert first["value_base64"] == "/wA="
    assert second["value"] is None
    shown = commands.run("consume", "bytes", "-o", "start", "-n", "1", "-f", "%t/%p/%o %k=%v%%\\n")
    assert shown == b"bytes/0/0 k=\xff\x00%\n"


def test_offsets_are_found_from_both_ends_and_by_time(commands: Commands) -> None:
    commands.run("topics", "create", "offsets")
    commands.run("produce", "offsets", stdin=b"".join(b"%d\n" % number for number in range(10)))

    def values(offset: str) -> bytes:
        return commands.run("consume", "offsets", "-e", "-o", offset).replace(b"\n", b"")

    assert values("start") == b"0123456789"
    assert values("7") == values("-3") == values("+7") == b"789"
    assert values("@0") == b"0123456789"
    assert values("end") == b""
    assert values("-100") == b"0123456789"


def test_a_missing_topic_is_made_by_producing_to_it(commands: Commands) -> None:
    commands.run("produce", "made-by-producing", stdin=b"a\n")
    assert [record["value"] for record in commands.records("made-by-producing")] == ["a"]


def test_a_record_that_is_too_large_is_refused_and_the_next_is_taken(commands: Commands) -> None:
    commands.run("topics", "create", "small", "-c", "max.message.bytes=1000")
    assert b"MESSAGE_TOO_LARGE" in commands.run("produce", "small", stdin=b"x" * 2_000, code=1)
    commands.run("produce", "small", stdin=b"fits\n")
    assert [record["value"] for record in commands.records("small")] == ["fits"]


def test_a_killed_broker_serves_again_what_it_acknowledged(commands: Commands) -> None:
    commands.run("topics", "create", "killed", "-p", "3")
    told = commands.json("produce", "killed", stdin=b"".join(b"%d\n" % number for number in range(1_000)))
    assert told["records"] == 1_000
    log = commands.appliance.log()
    for broker in (1, 2, 3):
        (pid,) = re.findall(rf"broker-{broker} serves at \S+ \(pid (\d+)\)", log)
        os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: len(re.findall(r"broker-\d serves at \S+ again", commands.appliance.log())) == 3, 20)
    assert len(commands.records("killed")) == 1_000
    commands.run("produce", "killed", stdin=b"and on\n")
    assert len(commands.records("killed")) == 1_001


def test_data_survives_a_restart_and_the_cluster_stays_itself(tmp_path: Path) -> None:
    clusters = set()
    for number in range(2):
        with RunningAppliance(tmp_path, *LOCAL, "--brokers", "2", "--services", "none", module=REAL) as appliance:
            commands = Commands(appliance)
            clusters.add(commands.ready["cluster_id"])
            commands.run("produce", "survives", stdin=b"%d\n" % number)
            assert [record["value"] for record in commands.records("survives")] == ["0", "1"][: number + 1]
            appliance.process.send_signal(signal.SIGTERM)
            assert appliance.exit_code() == 0
            assert appliance.processes() == []
    assert len(clusters) == 1


def test_kafkas_names_in_a_file_reach_the_brokers(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=4\nauto.create.topics.enable=false\nlog.retention.hours=1\n")
    arguments = (*LOCAL, "--config", str(config), "--services", "none")
    with RunningAppliance(tmp_path, *arguments, module=REAL) as appliance:
        commands = Commands(appliance)
        assert b"UNKNOWN_TOPIC_OR_PARTITION" in commands.run("produce", "nowhere", stdin=b"a\n", code=1)
        commands.run("topics", "create", "configured")
        (described,) = commands.json("topics", "describe", "configured", "-a")
        assert len(described["partitions"]) == 4
        assert described["configs"]["retention.ms"] == "3600000"


def test_metadata_and_tier_may_lie_on_s3(tmp_path: Path) -> None:
    with MotoServer() as s3:
        bucket = s3.bucket()
        arguments = (*LOCAL, "--object-store", f"s3://{bucket}/one", "--services", "none")
        with RunningAppliance(tmp_path, *arguments, module=REAL, environment=s3.environment) as appliance:
            commands = Commands(appliance)
            assert commands.ready["object_store"] == f"s3://{bucket}/one"
            commands.run("topics", "create", "on-s3")
            commands.run("produce", "on-s3", stdin=b"a\n")
            assert commands.json("status")["problems"] == []
        assert not (tmp_path / "data" / "object-store").exists()


def test_an_s3_that_nobody_answers_for_ends_with_code_4(tmp_path: Path) -> None:
    environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    arguments = (*LOCAL, "--object-store", "s3://bucket/prefix", "--services", "none")
    with RunningAppliance(tmp_path, *arguments, module=REAL, environment=environment) as appliance:
        assert appliance.exit_code(60) == 4
        last = appliance.log().splitlines()[-1]
        assert last.startswith("appliance: object store s3://bucket/prefix is not reachable: ")
        assert appliance.processes() == []


@pytest.mark.parametrize("port_of", ["broker 1", "service http"])
def test_a_taken_port_is_named_and_ends_with_code_3(tmp_path: Path, port_of: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flag = "--port" if port_of == "broker 1" else "--http-port"
        with RunningAppliance(tmp_path, *LOCAL, flag, str(port), module=REAL) as appliance:
            assert appliance.exit_code() == 3
            said = f"appliance: {port_of}: cannot listen on 127.0.0.1:{port}: Address already in use"
            assert appliance.log().splitlines()[-1] == said
