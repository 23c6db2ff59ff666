"""The client's side of SASL: tokens out, the server's in, one mechanism with one name and password. Pure."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from appliance.base.errors import UserError
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.security.jaas import JaasEntry
from appliance.security.scram import MECHANISMS, ScramClient

PLAIN = "PLAIN"
NONCE_BYTES = 24

Tokens = Generator[bytes, bytes, None]
"""Gives the client's next token, takes the server's answer. Raises ScramFailed where the server is not believed."""


@dataclass(frozen=True, slots=True)
class SaslClient:
    """Who this side is."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    randomness: Randomness = field(default_factory=SystemRandomness)

    def exchange(self) -> Tokens:
        """A new exchange."""
        if self.mechanism == PLAIN:
            yield b"\0" + self.username.encode() + b"\0" + self.password.encode()
            return
        nonce = self.randomness.random_bytes(NONCE_BYTES).hex()
        scram = ScramClient(MECHANISMS[self.mechanism], self.username, self.password, nonce)
        server_first = yield scram.first()
        server_final = yield scram.final(server_first)
        scram.verify(server_final)


def sasl_client(mechanism: str, entry: JaasEntry) -> SaslClient:
    """From the options `username` and `password` of a JAAS entry.

    Raises:
        UserError: they are not there, or the mechanism is none that is known here.
    """
    if mechanism != PLAIN and mechanism not in MECHANISMS:
        known = ", ".join([PLAIN, *MECHANISMS])
        raise UserError(f"SASL mechanism {mechanism} is not known for connections of our own, only {known}")
    if "username" not in entry.options or "password" not in entry.options:
        raise UserError(f"sasl.jaas.config of {mechanism} needs username and password for connections of our own")
    return SaslClient(mechanism, entry.options["username"], entry.options["password"])
