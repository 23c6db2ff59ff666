"""Access control lists as they are stored, and filters that pick some of them. Numbers are those of the wire."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""As the name of a literal resource: every resource of that type. As a host: every host."""
ANYBODY: Final = "User:*"
"""As a principal: every principal."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    ANY = 1
    """In filters: whatever the pattern's type."""
    MATCH = 2
    """In filters: every pattern that holds for the name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One line of an access control list."""

    resource_type: int
    name: str
    pattern_type: int
    """LITERAL or PREFIXED."""
    principal: str
    """`type:name`."""
    host: str
    """An address, or WILDCARD."""
    operation: int
    permission: int
    """DENY or ALLOW."""


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Some of all bindings; None and ANY let everything through."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
            and self._matches_pattern(binding)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == binding.name
        if binding.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name in (self.name, WILDCARD)


def picked(bindings: Collection[AclBinding], wanted: AclFilter) -> list[AclBinding]:
    """Those that a filter lets through; by far the fastest where it names one of them exactly."""
    if wanted.name is not None and wanted.principal is not None and wanted.host is not None:
        exact = AclBinding(
            wanted.resource_type,
            wanted.name,
            wanted.pattern_type,
            wanted.principal,
            wanted.host,
            wanted.operation,
            wanted.permission,
        )
        if exact in bindings:
            return [exact]
    return [binding for binding in bindings if wanted.matches(binding)]
