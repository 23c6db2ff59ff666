"""Addresses of the brokers' listeners: from what the user asked for to each broker's `listeners` and what it tells."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.broker_actors.placement import Node
from appliance.broker_actors.ports import free_port, require_port
from appliance.security.listeners import MAX_PORT, WILDCARDS, Endpoint, Listeners, SecurityProtocol, listeners_of

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """One broker's share."""

    listeners: str
    advertised: str
    port: int
    """Of its first listener."""
    bootstrap: str
    """Where the appliance's own processes find it: on the listener that brokers use among themselves."""


def asked_listeners(host: str, advertised_host: str, port: int, properties: Mapping[str, str]) -> Listeners:
    """The first broker's listeners as the user named them; without `listeners` one PLAINTEXT at host and port.

    Raises:
        UserError: they contradict each other.
    """
    if "listeners" not in properties:
        plain = Endpoint("PLAINTEXT", host, port, SecurityProtocol.PLAINTEXT)
        return Listeners((plain,), (replace(plain, host=advertised_host or host, port=0),), plain.name)
    asked = listeners_of(BrokerConfig(properties))
    bound = tuple(replace(one, host=one.host or host) for one in asked.bound)
    told = asked.advertised
    if "advertised.listeners" not in properties:
        told = tuple(replace(one, host=advertised_host or one.host, port=0) for one in bound)
    return Listeners(bound, told, asked.inter_broker)


def require_safety(listeners: Listeners) -> None:
    """Without `--insecure` nothing listens on a network that anybody can read along.

    Raises:
        UserError: a listener would.
    """
    for one in listeners.bound:
        if not is_loopback(one.host) and not one.protocol.has_tls:
            address = f"--host {one.host}" if one.protocol == SecurityProtocol.PLAINTEXT else one.text
            raise UserError(
                f"{address} would open the brokers to a network without TLS and authentication; "
                "say --insecure if that network is yours alone"
            )


def require_room(listeners: Listeners, brokers: int) -> set[int]:
    """The ports of all brokers, each listener's counting on from the first broker's.

    Raises:
        UserError: there is no room for them.
    """
    ports: set[int] = set()
    for one in listeners.bound:
        if not one.port:
            continue
        if one.port + brokers - 1 > MAX_PORT:
            raise UserError(f"--port {one.port} leaves no ports for {brokers} brokers")
        mine = set(range(one.port, one.port + brokers))
        if ports & mine:
            raise UserError(f"listeners: {one.text} leaves too few ports before the next for {brokers} brokers")
        ports |= mine
    return ports


def addresses_of(
    listeners: Listeners, broker_id: int, before: int, node: Node, *, here: bool, taken: set[int]
) -> BrokerAddresses:
    """Ports that are free, or those asked for.

    Args:
        before: how many brokers of lower id live at the same address; ports count on by it.
        here: the broker runs on this machine, where ports can be tried.
        taken: ports that are spoken for; those that are chosen are added.

    Raises:
        UserError(exit_code=3): a port is not usable.
    """
    bound = [replace(one, port=_port(one, broker_id, before, here, taken)) for one in listeners.bound]
    ports = {one.name: one.port for one in bound}
    told = [
        replace(one, host=_reachable(one.host, node), port=one.port + before if one.port else ports[one.name])
        for one in listeners.advertised
    ]
    inner = next(one for one in told if one.name == listeners.inter_broker)
    return BrokerAddresses(
        listeners=",".join(one.text for one in bound),
        advertised=",".join(one.text for one in told),
        port=bound[0].port,
        bootstrap=inner.text.partition("://")[2],
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port(endpoint: Endpoint, broker_id: int, before: int, here: bool, taken: set[int]) -> int:
    if endpoint.port == 0:
        return free_port(endpoint.host if here else LOOPBACK, taken)
    port = endpoint.port + before
    return require_port(endpoint.host, port, f"broker {broker_id}") if here else port


def _reachable(host: str, node: Node) -> str:
    """A wildcard is no address that a client can be told."""
    if host in WILDCARDS:
        return socket.gethostname() if node.address == LOOPBACK else node.address
    return host
