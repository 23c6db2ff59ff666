"""Flag, variable, file, default: who wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.cli.up_options import resolve


def file_of(folder: Path, text: str) -> Path:
    path = folder / "server.properties"
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_definitions() -> None:
    settings, warnings = resolve({}, {}, None)
    assert (settings.brokers, settings.host, settings.port) == (1, "127.0.0.1", 9092)
    assert (settings.http_port, settings.connect_port, settings.runtime) == (8082, 8083, "ray")
    assert settings.data_dir == Path("appliance-data").absolute()
    assert (settings.services, settings.insecure, warnings) == (("all",), False, [])


def test_a_flag_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, "port=1001\nbrokers=2\nnum.partitions=5\nlog.retention.ms=7\n")
    environment = {"APPLIANCE_PORT": "1002", "APPLIANCE_BROKERS": "3", "APPLIANCE_LOG_RETENTION_MS": "8"}
    settings, _ = resolve({"port": "1003", "brokers": None}, environment, path)
    assert (settings.port, settings.brokers) == (1003, 3)
    assert settings.properties == {"num.partitions": "5", "log.retention.ms": "8"}


def test_a_variable_may_name_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, "brokers=4")
    assert resolve({}, {"APPLIANCE_CONFIG": str(path)}, None)[0].brokers == 4


def test_kafkas_own_file_works_and_tells_what_has_no_effect(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9192,CONTROLLER://:9193
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://kafka.example:9192,CONTROLLER://localhost:9193
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kraft
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
""",
    )
    settings, warnings = resolve({}, {}, path)
    assert (settings.host, settings.port, settings.advertised_host) == ("127.0.0.1", 9192, "kafka.example")
    assert settings.data_dir == Path("/var/lib/kraft")
    assert settings.properties["socket.request.max.bytes"] == "104857600"
    assert "listeners" not in settings.properties
    assert any(warning.startswith("num.io.threads has no effect: ") for warning in warnings)
    assert not any("num.partitions" in warning for warning in warnings)


def test_a_flag_wins_over_kafkas_name_for_the_same_in_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, "listeners=PLAINTEXT://127.0.0.2:9192\nlog.dirs=/a\nport=9292\n")
    settings, _ = resolve({"data.dir": "/b", "host": "127.0.0.3"}, {}, path)
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.3", 9292, Path("/b"))


@pytest.mark.parametrize(
    ("text", "flags", "data_dir", "log_dirs"),
    [
        ("log.dirs=/a", {}, "/a", []),
        ("log.dirs=/a, /b,/a", {}, "/a", ["/a", "/b"]),
        ("log.dir=/a", {"log.dirs": "/c,/d"}, "/c", ["/c", "/d"]),
        ("log.dirs=/a,/b", {"data.dir": "/d"}, "/d", ["/a", "/b"]),
        ("log.dirs=/a,/b", {"log.dirs": "/c"}, "/c", []),
        ("log.dirs=/a", {"data.dir": "/d"}, "/d", []),
        ("", {"data.dir": "/d", "log.dirs": "/a"}, "/d", ["/a"]),
    ],
)
def test_several_folders_are_for_logs_and_one_alone_is_for_everything(
    tmp_path: Path, text: str, flags: dict[str, str], data_dir: str, log_dirs: list[str]
) -> None:
    settings, _ = resolve(flags, {}, file_of(tmp_path, text))
    assert settings.data_dir == Path(data_dir)
    assert settings.log_dirs == tuple(map(Path, log_dirs))


def test_several_listeners_go_to_the_brokers_as_they_are(tmp_path: Path) -> None:
    text = "listeners=PLAINTEXT://127.0.0.1:9192,SSL://0.0.0.0:9292\nservices=none\nlistener.name.ssl.ssl.client.auth=required"
    settings, warnings = resolve({}, {}, file_of(tmp_path, text))
    assert [one.text for one in settings.listeners.bound] == ["PLAINTEXT://127.0.0.1:9192", "SSL://0.0.0.0:9292"]
    assert settings.properties["listener.name.ssl.ssl.client.auth"] == "required"
    assert settings.broker_ports == {9192, 9292} and warnings == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log.retention.hour=1", r"log\.retention\.hours"),
        ("retention.ms=1", "unknown configuration key retention.ms"),
        ("brokers=0", "brokers"),
        ("brokers=many", "brokers"),
        ("port=70000", "port"),
        ("runtime=docker", "ray, local"),
        ("listeners=PLAINTEXT://:9092,OTHER://:9093", "OTHER has no protocol"),
        ("listeners=PLAINTEXT://host", "NAME://host:port"),
        ("listeners=PLAINTEXT://10.0.0.1:9092,SSL://10.0.0.1:9093", "--insecure"),
        ("listeners=PLAINTEXT://:9092,SSL://:9094\nbrokers=3", "too few ports"),
        ("listener.name.ssl.ssl.client.off=none", "unknown configuration key listener.name.ssl.ssl.client.off"),
        ("log.dirs= , ", "no folder"),
        ("host=10.0.0.1", "--insecure"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        resolve({}, {}, file_of(tmp_path, text))
    assert refused.value.exit_code == 2


def test_a_mistyped_variable_is_not_passed_over() -> None:
    with pytest.raises(UserError, match=r"data\.dri; did you mean data\.dir\?"):
        resolve({}, {"APPLIANCE_DATA_DRI": "/a"}, None)
