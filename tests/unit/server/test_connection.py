"""Connections over real sockets, with handlers that the test decides."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from appliance.broker_actors.event_loop import new_event_loop
from appliance.server.connection import Connection, LateAnswer
from appliance.server.dispatcher import HandlerEntry
from appliance.server.limits import Limits
from appliance.server.requests import FileRange, Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.metadata import MetadataRequest, MetadataResponse
from appliance.wire.schema import Struct
from tests.support.server import ServerThread, is_closed, receive_exactly, receive_frame, running_server

VERSION = 4
WAIT_S = 10


def metadata_request(correlation_id: int, client_id: str = "t") -> bytes:
    return encode_request(MetadataRequest(topics=None), VERSION, correlation_id, client_id)


def answer(request: Request) -> MetadataResponse:
    return MetadataResponse(cluster_id=request.client_id)


def correlation_id_of(frame: bytes) -> int:
    return cast(int, struct.unpack_from(">i", frame)[0])


def server_with(
    handle: Callable[[object, Request], Struct | Pending | None], **limits: int
) -> AbstractContextManager[ServerThread]:
    return running_server({ApiKey.METADATA: HandlerEntry(handle)}, limits=Limits(**limits))


@pytest.fixture(params=["uvloop", "asyncio"])
def echo(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    """Answers with the client id. Runs on both kinds of loop."""
    loop = new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
    with running_server({ApiKey.METADATA: HandlerEntry(lambda _, request: answer(request))}, loop=loop) as server:
        yield server


def test_a_request_is_answered(echo: ServerThread) -> None:
    with echo.connect() as sock:
        sock.sendall(metadata_request(7, "me"))
        correlation_id, response = decode_response(MetadataResponse, receive_frame(sock), VERSION)
    assert (correlation_id, response.cluster_id) == (7, "me")


def test_frames_may_come_in_any_pieces(echo: ServerThread) -> None:
    data = b"".join(metadata_request(number) for number in range(3))
    with echo.connect() as sock:
        for at in range(len(data)):
            sock.sendall(data[at : at + 1])
            if at % 10 == 0:
                time.sleep(0.001)
        assert [correlation_id_of(receive_frame(sock)) for _ in range(3)] == [0, 1, 2]


def test_many_frames_in_one_piece_are_answered_in_order(echo: ServerThread) -> None:
    count = 5_000
    with echo.connect() as sock:
        sender = threading.Thread(
            target=sock.sendall, args=(b"".join(metadata_request(number) for number in range(count)),)
        )
        sender.start()
        assert [correlation_id_of(receive_frame(sock)) for _ in range(count)] == list(range(count))
        sender.join(WAIT_S)


def test_a_frame_larger_than_the_first_buffer_is_read(echo: ServerThread) -> None:
    client_id = "x" * 30_000
    padding = b"\0" * 3_000_000
    with echo.connect() as sock:
        for number in range(2):
            frame = metadata_request(number, client_id)
            # As in Kafka, bytes behind the body are ignored.
            sock.sendall(struct.pack(">i", len(frame) - 4 + len(padding)) + frame[4:] + padding)
            _, response = decode_response(MetadataResponse, receive_frame(sock), VERSION)
            assert response.cluster_id == client_id


def wait_until(server: ServerThread, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not server.on_loop(holds):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def padded(frame: bytes, size: int) -> bytes:
    """A frame with so many bytes behind its body, which are ignored."""
    return struct.pack(">i", len(frame) - 4 + size) + frame[4:] + b"\0" * size


def test_frames_of_all_connections_share_a_limit_of_memory() -> None:
    limit = 3_000_000
    with server_with(lambda _, request: answer(request), queued_request_bytes=limit) as server, ExitStack() as stack:
        socks = [stack.enter_context(server.connect()) for _ in range(4)]
        frames = [padded(metadata_request(number), 1_200_000) for number in range(4)]
        # Each grows to two megabytes: the first is admitted, the others wait in the kernel.
        for sock, frame in zip(socks, frames, strict=True):
            sock.sendall(frame[:100_000])
        wait_until(server, lambda: len(server.server.starved) == 3)
        assert server.on_loop(lambda: server.server.request_bytes) <= limit
        # A small request of a fifth connection is none of their business.
        with server.connect() as other:
            other.sendall(metadata_request(9))
            assert correlation_id_of(receive_frame(other)) == 9
        for number, (sock, frame) in enumerate(zip(socks, frames, strict=True)):
            rest = threading.Thread(target=sock.sendall, args=(frame[100_000:],))
            rest.start()
            assert correlation_id_of(receive_frame(sock)) == number
            rest.join(WAIT_S)
    assert server.server.request_bytes == 0


def test_who_waits_for_memory_gets_it_when_another_connection_ends() -> None:
    with (
        server_with(lambda _, request: answer(request), queued_request_bytes=1_000_000) as server,
        server.connect() as first,
        server.connect() as second,
    ):
        first.sendall(padded(metadata_request(1), 5_000_000)[:100_000])
        wait_until(server, lambda: server.server.request_bytes > 0)
        frame = padded(metadata_request(2), 5_000_000)
        second.sendall(frame[:100_000])
        wait_until(server, lambda: len(server.server.starved) == 1)
        first.close()
        second.sendall(frame[100_000:])
        assert correlation_id_of(receive_frame(second)) == 2


def test_an_idle_connection_gives_its_large_buffer_back(echo: ServerThread) -> None:
    padding = b"\0" * 1_000_000
    with echo.connect() as sock:
        frame = metadata_request(1)
        sock.sendall(struct.pack(">i", len(frame) - 4 + len(padding)) + frame[4:] + padding)
        receive_frame(sock)
        (connection,) = echo.on_loop(lambda: list(echo.server.connections))
        assert len(connection.buffer) > 1_000_000
        echo.on_loop(connection.shrink_if_idle)
        assert len(connection.buffer) == 65_536
        sock.sendall(metadata_request(2))
        assert correlation_id_of(receive_frame(sock)) == 2


@pytest.mark.parametrize("size", [-1, 0, 7, 1_001, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_its_connection_only(size: int) -> None:
    with (
        server_with(lambda _, request: answer(request), max_frame_bytes=1_000) as server,
        server.connect() as bad,
        server.connect() as good,
    ):
        bad.sendall(struct.pack(">i", size) + b"\0" * 20)
        assert is_closed(bad)
        good.sendall(metadata_request(1))
        assert correlation_id_of(receive_frame(good)) == 1
        assert server.on_loop(lambda: server.server.closed_for_cause) == 1


def test_a_cut_off_frame_harms_nobody(echo: ServerThread) -> None:
    with echo.connect() as good:
        with echo.connect() as bad:
            bad.sendall(metadata_request(1)[:-1])
        good.sendall(metadata_request(2))
        assert correlation_id_of(receive_frame(good)) == 2


class Waiting:
    """A handler whose answers the test gives."""

    def __init__(self) -> None:
        self.pending: list[tuple[Request, Pending]] = []
        self.came = threading.Semaphore(0)
        self.closed = threading.Event()

    def __call__(self, context: object, request: Request) -> Pending:
        pending = request.pending()
        pending.on_close(self.closed.set)
        self.pending.append((request, pending))
        self.came.release()
        return pending

    def wait(self) -> tuple[Request, Pending]:
        assert self.came.acquire(timeout=WAIT_S)
        return self.pending[-1]


def test_the_next_request_waits_for_a_pending_answer() -> None:
    handler = Waiting()
    with server_with(handler) as server, server.connect() as sock:
        sock.sendall(metadata_request(1) + metadata_request(2))
        request, pending = handler.wait()
        assert not handler.came.acquire(timeout=0.05), "as in Kafka, one request after the other"
        server.on_loop(lambda: pending.answer(answer(request)))
        assert correlation_id_of(receive_frame(sock)) == 1
        request, pending = handler.wait()
        server.on_loop(lambda: pending.answer(answer(request)))
        assert correlation_id_of(receive_frame(sock)) == 2


def test_whoever_waits_hears_of_the_connections_end() -> None:
    handler = Waiting()
    with server_with(handler) as server:
        with server.connect() as sock:
            sock.sendall(metadata_request(1))
            request, pending = handler.wait()
        assert handler.closed.wait(WAIT_S)
        server.on_loop(lambda: pending.answer(answer(request)))
        assert server.on_loop(lambda: len(server.server.connections)) == 0


def test_a_client_that_sends_while_it_must_wait_is_read_no_further_than_its_buffer() -> None:
    handler = Waiting()
    with server_with(handler) as server, server.connect() as sock:
        sock.sendall(metadata_request(0))
        request, pending = handler.wait()
        count = 20_000
        sender = threading.Thread(
            target=sock.sendall, args=(b"".join(metadata_request(number) for number in range(1, count)),)
        )
        sender.start()
        (connection,) = server.on_loop(lambda: list(server.server.connections))
        time.sleep(0.1)
        assert len(connection.buffer) == 65_536
        for number in range(1, 50):
            server.on_loop(lambda request=request, pending=pending: pending.answer(answer(request)))
            assert correlation_id_of(receive_frame(sock)) == number - 1
            request, pending = handler.wait()
        sock.shutdown(socket.SHUT_RDWR)
        sender.join(WAIT_S)


def test_produce_like_requests_stay_in_flight_up_to_the_limit() -> None:
    waiting: list[Pending] = []
    came = threading.Semaphore(0)

    def handle(context: object, request: Request) -> Pending:
        pending = Pending(request.connection, request.api_version, request.correlation_id, blocks=False)
        waiting.append(pending)
        came.release()
        return pending

    with server_with(handle, max_in_flight=3) as server, server.connect() as sock:
        sock.sendall(b"".join(metadata_request(number) for number in range(5)))
        for _ in range(3):
            assert came.acquire(timeout=WAIT_S)
        assert not came.acquire(timeout=0.05)
        # The second answer is there first, but leaves in its order.
        server.on_loop(lambda: waiting[1].answer(MetadataResponse()))
        server.on_loop(lambda: waiting[0].answer(MetadataResponse()))
        assert [correlation_id_of(receive_frame(sock)) for _ in range(2)] == [0, 1]
        for _ in range(2):
            assert came.acquire(timeout=WAIT_S)
        for number in (2, 3, 4):
            server.on_loop(lambda number=number: waiting[number].answer(MetadataResponse()))
        assert [correlation_id_of(receive_frame(sock)) for _ in range(3)] == [2, 3, 4]


def test_late_answers_are_built_after_the_ticks_hooks() -> None:
    events: list[str] = []

    def build(connection: Connection, late: LateAnswer) -> bytes:
        events.append("built")
        return struct.pack(">ii", 4, late[1])

    def handle(context: object, request: Request) -> None:
        events.append("handled")
        request.connection.hold()
        request.connection.queue((build, request.correlation_id))

    with server_with(handle) as server:
        server.on_loop(lambda: server.server.on_tick(lambda: events.append("hook")))
        with server.connect() as sock:
            events.clear()
            sock.sendall(metadata_request(3))
            assert correlation_id_of(receive_frame(sock)) == 3
    assert [event for event in events if event != "hook"] == ["handled", "built"]
    assert events[events.index("handled") + 1] == "hook"


class Keeper:
    def __init__(self) -> None:
        self.references = 0
        self.released = threading.Event()
        self.files: list[BinaryIO] = []

    def retain(self) -> None:
        self.references += 1

    def release(self) -> None:
        self.references -= 1
        self.released.set()


def ranged(pending: Pending, request: Request, path: Path, keeper: Keeper, pieces: int) -> None:
    """Answer with a frame of `pieces` times the whole file, with some bytes around each."""
    file = path.open("rb")
    size = path.stat().st_size
    descriptor = file.fileno()
    keeper.files.append(file)
    items: list[bytes | FileRange] = [struct.pack(">ii", 4 + pieces * (size + 4), request.correlation_id)]
    for number in range(pieces):
        items.append(struct.pack(">i", number))
        items.append(FileRange(descriptor, 0, size, keeper))
        keeper.retain()
    pending.answer_items(items)


def test_pieces_of_files_leave_in_their_order_among_bytes(tmp_path: Path) -> None:
    path, keeper = tmp_path / "segment", Keeper()
    content = bytes(range(256)) * 4_096
    path.write_bytes(content)

    def handle(context: object, request: Request) -> Pending:
        pending = request.pending()
        ranged(pending, request, path, keeper, pieces=5)
        return pending

    with server_with(handle) as server, server.connect() as sock:
        sock.sendall(metadata_request(1) + metadata_request(2))
        time.sleep(0.05)
        for number in (1, 2):
            frame = receive_frame(sock)
            assert correlation_id_of(frame) == number
            pieces = [struct.pack(">i", piece) + content for piece in range(5)]
            assert frame[4:] == b"".join(pieces)
        assert server.on_loop(lambda: keeper.references) == 0


def test_a_client_that_does_not_read_loses_no_file_and_holds_up_nobody(tmp_path: Path) -> None:
    path, keeper = tmp_path / "segment", Keeper()
    path.write_bytes(b"x" * 4_000_000)

    def handle(context: object, request: Request) -> Struct | Pending:
        if request.client_id == "small":
            return answer(request)
        pending = request.pending()
        ranged(pending, request, path, keeper, pieces=10)
        return pending

    with server_with(handle) as server, server.connect() as good:
        with server.connect() as slow:
            slow.sendall(metadata_request(1))
            good.sendall(metadata_request(2, "small"))
            assert correlation_id_of(receive_frame(good)) == 2
            assert len(receive_exactly(slow, 1_000)) == 1_000
            assert server.on_loop(lambda: keeper.references) > 0
        assert keeper.released.wait(WAIT_S)
        for _ in range(1_000):
            if server.on_loop(lambda: keeper.references) == 0:
                break
        assert server.on_loop(lambda: keeper.references) == 0
        good.sendall(metadata_request(3, "small"))
        assert correlation_id_of(receive_frame(good)) == 3


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
        assert receive_exactly(sock, 18)[-10:] == b"x" * 10
        assert is_closed(sock)
        assert server.on_loop(lambda: keeper.references) == 0


def test_idle_connections_are_ended_but_not_those_that_wait() -> None:
    handler = Waiting()
    with (
        server_with(handler, connections_max_idle_ms=1) as server,
        server.connect() as waits,
        server.connect() as idle,
    ):
        waits.sendall(metadata_request(1))
        handler.wait()
        time.sleep(0.01)
        server.on_loop(server.server._sweep)
        assert is_closed(idle)
        request, pending = handler.pending[0]
        server.on_loop(lambda: pending.answer(answer(request)))
        assert correlation_id_of(receive_frame(waits)) == 1


def test_while_answers_are_held_back_nothing_leaves_and_dropping_them_ends_their_connections() -> None:
    with server_with(lambda _, request: answer(request)) as server, server.connect() as sock:

        def hold() -> None:
            server.server.holding = True

        def let_go() -> None:
            server.server.holding = False
            server.server.begin_tick()

        server.on_loop(hold)
        sock.sendall(metadata_request(1))
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(WAIT_S)
        server.on_loop(let_go)
        assert correlation_id_of(receive_frame(sock)) == 1
        server.on_loop(hold)
        sock.sendall(metadata_request(2))
        time.sleep(0.05)
        server.on_loop(lambda: server.server.drop_held("the test says so"))
        assert is_closed(sock)


def test_a_follower_is_answered_while_answers_are_held_back() -> None:
    def handle(_: object, request: Request) -> Struct:
        request.connection.without_lease = True
        return answer(request)

    with server_with(handle) as server, server.connect() as sock:
        server.on_loop(lambda: setattr(server.server, "holding", True))
        sock.sendall(metadata_request(1) + metadata_request(2))
        assert correlation_id_of(receive_frame(sock)) == 1
        assert correlation_id_of(receive_frame(sock)) == 2
