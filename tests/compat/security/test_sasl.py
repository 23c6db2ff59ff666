"""SASL by PLAIN and SCRAM, ours and Apache Kafka's by the same configs, as unmodified clients find it."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer

from tests.support.certificates import Authority
from tests.support.java_tools import tool
from tests.support.secured import SERVER_KIND, SecuredServer, secured_server
from tests.support.server import is_closed, receive_frame
from tests.support.tokens import TokenIssuer

pytestmark = [pytest.mark.xdist_group("security-sasl"), pytest.mark.java]

PATIENCE_S = 30
DELAY_MS = 300
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "carol-secret, with = and ü"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    authority: Authority,
    issuer: TokenIssuer,
) -> Iterator[SecuredServer]:
    """CLEAR is SASL_PLAINTEXT, CLOSED is SASL_SSL, SHORT has sessions of two seconds, TOKENS is for OAUTHBEARER."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'{plain} user_alice="alice-secret" user_bob="bob-secret";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "listener.name.short.connections.max.reauth.ms": "2000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", CN="broker")),
    }
    for listener in ("clear", "closed", "short"):
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = users
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
    security = "org.apache.kafka.common.security.oauthbearer"
    tokens = "listener.name.tokens"
    properties |= {
        f"{tokens}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{tokens}.oauthbearer.sasl.jaas.config": f"{security}.OAuthBearerLoginModule required;",
        f"{tokens}.oauthbearer.sasl.server.callback.handler.class": f"{security}.OAuthBearerValidatorCallbackHandler",
        f"{tokens}.sasl.oauthbearer.jwks.endpoint.url": issuer.keys.as_uri(),
        f"{tokens}.sasl.oauthbearer.expected.audience": "kafka",
    }
    folder = tmp_path_factory.mktemp(SERVER_KIND)
    protocols = dict.fromkeys(("CLEAR", "SHORT", "TOKENS"), "SASL_PLAINTEXT") | {"CLOSED": "SASL_SSL"}
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.keys.as_uri()}"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        # Apache Kafka reads keys only from where its JVM is told that it may.
        patch.setenv("JDK_JAVA_OPTIONS", f"{allowed} -Dorg.apache.kafka.sasl.oauthbearer.allowed.files={issuer.keys}")
        running = stack.enter_context(secured_server(SERVER_KIND, folder, protocols, properties))
        patch.undo()
        admin = AdminClient({"bootstrap.servers": running.at("PLAINTEXT")})
        admin.list_topics(timeout=PATIENCE_S)
        for number in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(number, 4096)
            alter(admin, UserScramCredentialUpsertion("carol,=", info, PASSWORD.encode()))
        yield running


def alter(admin: AdminClient, change: Any) -> None:
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(PATIENCE_S)


def client(server: SecuredServer, listener: str, mechanism: str, ca: Path, **more: Any) -> dict[str, Any]:
    """For librdkafka."""
    name, password = ("alice", "alice-secret") if mechanism == "PLAIN" else ("carol,=", PASSWORD)
    return {
        "bootstrap.servers": server.at(listener),
        "security.protocol": "SASL_SSL" if listener == "CLOSED" else "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "ssl.ca.location": str(ca),
        "log_level": 0,
        **more,
    }


