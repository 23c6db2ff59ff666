"""Tokens as an authority of OAUTHBEARER gives them, and the keys by which they are checked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm


class TokenIssuer:
    """`keys` is the file that brokers read; `add_key` makes a newer one that later tokens are signed with."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys.json"
        self._private: dict[str, rsa.RSAPrivateKey] = {}
        self.add_key("first")

    def add_key(self, kid: str, *, publish: bool = True) -> None:
        self._private[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._kid = kid
        if publish:
            self.keys.write_text(self.key_set())

    def key_set(self) -> str:
        found = []
        for kid, private in self._private.items():
            public = json.loads(RSAAlgorithm.to_jwk(private.public_key()))
            found.append({**public, "kid": kid, "alg": "RS256", "use": "sig"})
        return json.dumps({"keys": found})

    def token(self, subject: str = "alice", *, now: float | None = None, lifetime_s: int = 3_600, **claims: Any) -> str:
        at = int(time.time() if now is None else now)
        said = {"sub": subject, "iat": at, "exp": at + lifetime_s, "scope": "kafka", **claims}
        present = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(present, self._private[self._kid], algorithm="RS256", headers={"kid": self._kid})
