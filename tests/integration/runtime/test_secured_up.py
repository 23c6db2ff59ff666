"""`appliance up` with listeners by Kafka's configs: all of its processes meet under TLS and SASL."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.support.certificates import Authority
from tests.support.repo import REPO
from tests.support.running import REAL, RunningAppliance, wait_for

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
    flags = ("--runtime", "local", "--brokers", "2", "--config", str(config_of(tmp_path, authority)))
    with RunningAppliance(tmp_path, *flags, module=REAL) as appliance:
        ready = appliance.ready()
        inside = {
            "bootstrap.servers": ready["bootstrap_servers"],
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
        assert post(f"{ready['http']}/v1/topics/t/records", '{"value": "by HTTP"}')["failed"] == 0
        source = {"connector.class": "FileStreamSource", "file": str(tmp_path / "lines"), "topic": "t"}
        (tmp_path / "lines").write_text("by a connector\n")
        post(f"{ready['connect']}/connectors", json.dumps({"name": "lines", "config": source}))
        consumer = Consumer(inside | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        got: list[bytes] = []
        wait_for(lambda: got.extend(one.value() for one in consumer.consume(10, 1)) or len(got) == 3, PATIENCE_S)
        consumer.close()
        assert got[0] == b"v" and b"by HTTP" in got[1] and b"by a connector" in got[2]
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


def post(url: str, body: str) -> Any:
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def command(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "appliance.cli", *words], cwd=REPO, timeout=60, check=False).returncode


def test_keys_that_cannot_be_used_end_the_start_in_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    config = config_of(tmp_path, authority, more="ssl.keystore.location=/nowhere.pem")
    flags = ("--runtime", "local", "--services", "none", "--config", str(config))
    with RunningAppliance(tmp_path, *flags, module=REAL) as appliance:
        assert appliance.exit_code() != 0
        assert "TLS keys or certificates cannot be used" in appliance.log()
        assert "Traceback" not in appliance.log()
