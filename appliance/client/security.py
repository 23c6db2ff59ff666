"""How a client shows who it is and makes sure of the other side: TLS and SASL, by the same configs as a listener's."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.security.jaas import parse_jaas
from appliance.security.listeners import Listeners, SecurityProtocol, listeners_of
from appliance.security.sasl_client import SaslClient, sasl_client
from appliance.security.scram import ScramFailed
from appliance.security.tls import ReloadingContext, TlsFiles, tls_files
from appliance.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from appliance.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from appliance.wire.schema import Struct


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What connections to one kind of listener need; nothing for PLAINTEXT."""

    tls: ReloadingContext | None = None
    sasl: SaslClient | None = None


PLAIN = ClientSecurity()


def inter_broker_security(config: BrokerConfig, listeners: Listeners | None = None) -> ClientSecurity:
    """What brokers need to talk to each other, from the configs of the listener that they use for it.

    Raises:
        UserError: keys or certificates cannot be used.
    """
    listeners = listeners or listeners_of(config)
    protocol = next(one.protocol for one in listeners.advertised if one.name == listeners.inter_broker)
    if protocol == SecurityProtocol.PLAINTEXT:
        return PLAIN
    tls = None
    if protocol.has_tls:
        tls = ReloadingContext(tls_files(config, listeners.inter_broker), TlsFiles.client_context)
    sasl = None
    if protocol.has_sasl:
        mechanism = config.get("sasl.mechanism.inter.broker.protocol")
        text = config.get_for(listeners.inter_broker, "sasl.jaas.config", mechanism)
        if not text:
            raise UserError(f"{mechanism} between brokers needs sasl.jaas.config with username and password")
        sasl = sasl_client(mechanism, parse_jaas(text))
    return ClientSecurity(tls, sasl)


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Of an appliance's configs those that `service_security` needs."""
    about = ("listener", "advertised.listeners", "inter.broker.", "security.", "ssl.", "sasl.", "controller.listener.")
    return {name: text for name, text in properties.items() if name.startswith(about)}


def service_security(properties: Mapping[str, str]) -> ClientSecurity:
    """What the appliance's own services need: they come in where brokers reach each other, and by the same means.

    Raises:
        UserError: keys or certificates cannot be used.
    """
    config = BrokerConfig(own_properties(properties))
    return inter_broker_security(config) if config.is_set("listeners") else PLAIN


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """From the configs that Kafka's tools take as `--command-config`; what is not about security is passed over.

    Raises:
        UserError: something that is not known here, or keys that cannot be used.
    """
    protocol_name = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol_name not in SecurityProtocol.__members__:
        raise UserError(f"security.protocol is {protocol_name}; there are {', '.join(SecurityProtocol.__members__)}")
    protocol = SecurityProtocol[protocol_name]
    own = {name: text for name, text in properties.items() if name.startswith("ssl.") or name == "sasl.jaas.config"}
    config = BrokerConfig(own)
    tls = ReloadingContext(tls_files(config, "client"), TlsFiles.client_context) if protocol.has_tls else None
    if not protocol.has_sasl:
        return ClientSecurity(tls)
    mechanism, entry = properties.get("sasl.mechanism", "GSSAPI"), properties.get("sasl.jaas.config")
    if not entry:
        raise UserError(f"{protocol_name} needs sasl.jaas.config with username and password")
    return ClientSecurity(tls, sasl_client(mechanism, parse_jaas(entry)))


HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1
"""Known to every broker since 2018, and with headers that never changed."""


class NotAuthenticated(OSError):
    """The other side does not take who we say we are, or is not who we think."""


def authenticate(sasl: SaslClient) -> Generator[tuple[Struct, int], Struct, None]:
    """The requests that come before all others, and their versions; takes the responses. Raises: NotAuthenticated."""
    agreed = yield SaslHandshakeRequest(mechanism=sasl.mechanism), HANDSHAKE_VERSION
    if not isinstance(agreed, SaslHandshakeResponse) or agreed.error_code:
        raise NotAuthenticated(f"SASL mechanism {sasl.mechanism} is not offered there")
    tokens = sasl.exchange()
    try:
        token = next(tokens)
        while True:
            answer = yield SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION
            if not isinstance(answer, SaslAuthenticateResponse) or answer.error_code:
                raise NotAuthenticated(getattr(answer, "error_message", None) or "authentication failed")
            token = tokens.send(bytes(answer.auth_bytes))
    except StopIteration:
        return
    except ScramFailed as error:
        raise NotAuthenticated(str(error)) from error
