"""The server's side of SASL exchanges: tokens in, tokens out, and at the end who the client is. Pure.

What a client is told of a failure is the message of `AuthenticationFailed`, as Apache Kafka words it; where that must
not tell more, the message is empty and the reason is for our log alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

from appliance.security.principals import USER, Principal
from appliance.security.scram import ScramCredential, ScramFailed, ScramMechanism, ScramServer


class AuthenticationFailed(Exception):
    """The exchange is over.

    Args:
        told: what the client is told; empty: only that its credentials are invalid.
        reason: for the log.
    """

    def __init__(self, told: str, reason: str = "") -> None:
        super().__init__(reason or told)
        self.told = told


class Exchange(Protocol):
    """One exchange of one mechanism."""

    principal: Principal | None
    """Set when the exchange has ended well."""
    expires_ms: int | None
    """Wall clock at which what the client has shown ends; None: never."""

    def evaluate(self, token: bytes) -> bytes:
        """Take a token of the client, give the server's next. Raises: AuthenticationFailed."""


ExchangeMaker = Callable[[], Exchange]


class PlainExchange:
    """PLAIN (RFC 4616): somebody to act for, a name and a password, with zeros between."""

    expires_ms: int | None = None

    def __init__(self, users: Mapping[str, str]) -> None:
        self.principal: Principal | None = None
        self._users = users

    def evaluate(self, token: bytes) -> bytes:
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("", "a token is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed("", f"a token has {len(parts)} parts instead of 3")
        authorization_id, username, password = parts
        if not username:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        expected = self._users.get(username)
        # A name that nobody has takes as long as a wrong password.
        if not hmac.compare_digest(password.encode(), (expected or "").encode()) or expected is None:
            raise AuthenticationFailed(
                "Authentication failed: Invalid username or password", f"user {username!r} or its password"
            )
        if authorization_id and authorization_id != username:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = Principal(USER, username)
        return b""


CredentialLookup = Callable[[str, ScramMechanism], ScramCredential | None]


class ScramExchange:
    """SCRAM with the users that the cluster keeps."""

    expires_ms: int | None = None

    def __init__(self, mechanism: ScramMechanism, nonce: str, lookup: CredentialLookup) -> None:
        self.principal: Principal | None = None
        self._machine = ScramServer(mechanism, nonce)
        self._lookup = lookup
        self._challenged = False

    def evaluate(self, token: bytes) -> bytes:
        machine = self._machine
        try:
            if not self._challenged:
                self._challenged = True
                username = machine.first(token)
                return machine.challenge(self._lookup(username, machine.mechanism))
            answer = machine.final(token)
        except ScramFailed as error:
            raise AuthenticationFailed("", str(error)) from error
        self.principal = Principal(USER, machine.username)
        return answer
