"""Which limit holds for a user and a client id, of all that are set.

The first of these that has one: user and client id, user with any client, user, any user with this client, any user
with any client, any user, this client, any client. A limit for "any" gives each its own; one for a user without client
counts all clients of that user together (KIP-13, KIP-55, KIP-546).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
USER_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
IP_KEYS = (CONNECTION_CREATION_RATE,)
WHOLE_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE)
"""Their values are whole numbers."""

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(type, name or None for the default) in the order of the types' names."""


class Limit(NamedTuple):
    """A limit, and who shares it."""

    value: float
    shared_by: tuple[str, str, str]
    """Kind of sharing, user, client id: what is used is counted together for whoever has the same."""


def entity(user: str | None, client_id: str | None, *, has_user: bool, has_client: bool) -> Entity:
    """The form in which limits are kept."""
    parts: list[tuple[str, str | None]] = []
    if has_client:
        parts.append((CLIENT_ID, client_id))
    if has_user:
        parts.append((USER, user))
    return tuple(parts)


def find_limit(quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str) -> Limit | None:
    """The limit of one kind for a user's client, if there is one."""
    for candidate, shared_by in _candidates(user, client_id):
        values = quotas.get(candidate)
        if values is not None and key in values:
            return Limit(values[key], shared_by)
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, tuple[str, str, str]]]:
    both, of_user, of_client = ("both", user, client_id), ("user", user, ""), ("client", "", client_id)
    for name in (user, None):
        yield ((CLIENT_ID, client_id), (USER, name)), both
        yield ((CLIENT_ID, None), (USER, name)), both
        yield ((USER, name),), of_user
    yield ((CLIENT_ID, client_id),), of_client
    yield ((CLIENT_ID, None),), of_client
