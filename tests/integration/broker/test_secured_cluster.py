"""Brokers and controllers that talk to each other under TLS and SASL, and certificates that are renewed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.client.results import NewTopic
from appliance.client.retries import RetryPolicy
from appliance.client.security import ClientSecurity, inter_broker_security
from appliance.records.builder import build_batch
from tests.support.broker import running_cluster
from tests.support.certificates import Authority
from tests.support.running import wait_for
from tests.support.server import is_closed

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" user_broker="b";'
)

REQUEST = bytes.fromhex("0000000a0012000000000007ffff")
"""ApiVersions 0."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


def secured(authority: Authority, keys: Path, protocol: str) -> dict[str, str]:
    return {
        "listeners": "INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": f"INSIDE:{protocol}",
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.inside.plain.sasl.jaas.config": JAAS,
        "ssl.reload.interval.ms": "100",
        "offsets.topic.replication.factor": "3",
    }


def batch() -> bytes:
    return build_batch([(1_700_000_000_000, b"k", b"v" * 50_000, [])])


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_replicas_and_controllers_meet_under_every_protocol(
    tmp_path: Path, authority: Authority, protocol: str
) -> None:
    properties = secured(authority, authority.issue(f"broker-{protocol}", CN="broker"), protocol)
    with running_cluster(tmp_path, 3, properties) as cluster:
        security = inter_broker_security(BrokerConfig(properties))
        patience = RetryPolicy(retry_limit=30)
        with Client(cluster.bootstrap_servers, security=security, retries=patience) as client:
            client.create_topics([NewTopic("t", 1, 3)])
            at = TopicPartition("t", 0)
            for number in range(20):
                # All three have it before the answer comes.
                assert client.produce(at, batch()).base_offset == number
            assert len(client.metadata(["t"]).topics["t"].partitions[0].isr) == 3
            fetched = client.fetch(at, 0, max_bytes=8 << 20)
            assert len(bytes(fetched.records)) == 20 * len(batch())
        # Turned away each time, until its time is over.
        refused = pytest.raises((ConnectionLost, CallTimedOut))
        with refused, Client(cluster.bootstrap_servers, timeout_ms=2_000) as stranger:
            stranger.metadata()


@pytest.fixture
def tls_broker(tmp_path: Path, authority: Authority) -> Iterator[tuple[int, Path, ClientSecurity]]:
    keys = authority.issue("renewed", CN="before")
    properties = secured(authority, keys, "SSL")
    with running_cluster(tmp_path, 1, properties) as cluster:
        yield cluster.brokers[1].port, keys, inter_broker_security(BrokerConfig(properties))


def shown(port: int, security: ClientSecurity) -> Any:
    """The name in the certificate that a new connection is shown."""
    assert security.tls is not None
    with connected(port, security.tls.context) as connection:
        return dict(part[0] for part in connection.getpeercert()["subject"])["commonName"]  # type: ignore[index]


def connected(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10), server_hostname="127.0.0.1")


def test_a_renewed_certificate_is_shown_to_new_connections_and_a_broken_one_is_not_taken(
    tls_broker: tuple[int, Path, ClientSecurity], authority: Authority
) -> None:
    port, keys, security = tls_broker
    assert shown(port, security) == "before"
    assert security.tls is not None
    with connected(port, security.tls.context) as old:
        authority.issue("renewed", CN="after")
        wait_for(lambda: shown(port, security) == "after", 10)
        keys.write_text("no key at all")
        authority.issue("unrelated", CN="unrelated")
        for _ in range(5):
            assert shown(port, security) == "after"
        old.sendall(REQUEST)
        assert old.recv(4), "a connection that was there goes on"


def test_an_unfinished_handshake_and_random_bytes_disturb_nobody(
    tls_broker: tuple[int, Path, ClientSecurity],
) -> None:
    port, _, security = tls_broker
    with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
        silent.sendall(b"\x16\x03\x01")
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x0a" + bytes(10), b"\x16\x03\x01\xff\xff" + b"x" * 70_000):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as odd:
                try:
                    odd.sendall(words)
                    while odd.recv(1_000):
                        pass
                except ConnectionResetError:
                    continue
                assert is_closed(odd)
        assert shown(port, security) == "before"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ssl.keystore.type": "JKS"}, "PEM is what can be read"),
        ({"ssl.keystore.location": "/nowhere/key.pem"}, "cannot be used"),
        ({"ssl.enabled.protocols": "SSLv3"}, "no version of TLS"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "known here"),
        ({"listener.name.inside.plain.sasl.jaas.config": "no;"}, "not of the form"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "cannot read"),
    ],
)
def test_configs_that_cannot_be_end_the_start_in_one_line(
    tmp_path: Path, authority: Authority, changed: dict[str, str], words: str
) -> None:
    protocol = "SSL" if "mapping" in str(changed) else "SASL_SSL"
    properties = secured(authority, authority.issue("broker", CN="broker"), protocol) | changed
    with pytest.raises(UserError, match=words), running_cluster(tmp_path, 1, properties):
        pass


def test_tls_contexts_take_keys_from_the_configs_themselves(tmp_path: Path, authority: Authority) -> None:
    keys = authority.issue("inline", CN="inline").read_text()
    key, _, chain = keys.partition("-----BEGIN CERTIFICATE-----")
    chain = f"-----BEGIN CERTIFICATE-----{chain}"
    properties = secured(authority, tmp_path, "SSL") | {
        "ssl.keystore.key": " ".join(key.split("\n")),
        "ssl.keystore.certificate.chain": " ".join(chain.split("\n")),
        "ssl.truststore.certificates": authority.ca.read_text(),
    }
    del properties["ssl.keystore.location"], properties["ssl.truststore.location"]
    del properties["ssl.keystore.type"], properties["ssl.truststore.type"]
    with running_cluster(tmp_path, 1, properties) as cluster:
        assert shown(cluster.brokers[1].port, inter_broker_security(BrokerConfig(properties))) == "inline"
        context = ssl.create_default_context(cafile=str(authority.ca))
        # TLS 1.3 tells only afterwards that a certificate was missing.
        with connected(cluster.brokers[1].port, context) as without, pytest.raises(OSError):
            without.sendall(REQUEST)
            if not without.recv(1):
                raise ConnectionResetError
