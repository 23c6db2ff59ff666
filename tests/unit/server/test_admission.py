"""The doors of a real server: connections wait, are let in, or end without an answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from appliance.quotas.connections import ConnectionLimits, ListenerLimits
from appliance.server import admission
from appliance.server.dispatcher import HandlerEntry
from appliance.server.listener import ListenerProfile
from appliance.wire.api import ApiKey
from appliance.wire.codec import encode_request
from appliance.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.server import ServerThread, is_closed, receive_frame, running_server

HANDLERS = {ApiKey.METADATA: HandlerEntry(lambda _, request: MetadataResponse(cluster_id=request.client_id))}
REQUEST = encode_request(MetadataRequest(topics=None), 9, 1, "t")


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def open_at(server: ServerThread, count: int) -> None:
    until(lambda: server.on_loop(lambda: len(server.server.connections) == count))


def is_answered(sock: socket.socket) -> bool:
    sock.sendall(REQUEST)
    try:
        return len(receive_frame(sock)) > 4
    except ConnectionError:
        return False


def set_limits(server: ServerThread, limits: ConnectionLimits) -> None:
    server.on_loop(lambda: server.server.admission.set_limits(limits))


def test_who_finds_no_room_waits_until_somebody_leaves() -> None:
    with running_server(HANDLERS) as server:
        set_limits(server, ConnectionLimits(max_connections=1))
        with server.connect() as first, server.connect() as second, server.connect() as third:
            assert is_answered(first)
            until(lambda: server.on_loop(lambda: server.server.admission.waiting == 1))
            assert is_answered(first), "the loop goes on"
            first.close()
            assert is_answered(second)
            second.close()
            assert is_answered(third)
        assert server.server.admission.delayed == 2
        assert server.server.admission.refused == 0


def test_more_room_lets_in_who_waits() -> None:
    with running_server(HANDLERS) as server:
        set_limits(server, ConnectionLimits(max_connections=1))
        with server.connect() as first, server.connect() as second:
            until(lambda: server.on_loop(lambda: server.server.admission.waiting == 1))
            set_limits(server, ConnectionLimits(max_connections=2))
            assert is_answered(second) and is_answered(first)


def test_who_comes_too_fast_is_let_in_later() -> None:
    with running_server(HANDLERS) as server:
        set_limits(server, ConnectionLimits(creation_rate=1, windows=2, window_ms=50))
        # Its rates keep the windows they began with; the limit is what counts.
        quotas = server.server.admission.quotas
        server.on_loop(lambda: [quotas.wait_ms("PLAINTEXT", server.server.clock.monotonic_ms()) for _ in range(11)])
        with server.connect() as first, server.connect() as second:
            assert is_answered(first) and is_answered(second)
        assert server.server.admission.delayed == 2
        assert server.server.admission.delayed_ms >= 2 * 50


def test_an_address_above_its_rate_is_never_answered_and_then_cut_off() -> None:
    with running_server(HANDLERS) as server:
        quotas = server.server.admission.quotas
        server.on_loop(lambda: quotas.set_ip_rates({(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}}))
        server.on_loop(
            lambda: [quotas.address_wait_ms("127.0.0.1", server.server.clock.monotonic_ms()) for _ in range(10)]
        )
        with server.connect() as sock:
            sock.sendall(REQUEST)
            until(lambda: server.server.admission.throttled == 1)
            assert is_closed(sock)
        until(lambda: server.on_loop(lambda: server.server.admission.waiting == 0))
        with socket.create_connection(("127.0.0.1", server.port), 10, ("127.0.0.2", 0)) as other:
            assert is_answered(other)


def test_so_many_of_those_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "THROTTLED_MAX", 2)
    with running_server(HANDLERS) as server:
        set_limits(server, ConnectionLimits(window_ms=3_600_000))
        quotas = server.server.admission.quotas
        server.on_loop(lambda: quotas.set_ip_rates({(("ip", None),): {"connection_creation_rate": 1e-9}}))
        socks = [server.connect() for _ in range(5)]
        until(lambda: server.server.admission.throttled == 5)
        assert server.server.admission.waiting == 2
        assert all(is_closed(sock) for sock in socks[:3])
        for sock in socks:
            sock.close()


def test_an_address_with_too_many_connections_is_refused_at_once() -> None:
    with running_server(HANDLERS) as server:
        set_limits(server, ConnectionLimits(max_connections_per_ip=9, overrides={"127.0.0.1": 1}))
        with server.connect() as first, server.connect() as second:
            assert is_answered(first)
            assert is_closed(second)
            assert server.server.admission.refused == 1
        open_at(server, 0)
        with server.connect() as third:
            assert is_answered(third)


def test_brokers_take_the_place_of_the_idlest_client() -> None:
    with running_server(HANDLERS) as server:
        inside = server.on_loop(lambda: server.server.listen("127.0.0.1", 0, ListenerProfile("INSIDE")))
        set_limits(
            server, ConnectionLimits(max_connections=2, protected="INSIDE", listeners={"INSIDE": ListenerLimits(1)})
        )
        with server.connect() as idle, server.connect() as busy:
            assert is_answered(idle)
            server.on_loop(lambda: [setattr(one, "last_active_ms", 0) for one in server.server.connections])
            assert is_answered(busy)
            with socket.create_connection(("127.0.0.1", inside), timeout=10) as broker:
                assert is_answered(broker)
                assert is_closed(idle)
                assert is_answered(busy)


def test_a_server_that_closes_lets_go_of_those_at_its_door() -> None:
    with running_server(HANDLERS) as server:
        set_limits(server, ConnectionLimits(max_connections=0))
        held = server.connect()
        until(lambda: server.on_loop(lambda: server.server.admission.waiting == 1))
    assert is_closed(held)
    held.close()