def failure_of(settings: dict[str, Any]) -> str:
    """What librdkafka tells of an authentication that fails."""
    told: list[KafkaError] = []
    admin = AdminClient({**settings, "error_cb": told.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    return " ".join(str(error) for error in told if error.code() == KafkaError._AUTHENTICATION)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["CLEAR", "CLOSED"])
def test_librdkafka_comes_in(server: SecuredServer, authority: Authority, listener: str, mechanism: str) -> None:
    settings = client(server, listener, mechanism, authority.ca)
    topic = f"sasl-{uuid.uuid4().hex[:12]}"
    producer = Producer(settings)
    producer.produce(topic, b"by " + mechanism.encode())
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"by " + mechanism.encode()
    consumer.close()


@pytest.mark.parametrize(
    ("name", "password"), [("alice", "wrong"), ("nobody", "alice-secret")], ids=["password", "name"]
)
def test_wrong_words_are_refused_in_kafkas_words(
    server: SecuredServer, authority: Authority, name: str, password: str
) -> None:
    wrong = {"sasl.username": name, "sasl.password": password}
    told = failure_of(client(server, "CLEAR", "PLAIN", authority.ca) | wrong)
    assert "Authentication failed: Invalid username or password" in told
    told = failure_of(client(server, "CLEAR", "SCRAM-SHA-256", authority.ca) | wrong)
    expected = (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert expected in told


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(server: SecuredServer) -> None:
    with connected(server, "CLEAR") as plain:
        plain.sendall(request(17, 1, text("GSSAPI")))
        answer = receive_frame(plain)
        assert struct.unpack_from(">h", answer, 4) == (33,)
        assert [name for name in MECHANISMS if name.encode() in answer] == list(MECHANISMS)
        assert is_closed(plain)


def test_nothing_but_authentication_is_answered_before_it(server: SecuredServer) -> None:
    for frame in (request(3, 1, struct.pack(">i", 0)), request(36, 1, struct.pack(">i", 3) + b"a\0b")):
        with connected(server, "CLEAR") as plain:
            plain.sendall(frame)
            assert is_closed(plain)


def test_nobody_sends_much_before_authentication(server: SecuredServer) -> None:
    with connected(server, "CLEAR") as plain:
        plain.sendall(struct.pack(">i", 524_289) + bytes(100))
        assert is_closed(plain)


def test_an_authentication_that_fails_is_told_after_a_delay_and_the_connection_ends(server: SecuredServer) -> None:
    with connected(server, "CLEAR") as plain:
        plain.sendall(request(17, 1, text("PLAIN")))
        assert receive_frame(plain)[4:6] == b"\0\0"
        before = time.monotonic()
        token = b"\0alice\0wrong"
        plain.sendall(request(36, 1, struct.pack(">i", len(token)) + token))
        answer = receive_frame(plain)
        assert time.monotonic() - before >= DELAY_MS / 1000 * 0.9
        assert struct.unpack_from(">h", answer, 4) == (58,)
        assert is_closed(plain)


def test_tokens_come_as_bare_frames_after_the_oldest_handshake(server: SecuredServer) -> None:
    with connected(server, "CLEAR") as plain:
        plain.sendall(request(17, 0, text("PLAIN")))
        assert receive_frame(plain)[4:6] == b"\0\0"
        token = b"\0alice\0alice-secret"
        plain.sendall(struct.pack(">i", len(token)) + token)
        assert receive_frame(plain) == b""
        plain.sendall(request(3, 1, struct.pack(">i", 0)))
        assert len(receive_frame(plain)) > 20


def test_who_is_in_already_or_need_not_show_anything_hears_that(server: SecuredServer) -> None:
    with connected(server, "PLAINTEXT") as plain:
        plain.sendall(request(17, 1, text("PLAIN")))
        assert struct.unpack_from(">h", receive_frame(plain), 4) == (34,)
        plain.sendall(request(36, 1, struct.pack(">i", 0)))
        assert struct.unpack_from(">h", receive_frame(plain), 4) == (34,)


def test_a_session_ends_unless_the_client_begins_anew(server: SecuredServer, authority: Authority) -> None:
    with connected(server, "SHORT") as plain:
        plain.sendall(request(17, 1, text("PLAIN")))
        receive_frame(plain)
        token = b"\0alice\0alice-secret"
        plain.sendall(request(36, 1, struct.pack(">i", len(token)) + token))
        answer = receive_frame(plain)
        lifetime_ms = struct.unpack(">q", answer[-8:])[0]
        assert 0 < lifetime_ms <= 2000
        metadata = request(3, 1, struct.pack(">i", 0))
        plain.sendall(metadata)
        assert len(receive_frame(plain)) > 20
        # The one wait here that no clock of ours can shorten: Apache Kafka's session is as long.
        time.sleep(lifetime_ms / 1000 + 0.3)
        plain.sendall(metadata)
        assert is_closed(plain)


def test_a_client_goes_on_through_new_authentications_as_itself_only(server: SecuredServer) -> None:
    with connected(server, "SHORT") as plain:
        authenticate(plain, b"\0alice\0alice-secret")
        for _ in range(2):
            time.sleep(1.1)
            assert authenticate(plain, b"\0alice\0alice-secret")[4:6] == b"\0\0"
        plain.sendall(request(3, 1, struct.pack(">i", 0)))
        assert len(receive_frame(plain)) > 20
        time.sleep(1.1)
        refused = authenticate(plain, b"\0bob\0bob-secret")
        assert struct.unpack_from(">h", refused, 4) == (58,)
        assert b"Cannot change principals during re-authentication from User.alice: User.bob" in refused


def with_token(server: SecuredServer, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.at("TOKENS"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3_600),
        "log_level": 0,
    }


def test_a_client_comes_in_with_a_token_and_stays_as_long_as_it_lasts(
    server: SecuredServer, issuer: TokenIssuer
) -> None:
    topic = f"sasl-{uuid.uuid4().hex[:12]}"
    producer = Producer(with_token(server, issuer.token(aud="kafka")))
    producer.produce(topic, b"by a token")
    assert producer.flush(PATIENCE_S) == 0
    with connected(server, "TOKENS") as plain:
        token = issuer.token(aud="kafka", lifetime_s=2)
        answer = authenticate(plain, f"n,,\x01auth=Bearer {token}\x01\x01".encode(), "OAUTHBEARER")
        assert answer[4:6] == b"\0\0" and 0 < struct.unpack(">q", answer[-8:])[0] <= 2_000


def test_a_token_that_has_ended_or_is_meant_for_others_is_refused(server: SecuredServer, issuer: TokenIssuer) -> None:
    for token in (issuer.token(aud="kafka", now=time.time() - 10_000), issuer.token(aud="others")):
        with connected(server, "TOKENS") as plain:
            answer = authenticate(plain, f"n,,\x01auth=Bearer {token}\x01\x01".encode(), "OAUTHBEARER")
            assert answer[4:6] == b"\0\0" and b'{"status":"invalid_token"}' in answer
            plain.sendall(request(36, 1, struct.pack(">i", 1) + b"\x01"))
            refused = receive_frame(plain)
            assert struct.unpack_from(">h", refused, 4) == (58,) and b'{"status":"invalid_token"}' in refused
            assert is_closed(plain)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_other_clients_come_in(server: SecuredServer, authority: Authority, mechanism: str, tmp_path: Path) -> None:
    name, password = ("alice", "alice-secret") if mechanism == "PLAIN" else ("dave", "dave-secret")
    if mechanism != "PLAIN":
        admin = AdminClient({"bootstrap.servers": server.at("PLAINTEXT")})
        info = ScramCredentialInfo(getattr(ScramMechanism, mechanism.replace("-", "_")), 5000)
        alter(admin, UserScramCredentialUpsertion(name, info, password.encode()))
    topic = f"sasl-{uuid.uuid4().hex[:12]}"
    settings: dict[str, Any] = {
        "bootstrap_servers": server.at("CLEAR"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }
    producer = KafkaProducer(**settings)
    assert producer.send(topic, b"kafka-python").get(PATIENCE_S).offset == 0
    producer.close()

    async def run() -> int:
        async with AIOKafkaProducer(**settings) as asynchronous:
            return (await asynchronous.send_and_wait(topic, b"aiokafka")).offset

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == 1
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    config = tmp_path / "client.properties"
    entry = f'org.apache.kafka.common.security.{module} required username="{name}" password="{password}";'
    config.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nsasl.jaas.config={entry}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.ca}\n"
    )
    listed = tool("TopicCommand", "--bootstrap-server", server.at("CLOSED"), "--command-config", str(config), "--list")
    assert topic in listed.split()


def test_users_are_altered_described_and_gone_with_kafkas_own_tool(server: SecuredServer) -> None:
    common = ["--bootstrap-server", server.at("PLAINTEXT"), "--entity-type", "users"]
    configs = "kafka.admin.ConfigCommand"
    first, second = "SCRAM-SHA-256=[iterations=8192,password=one]", "SCRAM-SHA-512=[password=two]"
    told = tool(configs, *common, "--entity-name", "erin", "--alter", "--add-config", f"{first},{second}", code=1)
    assert "A user credential cannot be altered twice in the same request" in told
    for added in (first, second):
        tool(configs, *common, "--entity-name", "erin", "--alter", "--add-config", added)
    described = tool(configs, *common, "--entity-name", "erin", "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described and "SCRAM-SHA-512=iterations=4096" in described
    tool(configs, *common, "--entity-name", "erin", "--alter", "--delete-config", "SCRAM-SHA-256")
    described = tool(configs, *common, "--entity-name", "erin", "--describe")
    assert "SCRAM-SHA-256" not in described and "SCRAM-SHA-512" in described


def test_users_that_cannot_be_are_refused_as_in_kafka(server: SecuredServer) -> None:
    admin = AdminClient({"bootstrap.servers": server.at("PLAINTEXT")})
    sha = ScramMechanism.SCRAM_SHA_256
    few = UserScramCredentialUpsertion("frank", ScramCredentialInfo(sha, 100), b"x")
    many = UserScramCredentialUpsertion("frank", ScramCredentialInfo(sha, 20_000), b"x")
    for change, words in (
        (few, "Too few iterations"),
        (many, "Too many iterations"),
        (UserScramCredentialDeletion("frank", sha), "Attempt to delete a user credential that does not exist"),
    ):
        with pytest.raises(KafkaException, match=words):
            alter(admin, change)
    (missing,) = admin.describe_user_scram_credentials(["frank"]).values()
    with pytest.raises(KafkaException, match="Attempt to describe a user credential that does not exist: frank"):
        missing.result(PATIENCE_S)


def test_a_user_that_is_gone_does_not_come_in_any_more(server: SecuredServer, authority: Authority) -> None:
    admin = AdminClient({"bootstrap.servers": server.at("PLAINTEXT")})
    sha = ScramMechanism.SCRAM_SHA_256
    alter(admin, UserScramCredentialUpsertion("gone", ScramCredentialInfo(sha, 4096), b"secret"))
    settings = client(server, "CLEAR", "SCRAM-SHA-256", authority.ca, **{"sasl.username": "gone"})
    settings["sasl.password"] = "secret"
    assert AdminClient(settings).list_topics(timeout=PATIENCE_S).brokers
    alter(admin, UserScramCredentialDeletion("gone", sha))
    assert "invalid credentials" in failure_of(settings)


def connected(server: SecuredServer, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.ports[listener]), timeout=PATIENCE_S)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def request(api_key: int, version: int, body: bytes) -> bytes:
    frame = struct.pack(">hhi", api_key, version, 7) + text("raw") + body
    return struct.pack(">i", len(frame)) + frame


def authenticate(plain: socket.socket, token: bytes, mechanism: str = "PLAIN") -> bytes:
    """The last answer."""
    plain.sendall(request(17, 1, text(mechanism)))
    assert receive_frame(plain)[4:6] == b"\0\0"
    plain.sendall(request(36, 1, struct.pack(">i", len(token)) + token))
    return receive_frame(plain)
