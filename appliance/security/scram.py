"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides. Pure.

Of a password the cluster keeps what the server needs to check a proof, never what a client would need to make one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import IntEnum

MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 16_384


class ScramMechanism(IntEnum):
    """As the API of credentials numbers them."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class ScramFailed(Exception):
    """The exchange is over. The message is for our log; the client learns only that it failed."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def credential_of(mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What to keep of a password that was salted already, as clients send it."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
    )


def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow on purpose: milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


_CLIENT_FIRST = re.compile(r"n,(?:a=([^,]*))?,(?:m=[^,]*,)?(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_CLIENT_FINAL = re.compile(r"(c=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL)
_SERVER_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=(\d{1,6})(?:,.*)?", re.DOTALL)


class ScramServer:
    """The server's side of one exchange: `first`, look the credential up, `challenge`, `final`."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self.mechanism = mechanism
        self.username = ""
        self._own_nonce = nonce
        self._nonce = ""
        self._first_bare = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None

    def first(self, message: bytes) -> str:
        """Take the client's first message; returns the user's name. Raises: ScramFailed."""
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise ScramFailed("the first message cannot be read")
        username = _unescaped(found[3])
        if found[1] and _unescaped(found[1]) != username:
            raise ScramFailed("the client asks to act for somebody else")
        self.username, self._first_bare, self._nonce = username, found[2], found[4] + self._own_nonce
        return username

    def challenge(self, credential: ScramCredential | None) -> bytes:
        """The server's first message. Raises: ScramFailed, there is no such user."""
        if credential is None:
            raise ScramFailed(f"there is no user {self.username} with {self.mechanism.sasl_name}")
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof; returns the server's own. Raises: ScramFailed."""
        credential, found = self._credential, _CLIENT_FINAL.fullmatch(_text(message))
        if credential is None or found is None:
            raise ScramFailed("the final message cannot be read")
        if found[3] != self._nonce:
            raise ScramFailed("the nonce is another one")
        name = self.mechanism.hash_name
        signed = f"{self._first_bare},{self._server_first},{found[1]}".encode()
        signature = hmac.digest(credential.stored_key, signed, name)
        client_key = _xor(_decoded(found[4]), signature)
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise ScramFailed(f"the password of {self.username} is another one")
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, name))


class ScramClient:
    """The client's side of one exchange: `first`, `final`, `verify`."""

    def __init__(self, mechanism: ScramMechanism, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof. Raises: ScramFailed."""
        text = _text(server_first)
        found = _SERVER_FIRST.fullmatch(text)
        if found is None or not found[1].startswith(self._nonce) or int(found[3]) < MIN_ITERATIONS:
            raise ScramFailed("the server's first message cannot be taken")
        name = self._mechanism.hash_name
        password = salted(self._mechanism, self._password, _decoded(found[2]), int(found[3]))
        without_proof = f"c=biws,r={found[1]}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = hmac.digest(password, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        self._server_signature = hmac.digest(hmac.digest(password, b"Server Key", name), signed, name)
        return f"{without_proof},p={base64.b64encode(_xor(client_key, signature)).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raises: ScramFailed, the server does not know the password."""
        expected = b"v=" + base64.b64encode(self._server_signature)
        if not hmac.compare_digest(server_final, expected):
            raise ScramFailed("the server does not know the password")


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise ScramFailed("a message is not UTF-8") from None


def _unescaped(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise ScramFailed("the user's name cannot be read")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFailed("a part is not base64") from None


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise ScramFailed("a proof has the wrong length")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
