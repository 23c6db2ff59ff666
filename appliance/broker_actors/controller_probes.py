"""Is somebody there? Short blocking questions, for helper threads."""

from __future__ import annotations

import socket

from appliance.base.errors import KafkaError
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.internal_metadata import ControllerStatusRequest


def connection_is_refused(host: str, port: int, timeout_ms: int) -> bool:
    """Whether nobody listens there: proof that a process is gone, where no proxy or firewall stands between (B6)."""
    try:
        socket.create_connection((host, port), timeout=timeout_ms / 1_000).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def ping_controller(host: str, port: int, timeout_ms: int) -> bool:
    """Whether an active controller answers there.

    Raises:
        ConnectionRefusedError: nobody listens.
    """
    if connection_is_refused(host, port, timeout_ms):
        raise ConnectionRefusedError(f"{host}:{port}")
    try:
        with Connection(host, port, client_id="controller-standby", timeout_ms=timeout_ms) as connection:
            return connection.call(ControllerStatusRequest()).active
    except (ConnectionLost, CallTimedOut, KafkaError):
        return False
