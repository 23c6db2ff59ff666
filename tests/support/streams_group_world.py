"""Members of a group of Kafka Streams, their network and their coordinator, on days on which much goes wrong.

The network and the coordinator's fate are those of `consumer_group_world`. Members are threads of processes, which
share a state directory; internal topics come when the group has asked for them, topics get partitions, copies are
wanted or not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from appliance.base.randomness import SeededRandomness
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from appliance.groups.config import GroupConfig
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.machine import EveryGroupMachine
from appliance.streams_groups.records import decode_record
from appliance.streams_groups.stored import StoredEveryGroup
from appliance.wire.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    TaskIds,
)
from tests.support.consumer_group_bench import BenchWorld
from tests.support.consumer_group_world import CONFIG, GONE, GROUP, HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, World
from tests.support.coordinator_world import CoordinatorWorld, Violation
from tests.support.streams_group_bench import subtopology, topology

STREAMS_CONFIG = StreamsGroupConfig(
    session_timeout_ms=SESSION_MS,
    min_session_timeout_ms=1,
    heartbeat_interval_ms=HEARTBEAT_MS,
    min_heartbeat_interval_ms=1,
    initial_rebalance_delay_ms=500,
)
TOPOLOGY = topology(
    subtopology("0", ["t"], sinks=["r"]),
    subtopology("1", ["u"], repartitions={"r": 6}, changelogs=["c"]),
)
ROLES = ("active", "standby")
Held = tuple[str, str, int]
"""Role, subtopology and partition."""


class StreamsMember:
    """A client, as far as it matters here: a thread of a process."""

    def __init__(self, world: StreamsWorld, name: str, process: str) -> None:
        self.world, self.name, self.process = world, name, process
        self.life = 0
        self.member_id = ""
        self.epoch = 0
        self.held: set[Held] = set()
        self.said: set[Held] | None = None
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
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1)
        self.crash()
        self.world.send(request, lambda _: None)

    def _forget(self) -> None:
        self.round += 1
        self.epoch, self.held, self.said = 0, set(), None

    def beat(self) -> None:
        """Say what has changed, and everything when it joins."""
        world = self.world
        if not self.is_alive:
            return
        if world.now_ms < self.paused_until_ms:
            world.after(self.paused_until_ms - world.now_ms, partial(self._beat_in, self.round))
            return
        self.round += 1
        joins = self.epoch == 0
        roles: dict[str, Any] = {}
        if joins or self.said != self.held or world.random.random() < 0.1:
            roles = {f"{role}_tasks": self._rows(role) for role in ROLES} | {"warmup_tasks": []}
        if joins:
            roles |= {
                "topology": TOPOLOGY,
                "process_id": self.process,
                "user_endpoint": Endpoint(host=self.process, port=1),
                "client_tags": [],
                "rebalance_timeout_ms": REBALANCE_MS,
            }
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, **roles
        )
        world.send(request, partial(self._answered, self.round, set(self.held)))

    def _rows(self, role: str) -> list[TaskIds]:
        found: dict[str, list[int]] = {}
        for each, name, number in sorted(self.held):
            if each == role:
                found.setdefault(name, []).append(number)
        return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in found.items()]

    def _beat_in(self, round_: int) -> None:
        if round_ == self.round:
            self.beat()

    def _answered(self, round_: int, said: set[Held], response: Any) -> None:
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
            if response.active_tasks is not None:
                target = {
                    (role, row.subtopology_id, number)
                    for role in ROLES
                    for row in getattr(response, f"{role}_tasks")
                    for number in row.partitions
                }
                delay_ms = 50 if self._goes_for(target) else HEARTBEAT_MS
        self.world.after(delay_ms, partial(self._beat_in, self.round))

    def _goes_for(self, target: set[Held]) -> bool:
        """Give up what is not its own any longer, which may take a while, and take what is."""
        world = self.world
        if self.held - target and world.random.random() < world.slow:
            self.paused_until_ms = world.now_ms + world.random.randrange(2 * REBALANCE_MS)
        changed = self.held != target
        self.held = set(target)
        return changed


class StreamsWorld(World):
    """Everything, from one seed."""

    def __init__(self, seed: int, members: int = 5, machine_class: type[EveryGroupMachine] = EveryGroupMachine) -> None:
        CoordinatorWorld.__init__(self, seed)
        self.machine_class = machine_class  # type: ignore[assignment]
        self.lost, self.late, self.doubled, self.failed_writes, self.slow = 0.05, 0.05, 0.1, 0.04, 0.1
        self.is_bad = True
        self.metadata = BenchWorld()
        self.metadata.put("t", self.random.randrange(1, 8))
        self.metadata.put("u", self.random.randrange(1, 5))
        self.metadata.resource_configs[32, GROUP] = {"streams.num.standby.replicas": "1"}
        self.machine = None
        processes = [f"process-{number}" for number in range(3)]
        self.members = [  # type: ignore[assignment]
            StreamsMember(self, f"m{number}", self.random.choice(processes)) for number in range(members)
        ]
        for member in self.members:
            self.after(self.random.randrange(3_000), member.start)
        self._begin()
        self.after(self.random.randrange(8_000), self._move)
        self.after(0, self._mishap)

    def _begin(self) -> None:
        stored = StoredEveryGroup()
        load(self.log, replaying(decode_record, stored))
        machine: Any = self.machine_class(
            GroupConfig(), CONFIG, STREAMS_CONFIG, SeededRandomness(self.seed), stored, lambda: self.metadata
        )
        self.machine = machine
        self.shard = CoordinatorShard(machine, ShardLimits())
        self.shard.decide(lambda: machine.loaded(self.now), self.now)
        self.pump()

    def deliver(self, answer: Any) -> None:
        machine: Any = self.machine
        if machine is not None and any(status.status_code == 3 for status in answer.response.status or ()):
            for topic in machine.missing_internal_topics(GROUP):
                self.after(self.random.randrange(2_000), partial(self._create, topic.name, topic.partitions))
        super().deliver(answer)

    def _create(self, name: str, partitions: int) -> None:
        if name not in self.metadata.topics:
            self.metadata.put(name, partitions)

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
                # Only what needs no other internal topic, which nobody could widen.
                self.metadata.put("t", len(self.metadata.topics["t"].partitions) + 1)
            case _:
                replicas = str(self.random.randrange(3))
                self.metadata.resource_configs[32, GROUP] = {"streams.num.standby.replicas": replicas}

    # What must never break

    def check(self) -> None:
        machine: Any = self.machine
        group = machine.stored.streams_groups.get(GROUP) if machine is not None else None
        if group is None:
            return
        where = f"seed {self.seed} at {self.now_ms}"
        runs: dict[tuple[str, int], str] = {}
        for member_id, current in group.current.items():
            if member_id not in group.members:
                raise Violation(f"{where}: {member_id} has something and is no member")
            for task in current.assigned.active | current.pending.active:
                if runs.setdefault(task, member_id) != member_id:
                    raise Violation(f"{where}: {task} is run by {runs[task]} and {member_id}")
        for member in self.members:
            if member.member_id in group.members and member.epoch > 0:
                for role, name, number in member.held:
                    if role == "active" and runs.get((name, number)) != member.member_id:
                        raise Violation(
                            f"{where}: {member.member_id} runs {name}_{number}, which is {runs.get((name, number))}'s"
                        )
        self._check_state_directories(where, group)

    def _check_state_directories(self, where: str, group: Any) -> None:
        """No two members of a process have anything of the same task at once."""
        seen: dict[tuple[str, str, int], str] = {}
        for member_id, current in group.current.items():
            process = group.members[member_id].process_id
            for task in current.assigned.all:
                if seen.setdefault((process, *task), member_id) != member_id:
                    raise Violation(f"{where}: {process} has {task} twice")
            if current.assigned.active & current.assigned.standby:
                raise Violation(f"{where}: {member_id} runs a task and keeps its copy")

    def check_settled(self) -> None:
        """Everybody has what it is to have, and together they run every task."""
        machine: Any = self.machine
        group = machine.stored.streams_groups[GROUP]
        where = f"seed {self.seed}"
        if group.state_name != "Stable":
            raise Violation(f"{where}: the group is {group.state_name}")
        living = {member.member_id for member in self.members}
        if set(group.members) != living:
            raise Violation(f"{where}: members are {sorted(group.members)}, not {sorted(living)}")
        counts = {name: len(topic.partitions) for name, topic in self.metadata.topics.items()}
        wanted = {("0", number) for number in range(counts["t"])}
        wanted |= {("1", number) for number in range(max(counts["u"], counts["r"]))}
        run = [(name, number) for member in self.members for role, name, number in member.held if role == "active"]
        if len(run) != len(set(run)) or set(run) != wanted:
            raise Violation(f"{where}: {len(run)} tasks are run, of {len(wanted)}")
        shares = [sum(role == "active" for role, *_ in member.held) for member in self.members]
        if max(shares) - min(shares) > 1:
            raise Violation(f"{where}: the shares are {shares}")
        replicas = min(group.standby_replicas, len({member.process for member in self.members}) - 1)
        copies = [task for member in self.members for task in member.held if task[0] == "standby"]
        stateful = sum(name == "1" for name, _ in wanted)
        if len(copies) != replicas * stateful:
            raise Violation(f"{where}: {len(copies)} copies are kept, of {replicas * stateful}")
