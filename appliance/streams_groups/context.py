"""What the deciding functions of this package share: the groups of one partition, the metadata, and deadlines."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from appliance.base.config_resources import GROUP
from appliance.base.errors import ErrorCode
from appliance.consumer_groups.context import World
from appliance.coordinator.calls import Answer, Call, Effect
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context, OtherEvent
from appliance.streams_groups.assignor import assign
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.stored import Assignment, EveryRecord, StoredEveryGroup, StreamsGroup
from appliance.streams_groups.topology import Configured, configure
from appliance.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse, Topology

EveryEffect = Effect[EveryRecord]

RETRY_MS = 200
"""When something else about the group was being written, a deadline that had to wait for that is looked at again."""
AT_ONCE_MAX = 10_000
"""Tasks times members of a target that is made on the loop: a few milliseconds."""
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class StreamsSessionOver(OtherEvent):
    """A member has not been heard for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class StreamsRevocationOver(OtherEvent):
    """A member had its time to give tasks up."""

    group_id: str
    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StreamsAssignmentDue(OtherEvent):
    """Enough time has passed since the last target, or since the first member came."""

    group_id: str


@dataclass(frozen=True, slots=True)
class AssignmentJob:
    """The target of a group that is too large to be assigned on the loop."""

    group_id: str
    epoch: int
    configured: Configured
    processes: Mapping[str, str]
    before: Mapping[str, Assignment]
    standby_replicas: int

    def run(self) -> dict[str, Assignment]:
        """Runs in a helper thread."""
        return assign(self.configured, self.processes, self.before, self.standby_replicas)

    @property
    def is_small(self) -> bool:
        """Whether it may be run on the loop."""
        return sum(self.configured.tasks.values()) * len(self.processes) <= AT_ONCE_MAX


@dataclass(slots=True)
class Memory:
    """What is known of a group beside the log."""

    topics: object = None
    """The metadata's topics when the group was last compared with them."""
    topology: Topology | None = None
    configured: Configured | None = None
    metadata_hash: int = 0
    endpoint_epoch: int = 0
    """Rises whenever it changes where a task can be asked for."""
    shutdown_by: str | None = None
    """The member that has asked for all to end."""
    waits_for_members: bool = False
    """The first target is still to wait for more members."""
    job: AssignmentJob | None = None
    """What a helper thread works at, or has worked at until the result is in the log."""
    made: Mapping[str, Assignment] | None = None
    """Its result."""


@dataclass(slots=True)
class StreamsContext:
    """The groups of one partition of `__consumer_offsets`."""

    classic: Context
    stored: StoredEveryGroup
    config: StreamsGroupConfig
    world: Callable[[], World]
    memories: dict[str, Memory] = field(default_factory=dict)
    jobs: list[AssignmentJob] = field(default_factory=list)
    """Work for a helper thread, taken by whoever owns the machine."""

    def find(self, group_id: str) -> StreamsGroup | None:
        return self.stored.streams_groups.get(group_id)

    def memory(self, group_id: str) -> Memory:
        return self.memories.setdefault(group_id, Memory())

    def entries(self, group_id: str) -> Mapping[str, str]:
        """What was configured for the one group."""
        return self.world().resource_configs.get((GROUP, group_id), {})

    def configured(self, group_id: str, topology: Topology) -> Configured:
        """The topology beside the topics of today. Raises: InvalidTopology."""
        memory, topics = self.memory(group_id), self.world().topics
        if memory.configured is None or memory.topics is not topics or memory.topology != topology:
            configured = configure(topology, topics)
            memory.topics, memory.topology, memory.configured = topics, topology, configured
            memory.metadata_hash = self._metadata_hash(topology)
        return memory.configured

    def _metadata_hash(self, topology: Topology) -> int:
        """A number that changes when topics of the group come, go, or get more partitions; 0 for none."""
        topics = self.world().topics
        names = {name for each in topology.subtopologies for name in each.source_topics}
        for each in topology.subtopologies:
            names.update(topic.name for topic in [*each.repartition_source_topics, *each.state_changelog_topics])
        digest = hashlib.blake2b(digest_size=8)
        is_any = False
        for name in sorted(names):
            topic = topics.get(name)
            if topic is not None:
                is_any = True
                digest.update(topic.topic_id.bytes + _INT32.pack(len(topic.partitions)) + name.encode() + b"\0")
        return int(_INT64.unpack(digest.digest())[0]) if is_any else 0

    # Deadlines

    def expect_member(self, group_id: str, member_id: str, now: Moment, timeout_ms: int | None = None) -> None:
        """Hear of this member within the time, or it is removed."""
        if timeout_ms is None:
            timeout_ms = self.config.session_timeout_of(self.entries(group_id))
        self._set("streams-member", group_id, member_id, now, timeout_ms, StreamsSessionOver(group_id, member_id))

    def expect_revocation(self, group_id: str, member_id: str, epoch: int, now: Moment, timeout_ms: int) -> None:
        event = StreamsRevocationOver(group_id, member_id, epoch)
        self._set("streams-revocation", group_id, member_id, now, timeout_ms, event)

    def expect_no_revocation(self, group_id: str, member_id: str) -> None:
        self.classic.deadlines.cancel(("streams-revocation", group_id, member_id))

    def expect_nothing(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        for kind in ("streams-member", "streams-revocation"):
            self.classic.deadlines.cancel((kind, group_id, member_id))

    def _set(self, kind: str, group_id: str, member_id: str, now: Moment, ms: int, event: OtherEvent) -> None:
        self.classic.deadlines.set((kind, group_id, member_id), now.monotonic_ms + ms, event)

    def assign_in(self, group_id: str, now: Moment, delay_ms: int) -> None:
        """Look after a new target then."""
        key = ("streams-assignment", group_id)
        self.classic.deadlines.set(key, now.monotonic_ms + delay_ms, StreamsAssignmentDue(group_id))

    def assign_never(self, group_id: str) -> None:
        """There is nobody to be assigned to."""
        self.classic.deadlines.cancel(("streams-assignment", group_id))


def told(call: Call, error: ErrorCode, message: str) -> Answer:
    """An answer to a heartbeat that says what is wrong."""
    return Answer(call, StreamsGroupHeartbeatResponse(error_code=error, error_message=message))
