"""The last check before READY: every broker answers Metadata, and each of them knows all the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from appliance.base.errors import KafkaError, UserError

if TYPE_CHECKING:
    from appliance.client.security import ClientSecurity

CALL_TIMEOUT_MS = 5_000
_POLL_S = 0.02

ReadyCheck = Callable[[Sequence[str], int], str]
"""Takes the brokers' addresses and a timeout in milliseconds; gives the cluster id."""


def wait_for_metadata(
    addresses: Sequence[str], timeout_ms: int, secured: Callable[[], ClientSecurity] | None = None
) -> str:
    """Ask each broker for Metadata until each names as many brokers as there are; gives the cluster id.

    `secured` makes what their listener asks for; it may block.

    Raises:
        UserError: not so within `timeout_ms`.
    """
    security = secured() if secured is not None else None
    deadline = time.monotonic() + timeout_ms / 1000
    cluster_id = ""
    for address in addresses:
        cluster_id = _wait_for_broker(address, len(addresses), deadline, security)
    return cluster_id


def _wait_for_broker(address: str, brokers: int, deadline: float, security: ClientSecurity | None) -> str:
    # Here and not above: the supervisor starts its children first and imports while they do the same.
    from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
    from appliance.client.security import PLAIN
    from appliance.wire.messages.metadata import MetadataRequest

    host, _, port = address.rpartition(":")
    problem = "no answer"
    while time.monotonic() < deadline:
        try:
            with Connection(
                host.strip("[]"), int(port), timeout_ms=CALL_TIMEOUT_MS, security=security or PLAIN
            ) as connection:
                while time.monotonic() < deadline:
                    answer = connection.call(MetadataRequest(topics=[]))
                    if len(answer.brokers) == brokers and answer.cluster_id:
                        return answer.cluster_id
                    problem = f"it knows {len(answer.brokers)} of {brokers} brokers"
                    time.sleep(_POLL_S)
        except (ConnectionLost, CallTimedOut, KafkaError) as error:
            problem = str(error)
            time.sleep(_POLL_S)
    raise UserError(f"broker at {address} is not ready: {problem}", exit_code=1)
