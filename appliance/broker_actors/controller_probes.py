"""Is somebody there? Short blocking questions, for helper threads."""

from __future__ import annotations

import socket
import time

from appliance.base.errors import KafkaError
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.client.security import PLAIN, ClientSecurity
from appliance.wire.messages.internal_metadata import ControllerStatusRequest
from appliance.wire.messages.internal_status import BrokerStatusRequest

OWN_VERSION = 0
"""Of our own APIs, which are not advertised."""
LOOK_AGAIN_S = 0.01
"""A process that is killed loses its sockets one by one: its heartbeats may have ended while its listener is there."""


def connection_is_refused(host: str, port: int, timeout_ms: int) -> bool:
    """Whether nobody listens there: proof that a process is gone, where no proxy or firewall stands between (B6)."""
    try:
        socket.create_connection((host, port), timeout=timeout_ms / 1_000).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def broker_is_gone(
    host: str, port: int, broker_id: int, broker_epoch: int, timeout_ms: int, security: ClientSecurity = PLAIN
) -> bool:
    """Rule B6: nobody listens there, or another process than the one that had this epoch answers."""
    deadline = time.monotonic() + timeout_ms / 1_000
    while True:
        if connection_is_refused(host, port, timeout_ms):
            return True
        try:
            with Connection(
                host, port, client_id="controller-probe", timeout_ms=timeout_ms, security=security
            ) as connection:
                answer = connection.call(BrokerStatusRequest(only_behind=True), OWN_VERSION)
        except ConnectionLost:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_AGAIN_S)
            continue
        except (CallTimedOut, KafkaError):
            return False
        # A process that knew this epoch never forgets it before the controller does.
        return answer.broker_id != broker_id or answer.broker_epoch != broker_epoch


def ping_controller(host: str, port: int, timeout_ms: int, security: ClientSecurity = PLAIN) -> int:
    """The position of the active controller that answers there; -1 if none does.

    Raises:
        ConnectionRefusedError: nobody listens.
    """
    deadline = time.monotonic() + timeout_ms / 1_000
    while True:
        if connection_is_refused(host, port, timeout_ms):
            raise ConnectionRefusedError(f"{host}:{port}")
        try:
            with Connection(
                host, port, client_id="controller-standby", timeout_ms=timeout_ms, security=security
            ) as connection:
                status = connection.call(ControllerStatusRequest())
                return status.position if status.active else -1
        except ConnectionLost:
            if time.monotonic() > deadline:
                return -1
            time.sleep(LOOK_AGAIN_S)
        except (CallTimedOut, KafkaError):
            return -1
