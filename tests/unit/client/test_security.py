from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.client.security import PLAIN, NotAuthenticated, authenticate, client_security
from appliance.security.sasl_client import SaslClient
from appliance.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from appliance.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.certificates import Authority

JAAS = 'x.PlainLoginModule required username="alice" password="secret";'


def test_nothing_is_asked_for_on_a_plain_listener() -> None:
    assert client_security({}) == PLAIN
    assert client_security({"client.id": "x", "ssl.keystore.location": "/nowhere"}).tls is None


def test_configs_of_kafkas_tools_say_whom_to_trust_and_who_we_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    properties = {
        "security.protocol": "sasl_ssl",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS,
    }
    found = client_security(properties)
    assert found.sasl is not None and (found.sasl.username, found.sasl.password) == ("alice", "secret")
    assert "secret" not in repr(found)
    assert found.tls is not None
    context = found.tls.context
    assert context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
    unchecked = client_security(properties | {"ssl.endpoint.identification.algorithm": ""})
    assert unchecked.tls is not None and not unchecked.tls.context.check_hostname
    assert unchecked.tls.context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "TLS"}, "there are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs sasl.jaas.config"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS}, "GSSAPI is not known"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.M required;"},
            "needs username and password",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}, "PEM is what can be read"),
        ({"security.protocol": "SSL", "ssl.truststor.location": "x"}, "did you mean ssl.truststore.location"),
    ],
)
def test_what_is_not_known_is_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        client_security(properties)


def test_an_authentication_is_a_handshake_and_tokens_until_the_mechanism_has_enough() -> None:
    steps = authenticate(SaslClient("PLAIN", "alice", "secret"))
    request, version = next(steps)
    assert isinstance(request, SaslHandshakeRequest) and (request.mechanism, version) == ("PLAIN", 1)
    request, version = steps.send(SaslHandshakeResponse())
    assert isinstance(request, SaslAuthenticateRequest) and bytes(request.auth_bytes) == b"\0alice\0secret"
    with pytest.raises(StopIteration):
        steps.send(SaslAuthenticateResponse())


def test_a_refusal_is_told_in_the_servers_words() -> None:
    steps = authenticate(SaslClient("PLAIN", "alice", "secret"))
    next(steps)
    with pytest.raises(NotAuthenticated, match="not offered"):
        steps.send(SaslHandshakeResponse(error_code=33))
    steps = authenticate(SaslClient("SCRAM-SHA-256", "alice", "secret"))
    next(steps)
    steps.send(SaslHandshakeResponse())
    with pytest.raises(NotAuthenticated, match="no such luck"):
        steps.send(SaslAuthenticateResponse(error_code=58, error_message="no such luck"))
    steps = authenticate(SaslClient("SCRAM-SHA-256", "alice", "secret"))
    next(steps)
    steps.send(SaslHandshakeResponse())
    with pytest.raises(NotAuthenticated, match="cannot be taken"):
        steps.send(SaslAuthenticateResponse(auth_bytes=b"r=other,s=AAAA,i=4096"))
