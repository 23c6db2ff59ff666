"""Cases about SASL: what a client says before it is known, on a listener that wants to know it."""

from __future__ import annotations

from appliance.client.connection import Connection
from appliance.wire.api import ApiKey
from appliance.wire.messages.metadata import MetadataRequest
from appliance.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from appliance.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.differential.sides import Case, Side

HANDSHAKE, AUTHENTICATE = 1, 2


def token(user: str, password: str, identity: str = "") -> bytes:
    return b"\0".join(each.encode() for each in (identity, user, password))


def _asked_for(side: Side, mechanism: str = "PLAIN") -> Connection:
    """A connection whose next token is taken for one of this mechanism."""
    connection = side.another()
    answer = connection.call(SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE)
    assert answer.error_code == 0, (side.name, answer)
    return connection


def _known(side: Side) -> Connection:
    connection = _asked_for(side)
    answer = connection.call(SaslAuthenticateRequest(auth_bytes=token("owner", "owner-secret")), AUTHENTICATE)
    assert answer.error_code == 0, (side.name, answer)
    return connection


def sasl_handshake(side: Side) -> None:
    def ask(label: str, mechanism: str, on: Connection | None = None) -> None:
        side.ask(label, SaslHandshakeRequest(mechanism=mechanism), on=on or side.another())

    ask("a mechanism that is served", "PLAIN")
    ask("one that is not", "GSSAPI")
    ask("one that is none", "NO-SUCH")
    ask("in small letters", "plain")
    ask("without a name", "")
    ask("once more", "PLAIN", _asked_for(side))
    ask("of somebody who is known", "PLAIN", _known(side))


def sasl_authenticate(side: Side) -> None:
    def ask(label: str, data: bytes, on: Connection | None = None) -> None:
        side.ask(label, SaslAuthenticateRequest(auth_bytes=data), on=on or _asked_for(side))

    good = token("owner", "owner-secret")
    ask("the right password", good)
    ask("in its own name", token("owner", "owner-secret", "owner"))
    ask("in another's name", token("owner", "owner-secret", "root"))
    ask("a wrong password", token("owner", "wrong"))
    ask("somebody unknown", token("stranger", "stranger-secret"))
    ask("no user", token("", "owner-secret"))
    ask("no password", token("owner", ""))
    ask("no token", b"owner owner-secret")
    ask("too many parts", good + b"\0more")
    ask("nothing", b"")
    ask("without a handshake", good, side.another())
    ask("once more", good, _known(side))
    side.ask("another request before", MetadataRequest(topics=[]), 12, on=_asked_for(side))


SASL_CASES = [
    Case("sasl_handshake", int(ApiKey.SASL_HANDSHAKE), sasl_handshake),
    Case("sasl_authenticate", int(ApiKey.SASL_AUTHENTICATE), sasl_authenticate),
]
