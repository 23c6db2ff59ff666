from __future__ import annotations

import json
from pathlib import Path

import jwt
import pytest

from appliance.security.exchanges import AuthenticationFailed
from appliance.security.oauth import BadToken, OAuthExchange, TokenRules, UnknownKey, check_token, read_keys
from appliance.security.principals import Principal
from tests.support.tokens import TokenIssuer

NOW = 1_700_000_000
RULES = TokenRules(audiences=(), issuer=None, subject_claim="sub", clock_skew_ms=30_000)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer"))


def check(issuer: TokenIssuer, token: str, rules: TokenRules = RULES, at: int = NOW) -> tuple[str, int]:
    return check_token(token, read_keys(issuer.keys.read_bytes()), rules, at * 1_000)


def test_a_token_names_its_subject_until_it_ends(issuer: TokenIssuer) -> None:
    token = issuer.token(now=NOW, lifetime_s=60)
    assert check(issuer, token) == ("alice", (NOW + 60) * 1_000)
    assert check(issuer, token, at=NOW + 89)[0] == "alice"
    with pytest.raises(BadToken, match="expired"):
        check(issuer, token, at=NOW + 90)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"sub": None}, "names nobody"),
        ({"sub": " "}, "names nobody"),
        ({"nbf": NOW + 100}, "not valid yet"),
        ({"exp": "soon"}, "no time"),
    ],
)
def test_what_a_token_must_say(issuer: TokenIssuer, claims: dict[str, object], words: str) -> None:
    with pytest.raises(BadToken, match=words):
        check(issuer, issuer.token(**{"now": NOW, **claims}))  # type: ignore[arg-type]


def test_audience_issuer_and_claim_are_looked_at_where_they_are_asked_for(issuer: TokenIssuer) -> None:
    token = issuer.token(now=NOW, aud=["kafka", "other"], iss="https://issuer", client="c1")
    assert check(issuer, token, TokenRules(("x", "kafka"), "https://issuer", "client", 0))[0] == "c1"
    for rules in (TokenRules(("x",), None, "sub", 0), TokenRules((), "https://other", "sub", 0)):
        with pytest.raises(BadToken):
            check(issuer, token, rules)


def test_no_signature_another_key_and_a_shared_secret_are_refused(issuer: TokenIssuer, tmp_path: Path) -> None:
    claims = {"sub": "alice", "iat": NOW, "exp": NOW + 60}
    with pytest.raises(BadToken):
        check(issuer, jwt.encode(claims, None, algorithm="none", headers={"kid": "first"}))
    other = TokenIssuer(tmp_path)
    with pytest.raises(BadToken):
        check(issuer, other.token(now=NOW))
    with pytest.raises(BadToken):
        # The public key as if it were a secret that both sides know.
        secret = json.loads(issuer.key_set())["keys"][0]["n"]
        check(issuer, jwt.encode(claims, secret, algorithm="HS256", headers={"kid": "first"}))
    with pytest.raises(UnknownKey):
        check(issuer, jwt.encode(claims, "s" * 32, algorithm="HS256", headers={"kid": "second"}))
    with pytest.raises(BadToken):
        check(issuer, "no.token.at-all")


def test_keys_that_cannot_be_used_are_refused() -> None:
    secret = b'{"keys": [{"kty": "oct", "kid": "a", "alg": "HS256", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}'
    for data in (b"", b"{}", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "RSA"}]}', secret):
        with pytest.raises(ValueError):
            read_keys(data)


def first(token: str, authorization_id: str = "") -> bytes:
    asked = f"a={authorization_id}" if authorization_id else ""
    return f"n,{asked},\x01auth=Bearer {token}\x01traceId=1\x01\x01".encode()


def test_an_exchange_ends_well_or_after_one_more_word(issuer: TokenIssuer) -> None:
    exchange = OAuthExchange(lambda token: check(issuer, token))
    assert exchange.evaluate(first(issuer.token(now=NOW), "alice")) == b""
    assert exchange.principal == Principal("User", "alice") and exchange.expires_ms == (NOW + 3_600) * 1_000
    refused = OAuthExchange(lambda token: check(issuer, token))
    assert refused.evaluate(first(issuer.token(now=NOW - 10_000))) == b'{"status":"invalid_token"}'
    with pytest.raises(AuthenticationFailed) as failed:
        refused.evaluate(b"\x01")
    assert failed.value.told == '{"status":"invalid_token"}' and refused.principal is None


def test_words_of_another_kind_end_it(issuer: TokenIssuer) -> None:
    for words in (b"", b"\xff", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", first(issuer.token(now=NOW), "bob")):
        exchange = OAuthExchange(lambda token: check(issuer, token))
        with pytest.raises(AuthenticationFailed):
            exchange.evaluate(words)
        assert exchange.principal is None
