"""The listeners of a broker: opened by its configs, told to the controller, their certificates looked after."""

from __future__ import annotations

from appliance.base.background import Background
from appliance.base.config import BrokerConfig
from appliance.base.processes import BrokerSettings
from appliance.broker_actors.sasl_settings import SaslHost, sasl_settings
from appliance.client.security import PLAIN, ClientSecurity, inter_broker_security
from appliance.controller.records import Listener
from appliance.security.listeners import Endpoint, Listeners, SecurityProtocol, listeners_of
from appliance.security.principals import PrincipalMapper
from appliance.security.tls import ReloadingContext, TlsFiles, tls_files
from appliance.server.listener import DEFAULT_LISTENER, ListenerProfile
from appliance.server.server import Server


class BrokerListeners:
    """On the loop's thread.

    Raises:
        UserError: the configs contradict each other, or keys cannot be used.
    """

    def __init__(self, config: BrokerConfig, settings: BrokerSettings, background: Background, host: SaslHost) -> None:
        self._settings = settings
        self.listeners = _listeners(config, settings)
        self.security: ClientSecurity = inter_broker_security(config, self.listeners)
        """With which this broker connects to others."""
        self._profiles = [profile_of(config, endpoint, background, host) for endpoint in self.listeners.bound]
        watch_certificates(config, background, self.security, *self._profiles)

    def open(self, server: Server) -> tuple[Listener, ...]:
        """Listen everywhere; returns what to register: first the listener that brokers use among themselves.

        Raises:
            UserError: an address cannot be had (exit code 3).
        """
        ports = [
            server.listen(endpoint.host, endpoint.port, profile)
            for endpoint, profile in zip(self.listeners.bound, self._profiles, strict=True)
        ]
        told = self.listeners.advertised_as(ports, self._settings.advertised_host)
        return tuple(Listener(one.name, one.host, one.port, int(one.protocol)) for one in told)


def watch_certificates(
    config: BrokerConfig, background: Background, *holders: ClientSecurity | ListenerProfile
) -> None:
    """Look at the files of keys and certificates now and then, for as long as the background goes on.

    They are read by a helper thread; new connections take what it has put in place.
    """
    contexts = [holder.tls for holder in holders if holder.tls is not None]

    def look() -> None:
        background.schedule(config.get("ssl.reload.interval.ms"), look)
        background.run(lambda: [context.reload_if_changed() for context in contexts], lambda result: None)

    if contexts:
        background.schedule(config.get("ssl.reload.interval.ms"), look)


def controller_listener(
    config: BrokerConfig, background: Background, host: SaslHost
) -> tuple[ListenerProfile, ClientSecurity]:
    """A controller's listener, and how it connects: by the configs of the listener that brokers use among themselves.

    Raises:
        UserError: the configs contradict each other, or keys cannot be used.
    """
    if not config.is_set("listeners"):
        return DEFAULT_LISTENER, PLAIN
    listeners = listeners_of(config)
    endpoint = next(one for one in listeners.bound if one.name == listeners.inter_broker)
    profile, security = profile_of(config, endpoint, background, host), inter_broker_security(config, listeners)
    watch_certificates(config, background, profile, security)
    return profile, security


def profile_of(config: BrokerConfig, endpoint: Endpoint, background: Background, host: SaslHost) -> ListenerProfile:
    """What the configs of a listener ask of its clients. Raises: UserError."""
    name = endpoint.name
    sasl = sasl_settings(config, name, background, host) if endpoint.protocol.has_sasl else None
    if not endpoint.protocol.has_tls:
        return ListenerProfile(name, sasl=sasl)
    tls = ReloadingContext(tls_files(config, name), TlsFiles.server_context)
    # Under SASL_SSL names come from SASL alone.
    has_names = not endpoint.protocol.has_sasl
    mapper = PrincipalMapper(config.get_for(name, "ssl.principal.mapping.rules")) if has_names else None
    return ListenerProfile(name, tls, mapper, sasl)


def _listeners(config: BrokerConfig, settings: BrokerSettings) -> Listeners:
    if config.is_set("listeners"):
        return listeners_of(config)
    plain = SecurityProtocol.PLAINTEXT
    return Listeners(
        (Endpoint(plain.name, settings.host, settings.port, plain),),
        (Endpoint(plain.name, settings.advertised_host, 0, plain),),
        plain.name,
    )
