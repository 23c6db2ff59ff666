"""How many connections there may be, and how fast new ones may come: pure (KIP-402, KIP-612).

As in Kafka:

- All listeners share `max.connections` and `max.connection.creation.rate`, and each has its own of both
  (`listener.name.NAME.…`). Who comes too fast, or finds no room, waits at the door, and the listener with it.
- The listener that brokers use among themselves knows only its own limits where there are others beside it: another
  listener's connection goes instead.
- An address has a number of connections, with exceptions, and a rate (`connection_creation_rate`). Who is above the
  number is closed at once, who is above the rate after the time that the rate asks for. Neither is ever answered.
- A wait is at most a window of the quotas long.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.quotas.rates import Rate
from appliance.quotas.table import CONNECTION_CREATION_RATE, IP, Entity

UNLIMITED = 2**31 - 1
RATES_KEPT_MAX = 10_000
"""Addresses whose rate is kept. Beyond it the one that came first is forgotten, and may begin anew."""


def plain_address(host: str) -> str:
    """The one way to write an address: IPv4 also where it came in on an IPv6 socket. Others stay as they are."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def is_address(host: str) -> bool:
    """Whether it is no name that has to be looked up."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What one listener admits."""

    max_connections: int = UNLIMITED
    creation_rate: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a server admits."""

    max_connections: int = UNLIMITED
    """`max.connections`."""
    max_connections_per_ip: int = UNLIMITED
    """`max.connections.per.ip`."""
    overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`, by address."""
    creation_rate: int = UNLIMITED
    """`max.connection.creation.rate`: connections per second."""
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    """By name; one that is not here has no limits of its own."""
    protected: str = ""
    """The listener that brokers use among themselves, where there are others beside it."""
    windows: int = 11
    """`quota.window.num`."""
    window_ms: int = 1_000


_NO_LIMITS = ListenerLimits()


class ConnectionQuotas:
    """Who may come in when. Counts what is open."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.open = 0
        self._by_listener: dict[str, int] = {}
        self._by_address: dict[str, int] = {}
        self._all = self._new_rate(limits.creation_rate)
        self._listener_rates: dict[str, Rate] = {}
        self._ip_limits: Mapping[str, float] = {}
        self._ip_default: float | None = None
        self._ip_rates: dict[str, Rate] = {}

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Other limits; what has come already still counts."""
        self.limits = limits
        self._all.limit = limits.creation_rate
        for name, rate in self._listener_rates.items():
            rate.limit = self._of(name).creation_rate

    def set_ip_rates(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """The quotas of addresses, out of those of everybody."""
        limits: dict[str, float] = {}
        self._ip_default = None
        for whom, values in quotas.items():
            (kind, name), limit = whom[0], values.get(CONNECTION_CREATION_RATE)
            if kind != IP or limit is None:
                continue
            if name is None:
                self._ip_default = limit
            else:
                limits[plain_address(name)] = limit
        self._ip_limits = limits
        self._ip_rates = {address: rate for address, rate in self._ip_rates.items() if self._limited(address, rate)}

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """One more has come to this listener: how long it, and all behind it, must wait before it is let in."""
        rate = self._listener_rates.get(listener)
        if rate is None:
            rate = self._listener_rates[listener] = self._new_rate(self._of(listener).creation_rate)
        rate.record(1, now_ms)
        wait_ms = rate.wait_ms(now_ms)
        if listener != self.limits.protected:
            self._all.record(1, now_ms)
            wait_ms = max(wait_ms, self._all.wait_ms(now_ms))
        return self._bounded(wait_ms)

    def has_room(self, listener: str) -> bool:
        """Whether one more may be open here."""
        if self._by_listener.get(listener, 0) >= self._of(listener).max_connections:
            return False
        return listener == self.limits.protected or self.open < self.limits.max_connections

    def address_wait_ms(self, address: str, now_ms: int) -> int:
        """One more comes from this address; if not 0, it is not let in, and closed after that time."""
        limit = self._ip_limits.get(address, self._ip_default)
        if limit is None or limit >= UNLIMITED:
            return 0
        rate = self._ip_rates.get(address)
        if rate is None:
            self._make_room(now_ms)
            rate = self._ip_rates[address] = self._new_rate(limit)
        rate.record(1, now_ms)
        wait_ms = self._bounded(rate.wait_ms(now_ms))
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms

    def too_many_of(self, address: str) -> bool:
        """Whether as many are open from this address as may be."""
        most = self.limits.overrides.get(address, self.limits.max_connections_per_ip)
        return self._by_address.get(address, 0) >= most

    def opened(self, listener: str, address: str) -> None:
        """One was let in."""
        self.open += 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def closed(self, listener: str, address: str) -> None:
        """One that was let in has ended."""
        self.open -= 1
        self._by_listener[listener] -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]

    @property
    def one_must_go(self) -> bool:
        """Whether the protected listener has taken the place of a connection of another one."""
        return bool(self.limits.protected) and self.open > self.limits.max_connections

    def _of(self, listener: str) -> ListenerLimits:
        return self.limits.listeners.get(listener, _NO_LIMITS)

    def _new_rate(self, limit: float) -> Rate:
        return Rate(limit, self.limits.windows, self.limits.window_ms)

    def _bounded(self, wait_ms: int) -> int:
        return min(wait_ms, self.limits.window_ms)

    def _limited(self, address: str, rate: Rate) -> bool:
        """Whether the address still has a limit; its rate learns of another one."""
        limit = self._ip_limits.get(address, self._ip_default)
        if limit is not None:
            rate.limit = limit
        return limit is not None

    def _make_room(self, now_ms: int) -> None:
        if len(self._ip_rates) < RATES_KEPT_MAX:
            return
        self._ip_rates = {address: rate for address, rate in self._ip_rates.items() if not rate.is_idle(now_ms)}
        if len(self._ip_rates) >= RATES_KEPT_MAX:
            del self._ip_rates[next(iter(self._ip_rates))]
