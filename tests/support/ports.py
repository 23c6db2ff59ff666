"""Ports that stay free until a test listens on them, also again after a restart.

They lie below those that the operating system gives to outgoing connections, and each worker of pytest has its own, so
that nobody takes them in between.
"""

from __future__ import annotations

import itertools
import os
import random

from appliance.broker_actors.ports import FREE_PORTS, listen_problem

HOST = "127.0.0.1"
FIRST, LAST = 10_000, FREE_PORTS.start
"""Below what the appliance chooses by itself."""
WORKERS_MAX = 8

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
_share = (LAST - FIRST) // WORKERS_MAX
_mine = range(FIRST + _worker * _share, FIRST + (_worker + 1) * _share)
# Another run of the tests on this machine begins elsewhere.
_next = itertools.cycle(itertools.chain(_mine[(start := random.randrange(_share)) :], _mine[:start]))


def free_port() -> int:
    """A port that nobody listens on, and that is not given again soon."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of as many free ports that follow each other."""
    found: list[int] = []
    for _ in range(2 * _share):
        port = next(_next)
        if found and port != found[-1] + 1:
            found.clear()
        if listen_problem(HOST, port):
            found.clear()
            continue
        found.append(port)
        if len(found) == count:
            return found[0]
    raise AssertionError(f"no {count} ports in a row are free from {_mine.start} to {_mine.stop}")
