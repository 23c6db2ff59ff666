"""What the deciding functions of this package share: the groups of one partition, the metadata, and deadlines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Effect
from appliance.groups.context import Context
from appliance.groups.epoch_context import EpochContext, OfOneEpoch, OfOneGroup, OfOneMember
from appliance.streams_groups.assignor import assign
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.stored import Assignment, EveryRecord, StoredEveryGroup, StreamsGroup
from appliance.streams_groups.topology import Configured, configure
from appliance.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse, Topology

EveryEffect = Effect[EveryRecord]

AT_ONCE_MAX = 10_000
"""Tasks times members of a target that is made on the loop: a few milliseconds."""


class StreamsSessionOver(OfOneMember):
    """A member has not been heard for its session timeout."""

    __slots__ = ()


class StreamsRevocationOver(OfOneEpoch):
    """A member had its time to give tasks up."""

    __slots__ = ()


class StreamsAssignmentDue(OfOneGroup):
    """Enough time has passed since the last target, or since the first member came."""

    __slots__ = ()


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
class StreamsContext(EpochContext):
    """The groups of Kafka Streams of one partition of `__consumer_offsets`."""

    KIND: ClassVar[str] = "streams"
    SESSION_OVER: ClassVar[type[StreamsSessionOver]] = StreamsSessionOver
    REVOCATION_OVER: ClassVar[type[StreamsRevocationOver]] = StreamsRevocationOver
    ASSIGNMENT_DUE: ClassVar[type[StreamsAssignmentDue]] = StreamsAssignmentDue

    config: StreamsGroupConfig
    classic: Context
    stored: StoredEveryGroup
    memories: dict[str, Memory] = field(default_factory=dict)
    jobs: list[AssignmentJob] = field(default_factory=list)
    """Work for a helper thread, taken by whoever owns the machine."""

    def find(self, group_id: str) -> StreamsGroup | None:
        return self.stored.streams_groups.get(group_id)

    def memory(self, group_id: str) -> Memory:
        return self.memories.setdefault(group_id, Memory())

    def configured(self, group_id: str, topology: Topology) -> Configured:
        """The topology beside the topics of today. Raises: InvalidTopology."""
        memory, topics = self.memory(group_id), self.world().topics
        if memory.configured is None or memory.topics is not topics or memory.topology != topology:
            configured = configure(topology, topics)
            memory.topics, memory.topology, memory.configured = topics, topology, configured
            memory.metadata_hash = self.metadata_hash(_names(topology))
        return memory.configured

    def assign_never(self, group_id: str) -> None:
        """There is nobody to be assigned to."""
        self.deadlines.cancel((self.KIND, "assignment", group_id))


def _names(topology: Topology) -> Iterator[str]:
    """Of all topics of the group."""
    for each in topology.subtopologies:
        yield from each.source_topics
        yield from (topic.name for topic in [*each.repartition_source_topics, *each.state_changelog_topics])


def told(call: Call, error: ErrorCode, message: str) -> Answer:
    """An answer to a heartbeat that says what is wrong."""
    return Answer(call, StreamsGroupHeartbeatResponse(error_code=error, error_message=message))
