"""OAUTHBEARER (RFC 7628): a client shows a signed token (JWT) of an authority whose public keys are known. Pure.

A token that is not taken is answered with a JSON object, the client says that it has understood, and then it is over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.security.exchanges import AuthenticationFailed
from appliance.security.principals import USER, Principal

OAUTHBEARER = "OAUTHBEARER"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key. A shared secret would be no secret: keys come from an address that anybody may read."""
KEYS_MAX = 100


class BadToken(Exception):
    """The token is not taken; why is for our log."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to say, and where."""

    audiences: tuple[str, ...]
    """Empty: any."""
    issuer: str | None
    subject_claim: str
    clock_skew_ms: int


Keys = Mapping[str, Any]
"""By key id; the keys are PyJWT's."""


def read_keys(data: bytes) -> Keys:
    """Read a JSON Web Key Set. Raises: ValueError."""
    import jwt

    try:
        found = jwt.PyJWKSet.from_json(data.decode("utf-8"))
    except (jwt.PyJWTError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a set of keys: {error}") from error
    usable = [key for key in found.keys if key.algorithm_name in ALGORITHMS]
    if not usable or len(usable) > KEYS_MAX:
        raise ValueError(f"{len(usable)} keys for public signatures; 1 to {KEYS_MAX} are taken")
    return {key.key_id or "": key for key in usable}


def check_token(token: str, keys: Keys, rules: TokenRules, now_ms: int) -> tuple[str, int]:
    """The subject of a token, and when it ends. Raises: BadToken, or UnknownKey when its key is not there."""
    import jwt

    try:
        kid = jwt.get_unverified_header(token).get("kid", "")
        key = keys.get(kid) or (next(iter(keys.values())) if not kid and len(keys) == 1 else None)
        if key is None:
            raise UnknownKey(f"key {kid!r} is not known")
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm_name],
            audience=list(rules.audiences) or None,
            issuer=rules.issuer,
            options={
                "require": ["exp", "iat"],
                "verify_aud": bool(rules.audiences),
                # Times are compared below, with the clock that we were given.
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
                "verify_sub": False,
            },
        )
    except jwt.PyJWTError as error:
        raise BadToken(str(error)) from error
    expires_ms, issued_ms = _time(claims, "exp"), _time(claims, "iat")
    if now_ms >= expires_ms + rules.clock_skew_ms:
        raise BadToken("it has expired")
    if "nbf" in claims and now_ms < _time(claims, "nbf") - rules.clock_skew_ms:
        raise BadToken("it is not valid yet")
    if issued_ms > expires_ms:
        raise BadToken("it ends before it was issued")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise BadToken(f"claim {rules.subject_claim} names nobody")
    return subject.strip(), expires_ms


class UnknownKey(BadToken):
    """Its key may be newer than our list."""


def _time(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 40:
        raise BadToken(f"claim {name} is no time")
    return int(value * 1_000)


_FIRST = re.compile(r"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_UNDERSTOOD = b"\x01"
_BEARER = re.compile(r"(?:\A|\x01)auth=Bearer +([-_~+/.A-Za-z0-9=]+)\x01", re.IGNORECASE)

TokenCheck = Callable[[str], tuple[str, int]]
"""`check_token` with the keys of now."""


class OAuthExchange:
    """One exchange."""

    def __init__(self, check: TokenCheck) -> None:
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._check = check
        self._failure = ""

    def evaluate(self, token: bytes) -> bytes:
        """As `Exchange.evaluate`."""
        if self._failure:
            raise AuthenticationFailed(_refusal(), self._failure)
        found = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        bearer = _BEARER.search(found[2]) if found is not None else None
        if found is None or bearer is None:
            raise AuthenticationFailed("", "the first message cannot be read")
        try:
            subject, expires_ms = self._check(bearer[1])
        except BadToken as error:
            self._failure = str(error) or type(error).__name__
            return _refusal().encode()
        if found[1] and found[1] != subject:
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({found[1]}) that is different from the "
                f"token's principal name ({subject})"
            )
        self.principal, self.expires_ms = Principal(USER, subject), expires_ms
        return b""


def _refusal() -> str:
    return json.dumps({"status": "invalid_token"}, separators=(",", ":"))
