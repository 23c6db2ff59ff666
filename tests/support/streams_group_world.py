"""Members of a group of Kafka Streams (KIP-1071) in a `HeartbeatWorld`.

Members are threads of processes, which share a state directory; internal topics come when the group has asked for them,
topics get partitions, copies are wanted or not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from appliance.base.randomness import SeededRandomness
from appliance.coordinator.calls import Answer
from appliance.coordinator.loader import load, replaying
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
from tests.support.coordinator_world import Violation
from tests.support.heartbeat_world import (
    CONFIG,
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    HeartbeatWorld,
    Member,
)
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
MEMBERS = 5
ROLES = ("active", "standby")
Held = tuple[str, str, int]
"""Role, subtopology and partition."""


class StreamsThread(Member):
    """A thread of a process; it holds tasks and copies."""

    def __init__(self, world: StreamsGroupWorld, name: str, process: str) -> None:
        super().__init__(world, name)
        self.process = process

    def heartbeat(self) -> StreamsGroupHeartbeatRequest:
        """What has changed, and everything when it joins."""
        joins = self.epoch == 0
        roles: dict[str, Any] = {}
        if joins or self.said != self.held or self.world.random.random() < 0.1:
            roles = {f"{role}_tasks": self._rows(role) for role in ROLES} | {"warmup_tasks": []}
        if joins:
            roles |= {
                "topology": TOPOLOGY,
                "process_id": self.process,
                "user_endpoint": Endpoint(host=self.process, port=1),
                "client_tags": [],
                "rebalance_timeout_ms": REBALANCE_MS,
            }
        return StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, **roles)

    def farewell(self) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1)

    def given(self, response: Any) -> set[Held] | None:
        if response.active_tasks is None:
            return None
        return {
            (role, row.subtopology_id, number)
            for role in ROLES
            for row in getattr(response, f"{role}_tasks")
            for number in row.partitions
        }

    def _rows(self, role: str) -> list[TaskIds]:
        found: dict[str, list[int]] = {}
        for each, name, number in sorted(self.held):
            if each == role:
                found.setdefault(name, []).append(number)
        return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in found.items()]


class StreamsGroupWorld(HeartbeatWorld):
    """No task runs twice, and in the end all are run evenly, with their copies."""

    def __init__(self, seed: int, machine_class: type[EveryGroupMachine] = EveryGroupMachine) -> None:
        super().__init__(seed, machine_class)

    def prepare(self) -> list[StreamsThread]:
        self.metadata.put("t", self.random.randrange(1, 8))
        self.metadata.put("u", self.random.randrange(1, 5))
        self._want_copies(1)
        processes = [f"process-{number}" for number in range(3)]
        return [StreamsThread(self, f"m{number}", self.random.choice(processes)) for number in range(MEMBERS)]

    def load_machine(self) -> EveryGroupMachine:
        stored = StoredEveryGroup()
        load(self.log, replaying(decode_record, stored))
        randomness = SeededRandomness(self.seed)
        return self.machine_class(GroupConfig(), CONFIG, STREAMS_CONFIG, randomness, stored, lambda: self.metadata)

    def find_group(self) -> Any:
        return self.machine.stored.streams_groups.get(GROUP)

    def deliver(self, answer: Answer) -> None:
        response: Any = answer.response
        if self.machine is not None and any(status.status_code == 3 for status in response.status or ()):
            for topic in self.machine.missing_internal_topics(GROUP):
                self.after(self.random.randrange(2_000), partial(self._create, topic.name, topic.partitions))
        super().deliver(answer)

    def _create(self, name: str, partitions: int) -> None:
        if name not in self.metadata.topics:
            self.metadata.put(name, partitions)

    def widen(self) -> None:
        # Only what needs no other internal topic, which nobody could widen.
        self.metadata.put("t", len(self.metadata.topics["t"].partitions) + 1)

    def reconfigure(self) -> None:
        self._want_copies(self.random.randrange(3))

    def _want_copies(self, count: int) -> None:
        self.metadata.resource_configs[32, GROUP] = {"streams.num.standby.replicas": str(count)}

    def check_group(self, where: str, group: Any) -> None:
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

    def check_shares(self, where: str, group: Any) -> None:
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
