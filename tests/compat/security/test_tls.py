"""Listeners under TLS, ours and Apache Kafka's by the same configs, as unmodified clients find them."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from tests.support.certificates import Authority
from tests.support.java_tools import tool
from tests.support.secured import SERVER_KIND, SecuredServer, secured_server

pytestmark = [pytest.mark.xdist_group("security-tls"), pytest.mark.java]

PATIENCE_S = 30
VALUES = [b"%d" % number + b"x" * 900 for number in range(3_000)]
"""Some megabytes: answers that no socket takes at once."""


class Keys:
    """An authority that the brokers trust, one that they do not, and a client of each."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        self.broker = self.authority.issue("broker", CN="broker", O="example")
        self.alice = self.authority.issue("alice", C="DE", O="example", OU="data", CN="alice")
        self.locked = self.authority.issue("locked", password="secret", CN="broker")
        self.stranger = Authority(folder / "others", "Other Authority").issue("mallory", CN="mallory")

    def client(self, server: SecuredServer, listener: str, certificate: Path | None = None) -> dict[str, Any]:
        """For librdkafka."""
        settings: dict[str, Any] = {
            "bootstrap.servers": server.at(listener),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.ca),
            "log_level": 0,
        }
        if certificate is not None:
            settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
        return settings

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.ca))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Any]:
    """OUTSIDE asks for no certificate, MUTUAL for one; our key of MUTUAL has a password."""
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority.ca),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    if SERVER_KIND == "appliance":
        # Java 17, which runs Apache Kafka here, does not read keys that are encrypted in the way of today (PBES2).
        properties["listener.name.mutual.ssl.keystore.location"] = str(keys.locked)
        properties["listener.name.mutual.ssl.key.password"] = "secret"
    folder = tmp_path_factory.mktemp(SERVER_KIND)
    with secured_server(SERVER_KIND, folder, {"OUTSIDE": "SSL", "MUTUAL": "SSL"}, properties) as running:
        yield running


def new_topic(server: SecuredServer) -> str:
    name = f"tls-{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": server.at("PLAINTEXT"), "allow.auto.create.topics": True})
    producer.produce(name, b"first")
    assert producer.flush(PATIENCE_S) == 0
    return name


def read_all(consumer: Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        messages = consumer.consume(500, PATIENCE_S)
        assert messages, f"{len(got)} of {count}"
        got += [message.value() for message in messages if message.error() is None]
    return got


def test_metadata_names_the_listener_on_which_it_was_asked(server: SecuredServer, keys: Keys) -> None:
    new_topic(server)
    for listener, settings in (
        ("PLAINTEXT", {"bootstrap.servers": server.at("PLAINTEXT")}),
        ("OUTSIDE", keys.client(server, "OUTSIDE")),
        ("MUTUAL", keys.client(server, "MUTUAL", keys.alice)),
    ):
        admin = AdminClient(settings)
        found = admin.list_topics(timeout=PATIENCE_S)
        assert [f"{one.host}:{one.port}" for one in found.brokers.values()] == [server.at(listener)]
        nodes = admin.describe_cluster().result(PATIENCE_S).nodes
        assert [f"{one.host}:{one.port}" for one in nodes] == [server.at(listener)]


def test_megabytes_go_in_and_come_out_under_tls_with_librdkafka(server: SecuredServer, keys: Keys) -> None:
    topic = new_topic(server)
    producer = Producer({**keys.client(server, "MUTUAL", keys.alice), "linger.ms": 20})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    settings = {**keys.client(server, "OUTSIDE"), "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    assert read_all(consumer, len(VALUES) + 1) == [b"first", *VALUES]
    consumer.close()


def test_kafka_python_produces_and_consumes_under_tls(server: SecuredServer, keys: Keys) -> None:
    topic = new_topic(server)
    settings = {
        "bootstrap_servers": server.at("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_cafile": str(keys.authority.ca),
        "ssl_certfile": str(keys.alice),
        "ssl_keyfile": str(keys.alice),
    }
    producer = KafkaProducer(**settings)
    for value in VALUES[:300]:
        producer.send(topic, value)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    got = [next(consumer).value for _ in range(301)]
    consumer.close()
    assert got == [b"first", *VALUES[:300]]


def test_aiokafka_produces_and_consumes_under_tls(server: SecuredServer, keys: Keys) -> None:
    topic = new_topic(server)
    settings: dict[str, Any] = {"bootstrap_servers": server.at("OUTSIDE"), "security_protocol": "SSL"}

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**settings, ssl_context=keys.context()) as producer:
            for value in VALUES[:100]:
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(topic, **settings, ssl_context=keys.context(), auto_offset_reset="earliest")
        async with consumer:
            return [(await consumer.getone()).value for _ in range(101)]

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == [b"first", *VALUES[:100]]


def test_kafkas_own_tools_work_under_tls(server: SecuredServer, keys: Keys, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={keys.authority.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={keys.alice}\n"
    )
    common = ["--bootstrap-server", server.at("MUTUAL"), "--command-config", str(config)]
    name = f"tls-{uuid.uuid4().hex[:12]}"
    tool("TopicCommand", *common, "--create", "--topic", name, "--partitions", "3")
    assert "PartitionCount: 3" in tool("TopicCommand", *common, "--describe", "--topic", name)


@pytest.mark.parametrize("certificate", ["none", "stranger"])
def test_who_shows_no_certificate_or_a_strangers_is_refused_and_others_go_on(
    server: SecuredServer, keys: Keys, certificate: str
) -> None:
    refused = AdminClient(keys.client(server, "MUTUAL", keys.stranger if certificate == "stranger" else None))
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=2)
    welcome = AdminClient(keys.client(server, "MUTUAL", keys.alice))
    assert welcome.list_topics(timeout=PATIENCE_S).brokers


def test_a_client_that_does_not_trust_the_authority_goes_away(server: SecuredServer, keys: Keys) -> None:
    settings = keys.client(server, "OUTSIDE") | {"ssl.ca.location": str(keys.stranger)}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)


def test_words_that_are_no_tls_harm_nobody(server: SecuredServer, keys: Keys) -> None:
    plain = AdminClient({"bootstrap.servers": server.at("OUTSIDE"), "log_level": 0})
    with pytest.raises(KafkaException):
        plain.list_topics(timeout=2)
    assert AdminClient(keys.client(server, "OUTSIDE")).list_topics(timeout=PATIENCE_S).brokers
