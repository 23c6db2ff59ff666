"""`appliance up` with listeners by Kafka's configs: all of its processes meet under TLS and SASL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.certificates import Authority
from tests.support.repo import REPO
from tests.support.running import REAL, RunningAppliance

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PATIENCE_S = 30


def config_of(folder: Path, authority: Authority, more: str = "") -> Path:
    path = folder / "server.properties"
    path.write_text(
        f"""listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0
listener.security.protocol.map=INSIDE:SASL_SSL,OUTSIDE:SSL
inter.broker.listener.name=INSIDE
ssl.keystore.type=PEM
ssl.keystore.location={authority.issue("broker", CN="broker")}
ssl.truststore.type=PEM
ssl.truststore.location={authority.ca}
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.inside.plain.sasl.jaas.config={MODULE} required username="broker" password="b" user_broker="b";
{more}
"""
    )
    return path


def test_an_appliance_whose_listeners_are_all_secured_comes_up_and_serves(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    flags = ("--runtime", "local", "--brokers", "2", "--services", "none")
    with RunningAppliance(tmp_path, *flags, "--config", str(config_of(tmp_path, authority)), module=REAL) as appliance:
        inside = {
            "bootstrap.servers": appliance.ready()["bootstrap_servers"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "broker",
            "sasl.password": "b",
            "ssl.ca.location": str(authority.ca),
        }
        brokers = AdminClient(inside).list_topics(timeout=PATIENCE_S).brokers
        told = ",".join(f"{brokers[number].host}:{brokers[number].port}" for number in (1, 2))
        assert told == inside["bootstrap.servers"]
        producer = Producer(inside)
        producer.produce("t", b"v")
        assert producer.flush(PATIENCE_S) == 0
        at = inside["bootstrap.servers"]
        client = tmp_path / "client.properties"
        client.write_text(
            f"""security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={MODULE} required username="broker" password="b";
ssl.truststore.type=PEM
ssl.truststore.location={authority.ca}
client.id=passed-over
"""
        )
        assert command("--command-config", str(client), "topics", "list", "-b", at) == 0
        assert command("--command-config", str(client), "status", "-b", at) == 0
        assert command("topics", "list", "-b", at) == 1
        client.write_text(client.read_text().replace('password="b"', 'password="c"'))
        assert command("--command-config", str(client), "topics", "list", "-b", at) == 1


def command(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "appliance.cli", *words], cwd=REPO, timeout=60, check=False).returncode


def test_services_that_could_not_reach_the_brokers_are_refused_in_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    config = config_of(tmp_path, authority)
    with RunningAppliance(tmp_path, "--runtime", "local", "--config", str(config), module=REAL) as appliance:
        assert appliance.exit_code() == 2
        assert "--services none" in appliance.log()
        assert "Traceback" not in appliance.log()


def test_keys_that_cannot_be_used_end_the_start_in_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    config = config_of(tmp_path, authority, more="ssl.keystore.location=/nowhere.pem")
    flags = ("--runtime", "local", "--services", "none", "--config", str(config))
    with RunningAppliance(tmp_path, *flags, module=REAL) as appliance:
        assert appliance.exit_code() != 0
        assert "TLS keys or certificates cannot be used" in appliance.log()
        assert "Traceback" not in appliance.log()
