"""Ports: whether one can be listened on, and free ones."""

from __future__ import annotations

import os
import random
import socket

from appliance.base.errors import UserError

FREE_PORTS = range(20_000, 32_000)
"""Below the ports that operating systems give to outgoing connections (from 32,768 on Linux), so that a broker that is
started again finds its port as it left it."""
ATTEMPTS = 200
PORT_NOT_USABLE = 3


def listen_problem(host: str, port: int) -> str | None:
    """Why a server cannot listen on this address, or None."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            # Bound is not enough: with SO_REUSEADDR only listening fails where another socket listens already.
            probe.listen(1)
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return None


def require_port(host: str, port: int, purpose: str) -> int:
    """The port itself.

    Raises:
        UserError(exit_code=3): it is taken or not allowed; the message names it.
    """
    problem = listen_problem(host, port)
    if problem is not None:
        raise UserError(f"{purpose}: cannot listen on {host}:{port}: {problem}", PORT_NOT_USABLE)
    return port


def free_port(host: str, taken: set[int]) -> int:
    """A port that nobody listens on and that is not in `taken`; it is added there.

    Raises:
        UserError(exit_code=3): the host cannot be listened on, or no free port was found.
    """
    problem: str | None = "none found"
    for _ in range(ATTEMPTS):
        port = random.choice(FREE_PORTS)
        if port in taken:
            continue
        problem = listen_problem(host, port)
        if problem is None:
            taken.add(port)
            return port
    raise UserError(f"no free port on {host}: {problem}", PORT_NOT_USABLE)
