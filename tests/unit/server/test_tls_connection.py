"""Everything that holds for a connection holds under TLS, too: the same tests, with OpenSSL on both sides."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.base.config import BrokerConfig
from appliance.quotas.connections import ConnectionLimits
from appliance.security.tls import ReloadingContext, TlsFiles, tls_files
from appliance.server.dispatcher import HandlerEntry
from appliance.server.limits import Limits
from appliance.server.listener import ListenerProfile
from appliance.server.requests import FileRange, Pending, Request
from appliance.wire.api import ApiKey
from tests.support.certificates import Authority
from tests.support.server import ServerThread, receive_frame, running_server
from tests.unit.server.test_connection import *  # noqa: F403
from tests.unit.server.test_connection import (
    Keeper,
    correlation_id_of,
    metadata_request,
    padded,
    ranged,
    server_with,
    wait_until,
)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReloadingContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("keys"))
    properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("server", CN="server"))}
    files = tls_files(BrokerConfig(properties), "SSL")
    client = ssl.create_default_context(cafile=str(authority.ca))
    return ReloadingContext(files, TlsFiles.server_context), client


@pytest.fixture(autouse=True)
def under_tls(contexts: tuple[ReloadingContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ServerThread, "profile", ListenerProfile("SSL", contexts[0]))
    monkeypatch.setattr(ServerThread, "client_tls", contexts[1])
    yield


def test_a_slow_reader_gets_every_byte_of_a_large_file_in_its_order(tmp_path: Path) -> None:
    path, keeper = tmp_path / "segment", Keeper()
    content = bytes(range(256)) * 4_000
    path.write_bytes(content)

    def handle(context: object, request: Request) -> Pending:
        pending = request.pending()
        ranged(pending, request, path, keeper, pieces=3)
        return pending

    with server_with(handle, send_buffer_bytes=65_536) as server, server.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sock.sendall(metadata_request(1) + metadata_request(2))
        for number in (1, 2):
            frame = receive_frame(sock)
            assert correlation_id_of(frame) == number
            assert frame[4:] == b"".join(piece.to_bytes(4, "big") + content for piece in range(3))
        assert server.on_loop(lambda: keeper.references) == 0


def test_requests_that_openssl_holds_are_not_forgotten() -> None:
    """One record of TLS with more requests than may be in flight: the socket is silent after it."""
    waiting: list[Pending] = []

    def handle(context: object, request: Request) -> Pending:
        pending = request.pending()
        waiting.append(pending)
        return pending

    with server_with(handle) as server, server.connect() as sock:
        sock.sendall(b"".join(metadata_request(number, "x" * 300) for number in range(40)))
        for number in range(40):
            wait_until(server, lambda: bool(waiting))
            server.on_loop(lambda: waiting.pop().answer(answer_of()))
            assert correlation_id_of(receive_frame(sock)) == number


def test_who_fails_the_handshake_waits_for_the_end_and_who_says_nothing_holds_up_nobody() -> None:
    entry = HandlerEntry(lambda context, request: answer_of())
    with (
        running_server({ApiKey.METADATA: entry}, limits=Limits(failed_authentication_delay_ms=50)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10),
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as odd,
        server.connect() as good,
    ):
        odd.sendall(b"GET / HTTP/1.1\r\n\r\n")
        try:
            while odd.recv(1_000):
                pass
        except ConnectionResetError:
            # Nobody has read what it said.
            pass
        good.sendall(metadata_request(5))
        assert correlation_id_of(receive_frame(good)) == 5
        assert server.on_loop(lambda: len(server.server.connections)) == 2


# Below are those whose clients read and write from two threads at once, which TLS in Python before 3.13 cannot, and
# those in which a client notices something else.


def test_many_frames_in_one_piece_are_answered_in_order() -> None:
    count = 2_000
    with server_with(lambda context, request: answer_of()) as server, server.connect() as sock:
        sock.sendall(b"".join(metadata_request(number) for number in range(count)))
        assert [correlation_id_of(receive_frame(sock)) for _ in range(count)] == list(range(count))


def test_frames_of_all_connections_share_a_limit_of_memory() -> None:
    limit = 3_000_000
    with (
        server_with(lambda context, request: answer_of(), queued_request_bytes=limit) as server,
        ExitStack() as stack,
    ):
        socks = [stack.enter_context(server.connect()) for _ in range(4)]
        frames = [padded(metadata_request(number), 1_200_000) for number in range(4)]
        for sock, frame in zip(socks, frames, strict=True):
            sock.sendall(frame[:100_000])
        wait_until(server, lambda: len(server.server.starved) == 3)
        assert server.on_loop(lambda: server.server.request_bytes) <= limit

        def go_on(number: int) -> bool:
            socks[number].sendall(frames[number][100_000:])
            return correlation_id_of(receive_frame(socks[number])) == number

        # Whose frame came first is chance.
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(go_on, range(4)))
    assert server.server.request_bytes == 0


def test_a_file_that_has_become_shorter_ends_the_connection(tmp_path: Path) -> None:
    path, keeper = tmp_path / "segment", Keeper()
    path.write_bytes(b"x" * 10)

    def handle(context: object, request: Request) -> Pending:
        pending = request.pending()
        file = path.open("rb")
        keeper.files.append(file)
        keeper.retain()
        pending.answer_items([struct.pack(">ii", 104, 1), FileRange(file.fileno(), 0, 100, keeper)])
        return pending

    with server_with(handle) as server, server.connect() as sock:
        sock.sendall(metadata_request(1))
        # Bytes that are there may leave first or not: they were encrypted together with what is missing.
        while sock.recv(100):
            pass
        assert server.on_loop(lambda: keeper.references) == 0


def answer_of() -> object:
    from appliance.wire.messages.metadata import MetadataResponse

    return MetadataResponse()


def test_connections_beyond_the_limit_of_an_address_are_refused() -> None:
    with server_with(lambda context, request: answer_of()) as server, server.connect() as first:
        first.sendall(metadata_request(1))
        receive_frame(first)
        server.on_loop(lambda: server.server.admission.set_limits(ConnectionLimits(max_connections_per_ip=1)))
        with pytest.raises(OSError):
            server.connect()
        assert server.server.admission.refused == 1
        first.sendall(metadata_request(2))
        assert correlation_id_of(receive_frame(first)) == 2
