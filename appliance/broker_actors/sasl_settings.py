"""What a listener's configs say of SASL: its mechanisms, and where their users are."""

from __future__ import annotations

from typing import Any, Protocol

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.randomness import Randomness
from appliance.broker_actors.jwks import KeyStore
from appliance.controller.image import MetadataImage
from appliance.security.exchanges import CredentialLookup, ExchangeMaker, PlainExchange, ScramExchange
from appliance.security.jaas import parse_jaas
from appliance.security.oauth import OAUTHBEARER, OAuthExchange, TokenRules
from appliance.security.sasl_client import NONCE_BYTES, PLAIN
from appliance.security.scram import MECHANISMS, ScramCredential, ScramMechanism
from appliance.server.authentication import SaslSettings


class SaslHost(Protocol):
    """A broker or a controller."""

    @property
    def clock(self) -> Clock: ...
    @property
    def randomness(self) -> Randomness: ...
    @property
    def image(self) -> MetadataImage: ...


def sasl_settings(config: BrokerConfig, listener: str, background: Background, host: SaslHost) -> SaslSettings:
    """Raises: UserError, a mechanism is not known here or lacks its users."""
    names = config.get_for(listener, "sasl.enabled.mechanisms")
    if not names:
        raise UserError(f"listener {listener}: sasl.enabled.mechanisms names none")
    return SaslSettings(
        mechanisms={name: _maker(config, listener, name, background, host) for name in names},
        max_receive_bytes=config.get_for(listener, "sasl.server.max.receive.size"),
        max_session_ms={name: config.get_for(listener, "connections.max.reauth.ms", name) for name in names},
        failure_delay_ms=config.get("connection.failed.authentication.delay.ms"),
        background=background,
        clock=host.clock,
    )


def _maker(
    config: BrokerConfig, listener: str, mechanism: str, background: Background, host: SaslHost
) -> ExchangeMaker:
    if mechanism == PLAIN:
        text = config.get_for(listener, "sasl.jaas.config", mechanism)
        if not text:
            key = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
            raise UserError(f"listener {listener}: PLAIN needs its users in {key}")
        users = parse_jaas(text).users
        return lambda: PlainExchange(users)
    if mechanism in MECHANISMS:
        kind = MECHANISMS[mechanism]
        return lambda: ScramExchange(kind, host.randomness.random_bytes(NONCE_BYTES).hex(), _lookup(host))
    if mechanism == OAUTHBEARER:
        keys = _key_store(config, listener, background, host)
        return lambda: OAuthExchange(keys.check)
    known = ", ".join([PLAIN, *MECHANISMS, OAUTHBEARER])
    raise UserError(f"listener {listener}: sasl.enabled.mechanisms has {mechanism}; known here: {known}")


def _key_store(config: BrokerConfig, listener: str, background: Background, host: SaslHost) -> KeyStore:
    def value(name: str) -> Any:
        return config.get_for(listener, name, OAUTHBEARER)

    url = value("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise UserError(f"listener {listener}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url")
    rules = TokenRules(
        audiences=value("sasl.oauthbearer.expected.audience"),
        issuer=value("sasl.oauthbearer.expected.issuer"),
        subject_claim=value("sasl.oauthbearer.sub.claim.name"),
        clock_skew_ms=1_000 * value("sasl.oauthbearer.clock.skew.seconds"),
    )
    return KeyStore(
        url,
        rules,
        background,
        host.clock,
        refresh_ms=value("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        backoff_ms=value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
    )


def _lookup(host: SaslHost) -> CredentialLookup:
    def lookup(username: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return host.image.scram_credentials.get((username, int(mechanism)))

    return lookup
