"""Which listeners a broker has: their names, addresses, protocols, and what clients are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError

MAX_PORT = 65_535
WILDCARDS = ("", "0.0.0.0", "::")


class SecurityProtocol(IntEnum):
    """As registrations number them."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: where it listens, or where clients find it."""

    name: str
    host: str
    """Empty: every address of the machine."""
    port: int
    protocol: SecurityProtocol

    @property
    def text(self) -> str:
        """As `listeners` has it."""
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """All listeners of a broker."""

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """A port of 0 stands for the one that its listener got."""
    inter_broker: str
    """Name of the one that brokers use among themselves."""

    def advertised_as(self, ports: Sequence[int], host: str) -> list[Endpoint]:
        """What to register when the listeners have got these ports: that of brokers first.

        Args:
            host: what clients are told instead of a wildcard.
        """
        got = {endpoint.name: port for endpoint, port in zip(self.bound, ports, strict=True)}
        told = [
            replace(one, port=one.port or got[one.name], host=host if one.host in WILDCARDS else one.host)
            for one in self.advertised
        ]
        return sorted(told, key=lambda one: one.name != self.inter_broker)


def protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Read `listener.security.protocol.map`.

    Raises:
        UserError: that is not such a map.
    """
    protocols: dict[str, SecurityProtocol] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.strip().upper() not in SecurityProtocol.__members__:
            raise UserError(f"listener.security.protocol.map: {item!r} names no listener and protocol")
        if name.strip().upper() in protocols:
            raise UserError(f"listener.security.protocol.map names {name.strip()} twice")
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
    return protocols


def parse_endpoint(text: str, protocols: dict[str, SecurityProtocol], key: str) -> Endpoint:
    """Read NAME://host:port.

    Raises:
        UserError: it is something else, or the map does not know the name.
    """
    name, separator, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise UserError(f"{key}: {text!r} is not NAME://host:port")
    protocol = protocols.get(name.upper())
    if protocol is None:
        raise UserError(f"{key}: listener {name} has no protocol in listener.security.protocol.map")
    return Endpoint(name.upper(), host.removeprefix("[").removesuffix("]"), int(port), protocol)


def listeners_of(config: BrokerConfig) -> Listeners:
    """The listeners that a configuration names; those of controllers are left out.

    Raises:
        UserError: they contradict each other.
    """
    protocols = protocol_map(config.get("listener.security.protocol.map"))
    bound = _endpoints(config, "listeners", protocols)
    if not bound:
        raise UserError("listeners names no listener for clients")
    if len({one.port for one in bound if one.port}) < len([one for one in bound if one.port]):
        raise UserError("listeners: each listener needs a port of its own")
    told = _endpoints(config, "advertised.listeners", protocols) if config.get("advertised.listeners") else bound
    names = [one.name for one in bound]
    for one in told:
        if one.name not in names:
            raise UserError(f"advertised.listeners names {one.name}, which is not in listeners")
        if one.host in WILDCARDS[1:] and told is not bound:
            raise UserError(f"advertised.listeners: nobody can connect to {one.host}")
    # A listener that is not advertised is listened on all the same, as in Kafka; nobody is told.
    return Listeners(bound, told, _inter_broker(config, told, protocols))


def _endpoints(config: BrokerConfig, key: str, protocols: dict[str, SecurityProtocol]) -> tuple[Endpoint, ...]:
    controllers = {name.upper() for name in config.get("controller.listener.names")} | {"CONTROLLER"}
    endpoints = [
        parse_endpoint(text, protocols, key)
        for text in config.get(key)
        if text.strip().partition("://")[0].upper() not in controllers
    ]
    names = [one.name for one in endpoints]
    if len(set(names)) < len(names):
        raise UserError(f"{key}: each listener needs a name of its own")
    return tuple(endpoints)


def _inter_broker(config: BrokerConfig, told: Sequence[Endpoint], protocols: dict[str, SecurityProtocol]) -> str:
    named: str | None = config.get("inter.broker.listener.name")
    if named:
        if config.is_set("security.inter.broker.protocol"):
            raise UserError("set inter.broker.listener.name or security.inter.broker.protocol, not both")
        if named.upper() not in [one.name for one in told]:
            raise UserError(f"inter.broker.listener.name is {named}, which is not an advertised listener")
        return named.upper()
    protocol = config.get("security.inter.broker.protocol")
    for one in told:
        if one.name == protocol:
            return one.name
    fitting = [one.name for one in told if one.protocol.name == protocol]
    if not fitting and not config.is_set("security.inter.broker.protocol") and len(told) == 1:
        return told[0].name
    if len(fitting) != 1:
        raise UserError("say with inter.broker.listener.name which listener brokers use among themselves")
    return fitting[0]
