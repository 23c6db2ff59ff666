"""A coordinator of groups of all protocols on a bench, and members that speak Kafka Streams' protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.coordinator.calls import Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.shard import CoordinatorShard
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.machine import EveryGroupMachine
from appliance.streams_groups.records import decode_record
from appliance.streams_groups.stored import StoredEveryGroup, StreamsGroup
from appliance.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.support.consumer_group_bench import ConsumerGroupBench

Held = Mapping[str, Iterable[int]]


def subtopology(
    name: str = "0",
    sources: Iterable[str] = ("t",),
    *,
    changelogs: Iterable[str] = (),
    repartitions: Mapping[str, int] | None = None,
    sinks: Iterable[str] = (),
    together: Iterable[tuple[list[int], list[int]]] = (),
) -> Subtopology:
    """`together`: places of source and repartition topics that have to have as many partitions as each other."""
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        state_changelog_topics=[TopicInfo(name=each) for each in changelogs],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[
            TopicInfo(name=each, partitions=count) for each, count in (repartitions or {}).items()
        ],
        copartition_groups=[
            CopartitionGroup(source_topics=of_sources, repartition_source_topics=of_repartitions)
            for of_sources, of_repartitions in together
        ],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies) or [subtopology()])


def held(rows: Iterable[TaskIds] | None) -> dict[str, list[int]] | None:
    """Tasks of an answer by subtopology."""
    return None if rows is None else {row.subtopology_id: list(row.partitions) for row in rows}


class StreamsGroupBench(ConsumerGroupBench):
    """One partition's coordinator; the first target waits for nobody unless the config says so."""

    machine: EveryGroupMachine

    def __init__(self, streams_config: StreamsGroupConfig | None = None, seed: int = 0, **topics: int) -> None:
        self.streams_config = streams_config or StreamsGroupConfig(initial_rebalance_delay_ms=0)
        super().__init__(seed=seed, **(topics or {"t": 4}))

    def _start(self) -> None:
        stored = StoredEveryGroup()
        load(self.log, replaying(decode_record, stored))
        self.machine = EveryGroupMachine(
            self.config, self.consumer_config, self.streams_config, self.randomness, stored, lambda: self.world
        )
        self.shard = CoordinatorShard(self.machine, self.limits)
        self.shard.decide(lambda: self.machine.loaded(self.now), self.now)
        self.pump()

    @property
    def group(self) -> StreamsGroup:
        return self.machine.stored.streams_groups["g"]  # type: ignore[attr-defined]

    def streams_beat(
        self, member_id: str, epoch: int, active: Held | None = None, *, group_id: str = "g", **said: Any
    ) -> Call:
        """`active`: what it says that it runs; `standby` and `warmup` are nothing then, unless given, too."""
        roles: dict[str, Any] = {}
        if active is not None:
            for role, tasks in (("active", active), ("standby", said.pop("standby", {})), ("warmup", {})):
                roles[f"{role}_tasks"] = [TaskIds(subtopology_id=name, partitions=list(tasks[name])) for name in tasks]
        request = StreamsGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **roles, **said
        )
        return self.submit(request, 0)

    def heard(self, *args: Any, **options: Any) -> StreamsGroupHeartbeatResponse:
        """The answer to a heartbeat."""
        return self.answer(self.streams_beat(*args, **options))

    def came(self, member_id: str, *subtopologies: Subtopology, **said: Any) -> StreamsGroupHeartbeatResponse:
        """The answer to a first heartbeat; each member is a process of its own unless it says which."""
        said.setdefault("rebalance_timeout_ms", 60_000)
        said.setdefault("process_id", f"process of {member_id}")
        said.setdefault("client_tags", [])
        said.setdefault("topology", topology(*subtopologies))
        return self.heard(member_id, 0, {}, **said)
