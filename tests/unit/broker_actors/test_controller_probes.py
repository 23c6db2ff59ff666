"""The controller looks whether a broker whose heartbeats ended is gone."""

from __future__ import annotations

import socket
import threading

import pytest

from appliance.broker_actors.controller_probes import broker_is_gone, ping_controller

TIMEOUT_MS = 5_000


def dying(connections: int) -> tuple[int, threading.Thread]:
    """A listener that ends so many connections without a word, and then is gone itself."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]

    def die() -> None:
        for _ in range(connections):
            listener.accept()[0].close()
        listener.close()

    thread = threading.Thread(target=die)
    thread.start()
    return port, thread


@pytest.mark.parametrize("connections", [0, 1, 2, 3])
def test_a_process_whose_listener_goes_after_its_heartbeats_is_gone(connections: int) -> None:
    port, thread = dying(connections)
    assert broker_is_gone("127.0.0.1", port, broker_id=1, broker_epoch=7, timeout_ms=TIMEOUT_MS)
    thread.join()


@pytest.mark.parametrize("connections", [0, 1, 2, 3])
def test_a_controller_whose_listener_goes_later_is_gone_too(connections: int) -> None:
    port, thread = dying(connections)
    with pytest.raises(ConnectionRefusedError):
        ping_controller("127.0.0.1", port, timeout_ms=TIMEOUT_MS)
    thread.join()


def test_who_takes_connections_and_says_nothing_is_not_known_to_be_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not broker_is_gone("127.0.0.1", port, broker_id=1, broker_epoch=7, timeout_ms=200)
