"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from appliance.base.errors import invariant
from appliance.coordinator.calls import Call
from appliance.groups.stored import StoredMember
from appliance.wire.messages.join_group import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""What a member supports, best first: (name, metadata). The metadata is the clients' own and is never looked into."""


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The protocols of a request; of two with one name the first counts."""
    by_name: dict[str, bytes] = {}
    for protocol in requested:
        by_name.setdefault(protocol.name, protocol.metadata)
    return tuple(by_name.items())


@dataclass(slots=True)
class Member:
    """Who it is, what it supports, what it was given, and which of its requests waits for an answer."""

    member_id: str
    instance_id: str | None
    """`group.instance.id` of a static member (KIP-345)."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has not seen an answer to JoinGroup yet, so it cannot send heartbeats."""
    awaiting_join: Call | None = None
    awaiting_sync: Call | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def may_be_silent(self) -> bool:
        """Whether it waits for us, and so need not send heartbeats."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Its metadata for one of its protocols."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        invariant(False, f"member {self.member_id} does not support the protocol {protocol_name!r}")
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """Which of the candidates it likes best."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        invariant(False, f"member {self.member_id} supports none of the group's protocols")
        return ""

    def stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        """As it goes into the log with a generation."""
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata_for(protocol_name),
            assignment,
        )


def member_from(stored: StoredMember, protocol_type: str, protocol_name: str | None) -> Member:
    """As it comes back from the log: of its protocols only the selected one is known."""
    return Member(
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout_ms,
        stored.session_timeout_ms,
        protocol_type,
        ((protocol_name or "", stored.subscription),),
        stored.assignment,
    )
