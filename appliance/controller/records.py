"""The records of the metadata log: every change of the cluster's state, as it is committed.

A record is a msgpack array: its tag (an integer, below), then its fields in the order in which they are declared. New
fields are added at the end, with a default: an old reader skips what it does not know, a new one takes the default.
`docs/formats.md` describes the bytes around them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeAlias

import msgspec

INDEX_BITS = 20
"""Bits of a position that count the records within one commit; a commit of at most 1 MiB holds fewer than 2^20."""

NO_LEADER = -1


def position_of(commit_number: int, index: int) -> int:
    """Where a record stands in the log; the order of positions is the log's. A broker epoch is such a position."""
    return commit_number << INDEX_BITS | index


def commit_number_of(position: int) -> int:
    """The number of the commit that holds the record at `position`."""
    return position >> INDEX_BITS


class LogState(IntEnum):
    """What a broker found in its data directory when it started (rule B1)."""

    CLEAN = 0
    """Shut down in order: everything is on disk."""
    SAME_BOOT = 1
    """The process died, the host did not: the page cache survived."""
    UNCLEAN = 2
    """The host went down: an unflushed tail may be lost."""
    EMPTY = 3
    """Nothing there, or another directory than before."""


class LeaderRecoveryState(IntEnum):
    """KIP-704: whether a leader must repair its log before it serves."""

    RECOVERED = 0
    RECOVERING = 1


class Listener(msgspec.Struct, frozen=True, array_like=True):
    """One address at which a broker can be reached."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class EarlierLeader(msgspec.Struct, frozen=True, array_like=True):
    """A broker that led a partition and may not know yet that it does so no more (rule P1)."""

    broker_id: int
    broker_epoch: int
    live: bool = False
    """It was not fenced: leadership was taken from it by a planned move. Else its lease is over."""
    commit: int = -1
    """Number of the commit that took leadership from it: whoever has applied that knows. Set in snapshots and images;
    -1 in a commit, where it is the record's own."""


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """Who holds and who leads one partition."""

    partition: int
    leader: int
    """Broker id, or `NO_LEADER`."""
    leader_epoch: int
    """One more at every loss of a leader and every election."""
    partition_epoch: int
    """One more at every change."""
    replicas: tuple[int, ...]
    """In order of preference."""
    isr: tuple[int, ...]
    """Never empty."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966)."""
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    data_lost: bool = False
    """The only replica came back without its data: offline until an operator elects it uncleanly or restores it."""
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment is bringing in (rule P11)."""
    removing: tuple[int, ...] = ()
    """Those of `replicas` that go when the reassignment is done."""
    earlier_leaders: tuple[EarlierLeader, ...] = ()
    """Who may still answer as the leader; the present one serves nothing before each of them is quiet."""


class ControllerClaimed(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A controller took over. The first record of its first commit."""

    controller_epoch: int
    controller_id: int
    host: str
    port: int


class ClusterCreated(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The first bootstrap."""

    cluster_id: str


class FeatureLevelSet(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A finalized feature level, for instance `metadata.version`."""

    name: str
    level: int


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A new incarnation of a broker; fenced until it has caught up with this record."""

    broker_id: int
    incarnation_id: uuid.UUID
    listeners: tuple[Listener, ...]
    rack: str | None = None
    node: str = ""
    directory_ids: tuple[uuid.UUID, ...] = ()
    log_state: LogState = LogState.CLEAN
    broker_epoch: int = -1
    """Set in snapshots only; in a commit the record's own position is the epoch."""


class BrokerFenced(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The broker leads nothing from here on."""

    broker_id: int
    broker_epoch: int
    dead: bool = False
    """Its process is known to be gone: this epoch is never unfenced again (rule B5)."""
    shutting_down: bool = False
    """It asked for it, because it stops."""


class BrokerUnfenced(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The broker may lead."""

    broker_id: int
    broker_epoch: int


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A topic without partitions yet; they follow in the same commit."""

    name: str
    topic_id: uuid.UUID


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A topic, its partitions and its configuration are gone."""

    topic_id: uuid.UUID


class PartitionChanged(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The whole new state of one partition, created or changed."""

    topic_id: uuid.UUID
    state: PartitionState


class TopicConfigSet(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """One configuration entry of a topic; no value removes it."""

    topic_id: uuid.UUID
    key: str
    value: str | None


class BrokerConfigSet(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """One dynamic configuration entry of a broker, or of all (`broker` empty); no value removes it."""

    broker: str
    key: str
    value: str | None


class ProducerIdsAllocated(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """All producer ids below `next_producer_id` are given out."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


class BrokerShuttingDown(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The broker is about to stop (rule B10): it leads only what nobody else can, and joins no ISR."""

    broker_id: int
    broker_epoch: int


class BrokerUnregistered(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The broker is gone for good: an operator said so."""

    broker_id: int
    broker_epoch: int


class TopicObjectsLeft(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """A deleted topic may still have objects in the tier. In snapshots only; in a commit `TopicDeleted` says it."""

    topic_id: uuid.UUID
    name: str


class TopicObjectsGone(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Nothing of a deleted topic is in the tier, and nothing comes any more."""

    topic_id: uuid.UUID


class ResourceConfigSet(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """One configuration entry of a group or of client metrics; no value removes it."""

    resource_type: int
    """As DescribeConfigs numbers them."""
    name: str
    key: str
    value: str | None


class ClientQuotaSet(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """One quota of users, clients or addresses; no value removes it."""

    entity: tuple[tuple[str, str | None], ...]
    """(type, name or null for the default) in the order of the types' names."""
    key: str
    value: float | None


class ScramCredentialSet(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """What the cluster keeps of a user's password for one SCRAM mechanism; no salt removes it."""

    name: str
    mechanism: int
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    salt: bytes | None
    iterations: int = 0
    stored_key: bytes = b""
    server_key: bytes = b""


class AclSet(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """One line of an access control list; not present, it goes. Numbers are those of the wire."""

    resource_type: int
    name: str
    pattern_type: int
    """3 literal, 4 prefixed."""
    principal: str
    host: str
    operation: int
    permission: int
    """2 deny, 3 allow."""
    present: bool = True


Record: TypeAlias = (
    ControllerClaimed
    | ClusterCreated
    | FeatureLevelSet
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | TopicCreated
    | TopicDeleted
    | PartitionChanged
    | TopicConfigSet
    | BrokerConfigSet
    | ProducerIdsAllocated
    | BrokerShuttingDown
    | BrokerUnregistered
    | TopicObjectsLeft
    | TopicObjectsGone
    | ResourceConfigSet
    | ClientQuotaSet
    | ScramCredentialSet
    | AclSet
)


class RecordsUnreadable(ValueError):
    """Bytes that are not a list of metadata records."""


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """One msgpack array of records."""
    return _encoder.encode(records)


def encoded_size(records: Iterable[Record]) -> int:
    """Bytes that the records take in a commit, without the array's own few."""
    return sum(len(_encoder.encode(record)) for record in records)


def decode_records(data: bytes | memoryview) -> list[Record]:
    """Read what `encode_records` wrote.

    Raises:
        RecordsUnreadable: it is something else, or holds a record of a kind that this version does not know.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordsUnreadable(f"metadata records: {error}") from error
