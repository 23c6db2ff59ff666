"""The decisions of Kafka's standard authorizer, and a cache of them.

- Super users may do everything. Otherwise any binding that denies wins over all that allow.
- What is allowed to READ, WRITE, DELETE or ALTER may be described, and whose configs may be altered may be read.
- Where no binding is about a resource, `allow.everyone.if.no.acl.found` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from appliance.authorizer.bindings import CLUSTER_NAME, AclBinding, Operation, ResourceType
from appliance.authorizer.index import AclIndex

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The one class that `authorizer.class.name` takes."""
DECISIONS_KEPT_MAX = 10_000
_ANY_NAME = "hardcode"
"""Stands for a resource nobody names: who may write there may, as a super user, write everywhere."""


def operations_bits(*operations: Operation) -> int:
    """As answers name operations (KIP-430)."""
    return sum(1 << operation for operation in operations)


OPERATIONS_OF: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""What clients are told that they may do."""


class Authorizer:
    """Decides by the bindings of the newest image.

    Args:
        super_users: as `type:name`.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_without_acl: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._bindings: Mapping[AclBinding, None] | None = None
        """None: nothing is known yet, and only super users may do anything."""
        self._index = AclIndex()
        self._decisions: dict[tuple[str, str, int, int, str | None], bool] = {}
        self.generation = 0
        """Rises with each change: whatever was learned from a decision is to be forgotten then."""

    def update(self, bindings: Mapping[AclBinding, None]) -> bool:
        """Take over all bindings as they are now; whether that changed any."""
        if bindings is self._bindings:
            return False
        is_first, before = self._bindings is None, (self._bindings or {}).keys()
        added, removed = bindings.keys() - before, before - bindings.keys()
        self._bindings = bindings
        if not added and not removed and not is_first:
            return False
        for binding in removed:
            self._index.remove(binding)
        for binding in added:
            self._index.add(binding)
        self._decisions.clear()
        self.generation += 1
        return True

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Whether a principal at a host may do it."""
        if principal in self.super_users:
            return True
        if self._bindings is None:
            return False
        key = (principal, host, operation, resource_type, name)
        known = self._decisions.get(key)
        if known is not None:
            return known
        decided = self._index.decide(principal, host, operation, resource_type, name)
        if decided is None:
            decided = self._allow_without_acl
        if len(self._decisions) >= DECISIONS_KEPT_MAX:
            self._decisions.clear()
        self._decisions[key] = decided
        return decided

    def allows_some(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether it may be done to some resource of the type: KIP-679's question about idempotent producers."""
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        key = (principal, host, operation, resource_type, None)
        known = self._decisions.get(key)
        if known is None and self._bindings is not None:
            known = self._decisions[key] = self._index.allows_some(principal, host, operation, resource_type)
        return known or False

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """All that may be done, as bits."""
        return operations_bits(
            *(one for one in OPERATIONS_OF[resource_type] if self.allows(principal, host, one, resource_type, name))
        )


def parse_super_users(text: str) -> frozenset[str]:
    """Read `User:one;User:another`.

    Raises:
        ValueError: a part that is no principal.
    """
    users = [part.strip() for part in text.split(";") if part.strip()]
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"expected principals in the form type:name with ; between, but got {user}")
    return frozenset(users)
