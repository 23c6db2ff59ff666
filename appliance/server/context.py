"""What handlers see of their broker: narrow views of parts that live above and beside this layer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig, TopicConfig
from appliance.base.errors import ErrorCode
from appliance.base.ids import TopicPartition
from appliance.controller.image import MetadataImage
from appliance.log.errors import LogWriteFailed
from appliance.log.log_manager import LogManager
from appliance.log.partition_log import PartitionLog
from appliance.partition.leader import PartitionLeader
from appliance.partition.purgatory import AckPurgatory, Waiter
from appliance.partition.replica_sessions import Followed
from appliance.records.batch import BatchHeader
from appliance.server.conversions import Conversions
from appliance.server.quotas import ClientQuotas
from appliance.tiering.fetcher import RemoteOffset, RemoteRead
from appliance.tiering.manager import PartitionTieringStatus


class Partition(Protocol):
    """A partition that this broker holds."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    config: TopicConfig
    log: PartitionLog
    leader: PartitionLeader | None
    leader_epoch: int
    high_watermark: int
    """Mirrors the leader's, for the road of a record."""
    log_end_offset: int
    """One past the last record on disk."""
    acks: AckPurgatory
    waiters: dict[Waiter, None]
    """Woken whenever more can be read, and when high watermark, log start or leadership change."""
    tiered_end: int
    """One past the last record that the object store is known to hold."""
    plain: bool
    """Leading, and batches need no more than the usual checks: the short way of a produce request may be taken."""

    batch_max_bytes: int
    """The largest batch that may take it."""

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def low_watermark(self) -> int:
        """The smallest log start among the live replicas. `waiters` are woken when it rises."""

    @property
    def acks_wait_for_flush(self) -> bool:
        """Nothing is acknowledged before it is durable."""

    @property
    def may_be_read(self) -> bool:
        """Whether this follower may give out what it knows to be committed (KIP-392)."""

    def refusal(self) -> ErrorCode:
        """NONE while this broker serves the partition as its leader, else the error for clients."""

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Stage a checked batch for this tick's write; returns its base offset (the old one of a duplicate).

        Raises:
            KafkaError: producer epoch or sequence do not fit, or the log takes no writes now.
        """

    def append_imported(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], on_committed: Callable[[ErrorCode, int], None]
    ) -> None:
        """Append checked batches of another log that keep their offsets; `on_committed` is called once, on the loop."""

    def begin_anew_at(self, offset: int) -> None:
        """Let a log that is still empty begin at another offset. Raises: OSError."""

    def flush_failed(self, error: LogWriteFailed) -> None:
        """A flush that somebody else made of its log has failed."""

    def raise_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for every reader (DeleteRecords, retention)."""


class ReplicatedPartition(Partition, Protocol):
    """What the leader's side of replication needs beside that."""

    offline: str
    """Why the partition is out of service; empty while it is not."""
    recovering: bool
    followed_by: list[Followed]
    """Places in followers' sessions that are told of each change."""

    def superseded(self, leader_epoch: int) -> None:
        """Somebody knows of a newer leader epoch: serve no more (P2)."""

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A follower whose history matches has everything before `offset`."""


class Topic(Protocol):
    """The partitions of a topic that this broker holds."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def partitions(self) -> Mapping[int, Any]: ...


class Partitions(Protocol):
    """All partitions of this broker."""

    @property
    def by_name(self) -> Mapping[str, Topic]: ...
    @property
    def by_id(self) -> Mapping[uuid.UUID, Topic]: ...
    @property
    def generation(self) -> int:
        """Rises whenever a topic or partition comes, goes or changes its leader."""

    def get(self, topic: str, partition: int) -> Any: ...

    def get_by_id(self, topic_id: uuid.UUID, partition: int) -> Any: ...

    def absence_of(self, topic: str | uuid.UUID, partition: int) -> ErrorCode:
        """The error for clients who ask for a partition that there is, but is not open here."""

    def out_of_service(self) -> Sequence[tuple[TopicPartition, str]]:
        """Partitions of this broker that are not served, and why."""

    def write_now(self, hosted: Any) -> None:
        """Write what is staged of one partition before the tick ends."""

    def checkpoint_log_starts(self) -> Callable[[], None]:
        """Work for a helper thread that makes the log starts as they are now durable. It raises OSError."""


class ControllerCalls(Protocol):
    """The way to the active controller."""

    def call(self, request: Any, done: Callable[[Any], None]) -> None:
        """Send a request; `done` gets the response or an exception, on the loop."""


class RemoteReader(Protocol):
    """Records that only the object store still holds (`appliance.tiering.fetcher`). Blocks: helper threads only."""

    def wait_ms(self) -> int:
        """How long no `fetch` should begin, by the limit of their rate. Does not block."""

    def fetch(self, topic_id: uuid.UUID, partition: int, offset: int, max_bytes: int, max_offset: int) -> RemoteRead:
        """Raises KafkaError."""

    def offset_for_timestamp(self, topic_id: uuid.UUID, partition: int, timestamp: int) -> RemoteOffset | None:
        """Raises KafkaError."""


class Tiering(Protocol):
    """What uploads this broker's partitions."""

    def status(self) -> Sequence[PartitionTieringStatus]: ...

    def raise_start(self, topic_id: uuid.UUID, partition: int, offset: int) -> bool:
        """Raise the log start by way of the manifest. False: the partition has none, raise it in the log itself."""


class Cleaner(Protocol):
    """Compaction on this broker."""

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """Logs that are left alone until the next start, and why."""


class Moves(Protocol):
    """Replicas that move between the data directories of this broker."""

    def alter(self, topic_partition: TopicPartition, path: str, done: Callable[[ErrorCode], None]) -> None:
        """Let a replica go to that directory; `done` is called once, when it is on its way or cannot be."""


class Broker(Protocol):
    """The broker as its handlers see it."""

    @property
    def broker_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def controller(self) -> ControllerCalls: ...
    @property
    def background(self) -> Background: ...
    @property
    def groups(self) -> Any: ...
    @property
    def quotas(self) -> ClientQuotas: ...
    @property
    def conversions(self) -> Conversions: ...
    @property
    def telemetry(self) -> Any:
        """`appliance.telemetry.clients.ClientTelemetry`."""

    @property
    def tiering(self) -> Tiering: ...
    @property
    def cleaner(self) -> Cleaner: ...
    @property
    def moves(self) -> Moves: ...
    @property
    def runtime_problem(self) -> str:
        """What is wrong with that which would start this process again; empty while nothing is."""

    @property
    def remote(self) -> RemoteReader: ...
    @property
    def remote_threads(self) -> Background:
        """Where the object store is read, so that it holds up nothing else."""

    @property
    def data_dir(self) -> Path: ...
    @property
    def logs(self) -> LogManager: ...

    def new_session_id(self) -> int:
        """A random number in [0, 2^31) for a fetch session."""

    def on_image(self, callback: Callable[[MetadataImage], None]) -> Callable[[], None]:
        """Call back with each new image, until the function that is returned is called."""
