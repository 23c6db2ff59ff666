"""The gate before a SASL listener, over real sockets: what comes in, and that nothing else does."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from appliance.base.clock import SystemClock
from appliance.security.exchanges import PlainExchange, ScramExchange
from appliance.security.scram import ScramMechanism, credential_of, salted
from appliance.server.authentication import SaslSettings, sasl_handlers
from appliance.server.dispatcher import HandlerEntry
from appliance.server.listener import ListenerProfile
from appliance.wire.api import ApiKey
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.metadata import MetadataRequest, MetadataResponse
from appliance.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from appliance.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from appliance.wire.schema import Struct
from tests.support.server import ServerThread, receive_frame, running_server

SCRAM = ScramMechanism.SCRAM_SHA_256
CREDENTIAL = credential_of(SCRAM, salted(SCRAM, "secret", b"salt", 4096), b"salt", 4096)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """Answers Metadata with the name of who asks."""

    def who(context: object, request: object) -> MetadataResponse:
        return MetadataResponse(cluster_id=str(request.connection.principal))  # type: ignore[attr-defined]

    with running_server({**sasl_handlers(), ApiKey.METADATA: HandlerEntry(who)}) as running:
        settings = SaslSettings(
            mechanisms={
                "PLAIN": lambda: PlainExchange({"alice": "secret"}),
                "SCRAM-SHA-256": lambda: ScramExchange(SCRAM, "nonce", lambda name, _: CREDENTIAL if name else None),
            },
            max_receive_bytes=1_000,
            max_session_ms={},
            failure_delay_ms=0,
            background=running.background,
            clock=SystemClock(),
        )
        profile = ListenerProfile("SASL", sasl=settings)
        running.port = running.on_loop(lambda: running.server.listen("127.0.0.1", 0, profile))
        yield running


def send(sock: socket.socket, request: Struct, version: int) -> None:
    sock.sendall(encode_request(request, version, 1, "t"))


def asks(sock: socket.socket) -> str | None:
    send(sock, MetadataRequest(topics=None), 4)
    return decode_response(MetadataResponse, receive_frame(sock), 4)[1].cluster_id


def come_in(sock: socket.socket, version: int = 2) -> SaslAuthenticateResponse:
    send(sock, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert decode_response(SaslHandshakeResponse, receive_frame(sock), 1)[1].error_code == 0
    send(sock, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
    return decode_response(SaslAuthenticateResponse, receive_frame(sock), version)[1]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_has_shown_who_it_is_is_known_by_that_name(server: ServerThread, version: int) -> None:
    with server.connect() as sock:
        assert come_in(sock, version).error_code == 0
        assert asks(sock) == "User:alice"


def test_requests_may_follow_the_last_token_at_once(server: ServerThread) -> None:
    with server.connect() as sock:
        send(sock, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        receive_frame(sock)
        send(sock, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
        receive_frame(sock)
        for _ in range(3):
            send(sock, MetadataRequest(topics=None), 4)
        for _ in range(3):
            assert decode_response(MetadataResponse, receive_frame(sock), 4)[1].cluster_id == "User:alice"


def test_a_client_that_is_in_cannot_begin_anew_at_once(server: ServerThread) -> None:
    with server.connect() as sock:
        come_in(sock)
        send(sock, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert decode_response(SaslHandshakeResponse, receive_frame(sock), 1)[1].error_code == 34
        assert asks(sock) == "User:alice"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_sent_nobody_comes_in_and_others_go_on(
    server: ServerThread, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    handshake = encode_request(SaslHandshakeRequest(mechanism=chance.choice(("PLAIN", "SCRAM-SHA-256"))), 1, 1, "t")
    token = chance.choice((b"\0alice\0secreT", b"n,,n=alice,r=abc", b"c=biws,r=abcnonce,p=AAAA", chance.randbytes(30)))
    authenticate = encode_request(SaslAuthenticateRequest(auth_bytes=token), 2, 2, "t")
    metadata = encode_request(MetadataRequest(topics=None), 4, 3, "t")
    with server.connect() as good:
        come_in(good)
        for _ in range(10):
            frames = [chance.choice((handshake, authenticate, metadata)) for _ in range(chance.randint(1, 4))]
            data = bytearray(b"".join([handshake, *frames]))
            for _ in range(chance.randint(0, 3)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as odd:
                odd.sendall(data)
                odd.shutdown(socket.SHUT_WR)
                assert b"User:alice" not in read_all(odd)
        assert asks(good) == "User:alice"
    assert "could not be handled" not in caplog.text


def read_all(sock: socket.socket) -> bytes:
    data = b""
    try:
        while more := sock.recv(10_000):
            data += more
    except ConnectionResetError:
        pass
    return data


def test_a_frame_that_is_too_large_ends_the_connection_before_memory_is_taken(server: ServerThread) -> None:
    with server.connect() as sock:
        sock.sendall(struct.pack(">i", 1_001) + bytes(50))
        assert read_all(sock) == b""
    assert server.on_loop(lambda: server.server.request_bytes) == 0
