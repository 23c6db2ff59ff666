"""What somebody on a connection may do, where the broker has an authorizer; each denial is noted in the security log.

Without an authorizer there is no `Access` anywhere, and nothing here runs. The short ways of produce and fetch ask when
they learn a shape; a change of the access control lists lets them forget it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Protocol

from appliance.authorizer.authorizer import Authorizer
from appliance.authorizer.bindings import CLUSTER_NAME, Operation, ResourceType
from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.image import MetadataImage
from appliance.security import security_log

if TYPE_CHECKING:
    from appliance.server.connection import Connection

DENIALS_AGAIN_MS = 10_000
"""The same denial is noted once in this time; a client that tries again and again does not fill the log."""
DENIALS_KEPT_MAX = 10_000
_CHANGES = frozenset({Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS})
_MAPPED_IPV4 = "::ffff:"


class HasTime(Protocol):
    """The monotonic clock."""

    def monotonic_ms(self) -> int: ...


class AccessControl:
    """The authorizer of a broker or a controller, and what was noted of its denials."""

    def __init__(self, authorizer: Authorizer, clock: HasTime) -> None:
        self.authorizer = authorizer
        self._clock = clock
        self._noted: dict[tuple[str, str, int, int, str], int] = {}

    def of(self, connection: Connection, api: str = "") -> Access:
        """What is behind a connection; `api`: what it asks for, for the log."""
        return Access(self, str(connection.principal), _host(connection.host), api)

    def denied(self, who: Access, operation: Operation, kind: ResourceType, name: str) -> None:
        now_ms = self._clock.monotonic_ms()
        key = (who.principal, who.host, operation, kind, name)
        if now_ms - self._noted.get(key, -DENIALS_AGAIN_MS) < DENIALS_AGAIN_MS:
            return
        if len(self._noted) >= DENIALS_KEPT_MAX:
            self._noted.clear()
        self._noted[key] = now_ms
        security_log.denied(who.principal, who.host, operation.name, kind.name, name, who.api)


class Access:
    """Who asks, and from where."""

    __slots__ = ("_control", "api", "host", "principal")

    def __init__(self, control: AccessControl, principal: str, host: str, api: str) -> None:
        self._control = control
        self.principal = principal
        self.host = host
        self.api = api

    @property
    def is_super_user(self) -> bool:
        return self.principal in self._control.authorizer.super_users

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it may be done; a no is noted, and a yes to a change."""
        allowed = self._control.authorizer.allows(self.principal, self.host, operation, kind, name)
        if not allowed:
            self._control.denied(self, operation, kind, name)
        elif operation in _CHANGES:
            security_log.allowed(self.principal, self.host, operation.name, kind.name, name, self.api)
        return allowed

    def could(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """The same without a note: where a no only leaves something out."""
        return self._control.authorizer.allows(self.principal, self.host, operation, kind, name)

    def could_some(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether it may be done to some resource of a type."""
        return self._control.authorizer.allows_some(self.principal, self.host, operation, kind)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """All that may be done, as bits (KIP-430)."""
        return self._control.authorizer.operations(self.principal, self.host, kind, name)


def check_topic(image: MetadataImage, access: Access, operation: Operation, topic: str | uuid.UUID) -> None:
    """By name or id, also of a topic that does not exist. Raises: KafkaError: TOPIC_AUTHORIZATION_FAILED."""
    if isinstance(topic, uuid.UUID):
        state = image.topics_by_id.get(topic)
        if state is None:
            # Nobody is told more than that.
            return
        topic = state.name
    if not access.may(operation, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def short_way_is_open(connection: Connection, operation: Operation, topic: str) -> bool:
    """Whether whoever is behind the connection may do this to a topic, as far as is known without a note."""
    control = connection.server.access_control
    if control is None:
        return True
    return control.authorizer.allows(
        str(connection.principal), _host(connection.host), operation, ResourceType.TOPIC, topic
    )


def _host(address: str) -> str:
    """As lists name it: an IPv4 address that comes by way of IPv6 is an IPv4 address."""
    return address[len(_MAPPED_IPV4) :] if address.startswith(_MAPPED_IPV4) and "." in address else address
