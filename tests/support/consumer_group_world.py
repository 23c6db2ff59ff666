"""Members of the new protocol, their network and their coordinator, on days on which much goes wrong.

A member has one request on its way at a time; it, or its answer, may be lost, late, or arrive twice. Coordinators move,
writes fail or take long, helper threads take their time, topics get partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.records import decode_record
from appliance.consumer_groups.stored import StoredAllGroups
from appliance.coordinator.calls import Answer, Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from appliance.groups.config import GroupConfig
from appliance.groups.refusals import refuse
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.support.consumer_group_bench import BenchWorld
from tests.support.coordinator_world import CoordinatorWorld, Violation

GROUP = "g"
HEARTBEAT_MS = 1_000
SESSION_MS = 10_000
REBALANCE_MS = 8_000
GONE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)

CONFIG = ConsumerGroupConfig(
    session_timeout_ms=SESSION_MS,
    min_session_timeout_ms=1,
    heartbeat_interval_ms=HEARTBEAT_MS,
    min_heartbeat_interval_ms=1,
    regex_refresh_interval_ms=10_000,
)

Partition = tuple[Any, int]


class Member:
    """A client, as far as it matters here."""

    def __init__(self, world: World, name: str, subscription: dict[str, Any], instance_id: str | None) -> None:
        self.world, self.name, self.subscription, self.instance_id = world, name, subscription, instance_id
        self.life = 0
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.said: set[Partition] | None = None
        self.is_alive = False
        self.paused_until_ms = 0
        self.round = 0

    def start(self) -> None:
        self.life += 1
        self.member_id = f"{self.name}.{self.life}"
        self.is_alive = True
        self._forget()
        self.beat()

    def crash(self) -> None:
        self.is_alive = False
        self._forget()

    def leave(self) -> None:
        if self.epoch <= 0:
            return
        epoch = -2 if self.instance_id is not None and self.world.random.random() < 0.7 else -1
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.crash()
        self.world.send(request, lambda _: None)

    def _forget(self) -> None:
        self.round += 1
        self.epoch, self.owned, self.said = 0, set(), None

    def beat(self) -> None:
        """Say what has changed, and everything now and then."""
        world = self.world
        if not self.is_alive:
            return
        if world.now_ms < self.paused_until_ms:
            world.after(self.paused_until_ms - world.now_ms, partial(self._beat_in, self.round))
            return
        self.round += 1
        says_all = self.epoch == 0 or world.random.random() < 0.1
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            topic_partitions=self._rows() if says_all or self.said != self.owned else None,
            **(self.subscription if says_all else {}),
        )
        said = set(self.owned)
        world.send(request, partial(self._answered, self.round, said))

    def _rows(self) -> list[TopicPartitions]:
        topics: dict[Any, list[int]] = {}
        for topic, number in sorted(self.owned):
            topics.setdefault(topic, []).append(number)
        return [TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in topics.items()]

    def _beat_in(self, round_: int) -> None:
        if round_ == self.round:
            self.beat()

    def _answered(self, round_: int, said: set[Partition], response: Any) -> None:
        if round_ != self.round or not self.is_alive:
            return
        delay_ms = HEARTBEAT_MS
        if response is None:
            # Nobody knows whether it was heard: say it again.
            self.said, delay_ms = None, 100
        elif response.error_code in GONE:
            self._forget()
            delay_ms = 100
        elif response.error_code:
            self.said, delay_ms = None, 300
        else:
            self.epoch, self.said = response.member_epoch, said
            if response.assignment is not None:
                target = {
                    (row.topic_id, number) for row in response.assignment.topic_partitions for number in row.partitions
                }
                delay_ms = 50 if self._goes_for(target) else HEARTBEAT_MS
        self.world.after(delay_ms, partial(self._beat_in, self.round))

    def _goes_for(self, target: set[Partition]) -> bool:
        """Give up what is not its own any longer, which may take a while, and take what is."""
        world = self.world
        if self.owned - target and world.random.random() < world.slow:
            self.paused_until_ms = world.now_ms + world.random.randrange(2 * REBALANCE_MS)
        changed = self.owned != target
        self.owned = set(target)
        return changed


class World(CoordinatorWorld):
    """Everything, from one seed."""

    request_timeout_ms = 3_000

    def __init__(self, seed: int, members: int = 6, machine_class: type[AllGroupsMachine] = AllGroupsMachine) -> None:
        super().__init__(seed)
        self.machine_class = machine_class
        self.lost, self.late, self.doubled, self.failed_writes, self.slow = 0.05, 0.05, 0.1, 0.04, 0.1
        self.is_bad = True
        self.metadata = BenchWorld()
        self.metadata.put("t", self.random.randrange(1, 12))
        self.metadata.put("u", self.random.randrange(1, 6))
        self.machine: AllGroupsMachine | None = None
        subscriptions: list[dict[str, Any]] = [
            {"subscribed_topic_names": ["t"]},
            {"subscribed_topic_names": ["t", "u"]},
            {"subscribed_topic_regex": "[tu].*"},
            {"subscribed_topic_names": ["t"], "server_assignor": "range"},
        ]
        is_mixed = self.random.random() < 0.5
        self.members = [
            Member(
                self,
                f"m{number}",
                self.random.choice(subscriptions) if is_mixed else subscriptions[0],
                f"i{number}" if self.random.random() < 0.3 else None,
            )
            for number in range(members)
        ]
        for member in self.members:
            self.after(self.random.randrange(3_000), member.start)
        self._begin()
        self.after(self.random.randrange(8_000), self._move)
        self.after(0, self._mishap)

    def heal(self) -> None:
        """From now on everything works, and everybody is there."""
        self.is_bad = False
        self.lost = self.late = self.doubled = self.failed_writes = self.slow = 0.0
        for member in self.members:
            member.paused_until_ms = 0
            if not member.is_alive:
                member.start()

    # The coordinator

    def _begin(self) -> None:
        stored = StoredAllGroups()
        load(self.log, replaying(decode_record, stored))
        machine = self.machine = self.machine_class(
            GroupConfig(), CONFIG, SeededRandomness(self.seed), stored, lambda: self.metadata
        )
        self.shard = CoordinatorShard(machine, ShardLimits())
        self.shard.decide(lambda: machine.loaded(self.now), self.now)
        self.pump()

    def _move(self) -> None:
        if not self.is_bad:
            return
        self.after(self.random.randrange(1_000, 12_000), self._move)
        if self.shard is None:
            return
        self.lose_coordinator()
        self.machine = None
        self.after(self.random.randrange(10, 2_000), self._begin)

    def take_jobs(self) -> None:
        machine = self.machine
        for job in machine.take_jobs() if machine is not None else ():
            self.after(self.random.randrange(500), partial(self._job_done, machine, job))

    def _job_done(self, machine: AllGroupsMachine, job: Any) -> None:
        if machine is self.machine and self.shard is not None:
            result = RuntimeError("full") if self.is_bad and self.random.random() < 0.1 else job.run()
            self.shard.decide(lambda: machine.job_done(job, result, self.now), self.now)
            self.pump()

    def fate_of_a_write(self) -> tuple[bool, int]:
        succeeds = self.random.random() >= self.failed_writes
        is_late = self.random.random() < self.late
        return succeeds, self.random.randrange(4_000, 9_000) if is_late else self.random.randrange(20)

    # The network

    def send(self, request: ConsumerGroupHeartbeatRequest, done: Callable[[Any], None]) -> None:
        """`done` gets the answer, or None when none came in time; by then the request is gone, too."""
        outcome, once = self.answered_in_time(done)

        def arrive() -> None:
            if outcome:
                return
            self._arrive(request, once)
            if self.random.random() < self.doubled:
                self._arrive(request, lambda _: None)

        if self.random.random() >= self.lost:
            self.after(self._latency(), arrive)

    def _arrive(self, request: ConsumerGroupHeartbeatRequest, done: Callable[[Any], None]) -> None:
        call = Call(request, 1, "client", "/127.0.0.1")
        self.waiting[call] = done
        if self.shard is None or self.machine is None:
            self.deliver(Answer(call, refuse(call, ErrorCode.NOT_COORDINATOR)))
            return
        self.shard.submit(call, self.now, after_writes_of=self.machine.must_wait(call))
        self.pump()

    def _latency(self) -> int:
        return self.random.randrange(4_000) if self.random.random() < self.late else self.random.randrange(1, 30)

    def deliver(self, answer: Answer) -> None:
        response: Any = answer.response
        done = self.waiting.pop(answer.call, None)
        if done is None:
            raise Violation(f"seed {self.seed}: answered twice")
        if response.error_code in GONE:
            self.notes.append("fenced")
        if self.random.random() >= self.lost:
            self.after(self._latency(), lambda: done(response))

    def _mishap(self) -> None:
        if not self.is_bad:
            return
        self.after(self.random.randrange(4_000), self._mishap)
        member = self.random.choice(self.members)
        if not member.is_alive:
            member.start()
            return
        match self.random.randrange(6):
            case 0:
                member.crash()
            case 1:
                member.leave()
            case 2:
                member.paused_until_ms = self.now_ms + self.random.randrange(2 * SESSION_MS)
            case 3:
                member.crash()
                member.start()
            case 4:
                topic = self.random.choice(sorted(self.metadata.topics))
                self.metadata.put(topic, len(self.metadata.topics[topic].partitions) + 1)
            case _:
                self.metadata.put(f"t{self.random.randrange(3)}", 1 + self.random.randrange(3))

    # What must never break

    def check(self) -> None:
        machine = self.machine
        group = machine.stored.consumer_groups.get(GROUP) if machine is not None else None
        if group is None:
            return
        where = f"seed {self.seed} at {self.now_ms}"
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
                for place in member.owned:
                    if owners.get(place) != member.member_id:
                        raise Violation(f"{where}: {member.member_id} reads {place}, which is {owners.get(place)}'s")

    def check_settled(self) -> None:
        """Everybody has what it is to have, and together they have everything."""
        assert self.machine is not None
        group = self.machine.stored.consumer_groups[GROUP]
        where = f"seed {self.seed}"
        if group.state_name != "Stable":
            raise Violation(f"{where}: the group is {group.state_name}")
        living = {member.member_id for member in self.members}
        if set(group.members) != living:
            raise Violation(f"{where}: members are {sorted(group.members)}, not {sorted(living)}")
        read = {name for member in group.members.values() for name in group.topics_of(member)}
        wanted = {
            (topic.topic_id, number)
            for topic in self.metadata.topics.values()
            if topic.name in read
            for number in topic.partitions
        }
        owned = [place for member in self.members for place in member.owned]
        if len(owned) != len(set(owned)) or set(owned) != wanted:
            raise Violation(f"{where}: {len(owned)} partitions are read, of {len(wanted)}")
