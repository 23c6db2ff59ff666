from __future__ import annotations

import socket

import pytest

from appliance.base.errors import UserError
from appliance.broker_actors.ports import FREE_PORTS, free_port, listen_problem, require_port


def test_a_port_that_somebody_listens_on_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert listen_problem("127.0.0.1", port) == "Address already in use"
        with pytest.raises(UserError, match=f"broker 1: cannot listen on 127.0.0.1:{port}") as refused:
            require_port("127.0.0.1", port, "broker 1")
        assert refused.value.exit_code == 3
    assert listen_problem("127.0.0.1", port) is None


def test_an_address_of_somebody_else_is_a_problem() -> None:
    assert listen_problem("192.0.2.77", 20_000) == "Cannot assign requested address"
    assert listen_problem("no-such-host.invalid", 20_000)


def test_free_ports_are_given_once() -> None:
    taken: set[int] = set()
    ports = [free_port("127.0.0.1", taken) for _ in range(50)]
    assert len(set(ports)) == 50
    assert taken == set(ports)
    assert all(port in FREE_PORTS for port in ports)


def test_a_host_that_is_not_ours_has_no_free_port() -> None:
    with pytest.raises(UserError, match=r"no free port on 192\.0\.2\.77") as refused:
        free_port("192.0.2.77", set())
    assert refused.value.exit_code == 3
