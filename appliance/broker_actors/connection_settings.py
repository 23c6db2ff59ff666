"""Which connections a broker lets in: what its configs and the quotas of addresses say, told to the server's doors."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping

from appliance.base.background import Background
from appliance.base.config import BrokerConfig, connections_per_host
from appliance.controller.image import MetadataImage, QuotaEntity
from appliance.quotas.connections import ConnectionLimits, ListenerLimits, is_address, plain_address
from appliance.security.listeners import Listeners
from appliance.server.server import Server

_log = logging.getLogger(__name__)


def connection_limits_of(
    config: BrokerConfig, listeners: Listeners, addresses: Mapping[str, tuple[str, ...]] | None = None
) -> ConnectionLimits:
    """What the configs say. `addresses`: of the hosts that `max.connections.per.ip.overrides` names."""
    names = [endpoint.name for endpoint in listeners.bound]
    overrides: dict[str, int] = {}
    for host, most in connections_per_host(config).items():
        for address in (plain_address(host),) if is_address(host) else (addresses or {}).get(host, ()):
            overrides[address] = most
    return ConnectionLimits(
        max_connections=config.get("max.connections"),
        max_connections_per_ip=config.get("max.connections.per.ip"),
        overrides=overrides,
        creation_rate=config.get("max.connection.creation.rate"),
        listeners={
            name: ListenerLimits(
                config.get_for(name, "max.connections"), config.get_for(name, "max.connection.creation.rate")
            )
            for name in names
        },
        protected=listeners.inter_broker if len(names) > 1 else "",
        windows=config.get("quota.window.num"),
        window_ms=config.get("quota.window.size.seconds") * 1_000,
    )


class ConnectionSettings:
    """On the loop's thread."""

    def __init__(self, server: Server, listeners: Listeners, background: Background) -> None:
        self._server = server
        self._listeners = listeners
        self._background = background
        self._config: BrokerConfig | None = None
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}

    def config_changed(self, config: BrokerConfig) -> None:
        """At the start, and when configs were altered. Names of hosts are looked up by a helper thread."""
        self._config = config
        self._server.admission.set_limits(connection_limits_of(config, self._listeners))
        hosts = [host for host in connections_per_host(config) if not is_address(host)]
        if hosts:
            self._background.run(lambda: _resolved(hosts), lambda found: self._found(config, found))

    def image_changed(self, image: MetadataImage) -> None:
        """Other quotas may be set."""
        if image.client_quotas is not self._quotas:
            self._quotas = image.client_quotas
            self._server.admission.quotas.set_ip_rates(image.client_quotas)

    def _found(self, config: BrokerConfig, found: dict[str, tuple[str, ...]] | Exception) -> None:
        if isinstance(found, Exception):
            _log.warning("hosts of max.connections.per.ip.overrides were not looked up: %s", found)
        elif config is self._config:
            self._server.admission.set_limits(connection_limits_of(config, self._listeners, found))


def _resolved(hosts: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        try:
            rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            _log.warning("max.connections.per.ip.overrides: %s is passed over: %s", host, error)
            continue
        found[host] = tuple(dict.fromkeys(plain_address(str(row[4][0])) for row in rows))
    return found
