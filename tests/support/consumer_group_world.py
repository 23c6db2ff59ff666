"""Members of the new protocol (KIP-848) in a `HeartbeatWorld`; topics get partitions, and new ones come."""

from __future__ import annotations

from typing import Any

from appliance.base.randomness import SeededRandomness
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.records import decode_record
from appliance.consumer_groups.stored import StoredAllGroups
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.shard import CoordinatorShard
from appliance.groups.config import GroupConfig
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.support.coordinator_world import Violation
from tests.support.heartbeat_world import CONFIG, GROUP, REBALANCE_MS, HeartbeatWorld, Member

MEMBERS = 6
Partition = tuple[Any, int]


class Consumer(Member):
    """It holds partitions."""

    def __init__(
        self, world: ConsumerGroupWorld, name: str, subscription: dict[str, Any], instance_id: str | None
    ) -> None:
        super().__init__(world, name)
        self.subscription, self.instance_id = subscription, instance_id

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """What has changed, and everything now and then."""
        says_all = self.epoch == 0 or self.world.random.random() < 0.1
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            topic_partitions=self._rows() if says_all or self.said != self.held else None,
            **(self.subscription if says_all else {}),
        )

    def farewell(self) -> ConsumerGroupHeartbeatRequest:
        epoch = -2 if self.instance_id is not None and self.world.random.random() < 0.7 else -1
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    def given(self, response: Any) -> set[Partition] | None:
        if response.assignment is None:
            return None
        return {(row.topic_id, number) for row in response.assignment.topic_partitions for number in row.partitions}

    def _rows(self) -> list[TopicPartitions]:
        topics: dict[Any, list[int]] = {}
        for topic, number in sorted(self.held):
            topics.setdefault(topic, []).append(number)
        return [TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in topics.items()]


class ConsumerGroupWorld(HeartbeatWorld):
    """No partition has two owners, and in the end each has one."""

    def __init__(
        self,
        seed: int,
        machine_class: type[AllGroupsMachine] = AllGroupsMachine,
        shard_class: type[CoordinatorShard[Any]] = CoordinatorShard,
    ) -> None:
        self.shard_class = shard_class
        super().__init__(seed, machine_class)

    def prepare(self) -> list[Consumer]:
        self.slow_writes = self.random.choice([0.0, 0.5])
        if self.slow_writes:
            self.failed_writes = 0.15
        self.metadata.put("t", self.random.randrange(1, 12))
        self.metadata.put("u", self.random.randrange(1, 6))
        subscriptions: list[dict[str, Any]] = [
            {"subscribed_topic_names": ["t"]},
            {"subscribed_topic_names": ["t", "u"]},
            {"subscribed_topic_regex": "[tu].*"},
            {"subscribed_topic_names": ["t"], "server_assignor": "range"},
        ]
        is_mixed = self.random.random() < 0.5
        return [
            Consumer(
                self,
                f"m{number}",
                self.random.choice(subscriptions) if is_mixed else subscriptions[0],
                f"i{number}" if self.random.random() < 0.3 else None,
            )
            for number in range(MEMBERS)
        ]

    def load_machine(self) -> AllGroupsMachine:
        stored = StoredAllGroups()
        load(self.log, replaying(decode_record, stored))
        randomness = SeededRandomness(self.seed)
        return self.machine_class(GroupConfig(), CONFIG, randomness, stored, lambda: self.metadata)

    def find_group(self) -> Any:
        return self.machine.stored.consumer_groups.get(GROUP)

    def widen(self) -> None:
        topic = self.random.choice(sorted(self.metadata.topics))
        self.metadata.put(topic, len(self.metadata.topics[topic].partitions) + 1)

    def reconfigure(self) -> None:
        self.metadata.put(f"t{self.random.randrange(3)}", 1 + self.random.randrange(3))

    def heal(self) -> None:
        self.slow_writes = 0.0
        super().heal()

    def fate_of_a_write(self) -> tuple[bool, int]:
        succeeds, delay_ms = super().fate_of_a_write()
        if self.random.random() < self.slow_writes:
            # Longer than others take to ask, and at times longer than who has asked waits for the answer.
            delay_ms += self.random.choice((1_000, 4_000))
        return succeeds, delay_ms

    def check_group(self, where: str, group: Any) -> None:
        if GROUP in self.machine._context.ahead:
            self.notes.append("foreseen")
        owners: dict[Partition, str] = {}
        for member_id, current in group.current.items():
            if member_id not in group.members:
                raise Violation(f"{where}: {member_id} owns something and is no member")
            for owned in (current.assigned, current.pending_revocation):
                for topic, numbers in owned.items():
                    for number in numbers:
                        if owners.setdefault((topic, number), member_id) != member_id:
                            raise Violation(f"{where}: {number} belongs to {owners[topic, number]} and {member_id}")
        for member in self.members:
            if member.member_id in group.members and member.epoch > 0:
                for place in member.held:
                    if owners.get(place) != member.member_id:
                        raise Violation(f"{where}: {member.member_id} reads {place}, which is {owners.get(place)}'s")

    def check_shares(self, where: str, group: Any) -> None:
        read = {name for member in group.members.values() for name in group.topics_of(member)}
        wanted = {
            (topic.topic_id, number)
            for topic in self.metadata.topics.values()
            if topic.name in read
            for number in topic.partitions
        }
        owned = [place for member in self.members for place in member.held]
        if len(owned) != len(set(owned)) or set(owned) != wanted:
            raise Violation(f"{where}: {len(owned)} partitions are read, of {len(wanted)}")
