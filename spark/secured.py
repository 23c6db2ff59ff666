"""How readers and writers come in at a secured listener: `kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`.

The options hold passwords. They travel to the tasks with the other options, and are in no `repr` and no message.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.client.security import PLAIN, ClientSecurity, client_security

PREFIX = "kafka."
_NAMES = ("security.protocol", "sasl.mechanism", "sasl.jaas.config")


def is_about_security(name: str) -> bool:
    """Whether an option, in lower case, is one of those that `SecurityOptions` takes."""
    return name.startswith(f"{PREFIX}ssl.") or name.removeprefix(PREFIX) in _NAMES


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Client configs as Kafka names them; can be pickled and compared, and tells nothing of itself."""

    configs: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SecurityOptions:
        """From options with names in lower case."""
        found = {name.removeprefix(PREFIX): text for name, text in options.items() if is_about_security(name)}
        return cls(tuple(sorted(found.items())))

    def for_client(self) -> ClientSecurity:
        """What a connection needs. Raises: UserError: something that is not known, or keys that cannot be used."""
        return _made(self.configs) if self.configs else PLAIN


@functools.lru_cache(maxsize=16)
def _made(configs: tuple[tuple[str, str], ...]) -> ClientSecurity:
    """Once for each worker process: certificates are not read anew for each split."""
    return client_security(dict(configs))
