"""A coordinator of groups of both protocols on a bench: explicit time, topics and work of helper threads."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.records import decode_record
from appliance.consumer_groups.stored import StoredAllGroups
from appliance.coordinator.calls import Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.shard import CoordinatorShard
from appliance.groups.config import GroupConfig
from appliance.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.support.group_bench import GroupBench

Owned = Mapping[uuid.UUID, Iterable[int]]


@dataclass(frozen=True)
class BenchTopic:
    name: str
    topic_id: uuid.UUID
    partitions: range


@dataclass
class BenchWorld:
    """The metadata; each change makes other mappings, as a new image does."""

    position: int = 0
    topics: Mapping[str, BenchTopic] = field(default_factory=dict)
    topics_by_id: Mapping[uuid.UUID, BenchTopic] = field(default_factory=dict)
    resource_configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)

    def put(self, name: str, partitions: int) -> uuid.UUID:
        """A new topic, or one with more partitions."""
        known = self.topics.get(name)
        topic_id = known.topic_id if known is not None else uuid.uuid5(uuid.NAMESPACE_DNS, f"{name} {self.position}")
        self._change({**self.topics, name: BenchTopic(name, topic_id, range(partitions))})
        return topic_id

    def remove(self, name: str) -> None:
        self._change({other: topic for other, topic in self.topics.items() if other != name})

    def _change(self, topics: Mapping[str, BenchTopic]) -> None:
        self.position += 1
        self.topics = topics
        self.topics_by_id = {topic.topic_id: topic for topic in topics.values()}


class ConsumerGroupBench(GroupBench):
    """One partition's coordinator. Work of helper threads is done at once unless `hold_jobs` is set."""

    machine: AllGroupsMachine  # type: ignore[assignment]

    def __init__(
        self,
        consumer_config: ConsumerGroupConfig | None = None,
        config: GroupConfig | None = None,
        seed: int = 0,
        **topics: int,
    ) -> None:
        self.consumer_config = consumer_config or ConsumerGroupConfig()
        self.world = BenchWorld()
        self.hold_jobs = False
        self.ids = {name: self.world.put(name, partitions) for name, partitions in topics.items()}
        super().__init__(config or GroupConfig(initial_rebalance_delay_ms=0), seed)

    def _start(self) -> None:
        stored = StoredAllGroups()
        load(self.log, replaying(decode_record, stored))
        self.machine = AllGroupsMachine(self.config, self.consumer_config, self.randomness, stored, lambda: self.world)
        self.shard = CoordinatorShard(self.machine, self.limits)
        self.shard.decide(lambda: self.machine.loaded(self.now), self.now)
        self.pump()

    def pump(self) -> None:
        super().pump()
        if self.hold_jobs:
            return
        jobs = self.machine.take_jobs()
        for job in jobs:
            result = job.run()
            self.shard.decide(lambda job=job, result=result: self.machine.job_done(job, result, self.now), self.now)
        if jobs:
            self.shard.tick(self.now)
            self.pump()

    def submit(self, request: Any, version: int, client_id: str = "client", **options: Any) -> Call:
        options.setdefault("after_writes_of", self.machine.must_wait(Call(request, version)))
        return super().submit(request, version, client_id, **options)

    @property
    def group(self) -> Any:
        return self.machine.stored.consumer_groups["g"]

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Owned | None = None,
        *,
        group_id: str = "g",
        version: int = 1,
        **said: Any,
    ) -> Call:
        rows = None
        if owned is not None:
            rows = [TopicPartitions(topic_id=topic, partitions=list(numbers)) for topic, numbers in owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=rows, **said
        )
        return self.submit(request, version)

    def said(self, *args: Any, **options: Any) -> ConsumerGroupHeartbeatResponse:
        """The answer to a heartbeat."""
        return self.answer(self.beat(*args, **options))

    def joins(self, member_id: str, *topics: str, **said: Any) -> Call:
        said.setdefault("rebalance_timeout_ms", 60_000)
        said.setdefault("subscribed_topic_names", list(topics) or ["t"])
        return self.beat(member_id, 0, {}, **said)

    def joined(self, *args: Any, **options: Any) -> ConsumerGroupHeartbeatResponse:
        """The answer to a first heartbeat."""
        return self.answer(self.joins(*args, **options))

    def assigned(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """An answer's assignment by the names of topics."""
        if response.assignment is None:
            return None
        names = {topic.topic_id: topic.name for topic in self.world.topics.values()}
        return {names[row.topic_id]: list(row.partitions) for row in response.assignment.topic_partitions}
