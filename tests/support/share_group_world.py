"""Members of a share group (KIP-932) in a `HeartbeatWorld`: topics grow, come and go, and the share coordinator fails.

Nobody waits for anybody in such a group. What a member reads are the partitions that it was told last.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.coordinator.loader import load, replaying
from appliance.groups.config import GroupConfig
from appliance.share_groups.config import ShareGroupConfig
from appliance.share_groups.context import Outcome, PersistJob
from appliance.share_groups.machine import ShareGroups, StoredWithShares, decoding
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.machine import EveryGroupMachine
from appliance.streams_groups.records import decode_record
from appliance.streams_groups.stored import StoredEveryGroup
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.coordinator_world import Violation
from tests.support.heartbeat_world import CONFIG, GROUP, HEARTBEAT_MS, SESSION_MS, HeartbeatWorld, Member

SHARE_CONFIG = ShareGroupConfig(
    session_timeout_ms=(SESSION_MS, 1, SESSION_MS),
    heartbeat_interval_ms=(HEARTBEAT_MS, 1, HEARTBEAT_MS),
    initialize_retry_interval_ms=4_000,
)
MEMBERS = 6
SUBSCRIPTIONS = (["t"], ["t", "u"], ["u"], ["t", "new"])
Place = tuple[Any, int]


class ShareMember(Member):
    """It reads partitions, perhaps with others; now and then it wants other topics."""

    world: ShareGroupWorld

    def __init__(self, world: ShareGroupWorld, name: str, topics: list[str]) -> None:
        super().__init__(world, name)
        self.topics = topics
        self.told_topics: list[str] | None = None
        self.highest_epoch = 0

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """As the Java client: its topics when it joins, when they change, and when nobody knows what was heard."""
        says_all = self.epoch == 0 or self.said is None or self.topics != self.told_topics
        self.told_topics = self.topics
        return ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=list(self.topics) if says_all else None,
        )

    def farewell(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1)

    def given(self, response: Any) -> set[Place] | None:
        if self.epoch < self.highest_epoch:
            where = f"seed {self.world.seed} at {self.world.now_ms}"
            raise Violation(f"{where}: {self.member_id} goes back from epoch {self.highest_epoch} to {self.epoch}")
        self.highest_epoch = self.epoch
        if response.assignment is None:
            return None
        return {(row.topic_id, number) for row in response.assignment.topic_partitions for number in row.partitions}

    def start(self) -> None:
        self.highest_epoch = 0
        super().start()


class ShareGroupWorld(HeartbeatWorld):
    """In the end each partition of what somebody reads has a reader, and those who read the same share evenly."""

    def __init__(self, seed: int, machine_class: type[ShareGroups] = ShareGroups) -> None:
        self.begun: set[Place] = set()
        """What the share coordinator has a state of."""
        self.epochs = (0, 0)
        super().__init__(seed, machine_class)

    def prepare(self) -> list[ShareMember]:
        self.metadata.put("t", self.random.randrange(1, 12))
        self.metadata.put("u", self.random.randrange(1, 5))
        self.is_mixed = self.random.random() < 0.5
        return [ShareMember(self, f"m{number}", self._topics()) for number in range(MEMBERS)]

    def _topics(self) -> list[str]:
        return self.random.choice(SUBSCRIPTIONS) if self.is_mixed else SUBSCRIPTIONS[1]

    def load_machine(self) -> ShareGroups:
        others = StoredEveryGroup()
        stored = StoredWithShares(others)
        load(self.log, replaying(decoding(decode_record), stored))
        machine = EveryGroupMachine(
            GroupConfig(), CONFIG, StreamsGroupConfig(), SeededRandomness(self.seed), others, lambda: self.metadata
        )
        return self.machine_class(machine, stored.shares, SHARE_CONFIG, lambda: self.metadata)

    def find_group(self) -> Any:
        return self.machine.context.stored.groups.get(GROUP)

    # The share coordinator

    def take_jobs(self) -> None:
        super().take_jobs()
        machine = self.machine
        for job in machine.take_persists() if machine is not None else ():
            self.after(self._latency(), partial(self._persist, machine, job))

    def _persist(self, machine: ShareGroups, job: PersistJob) -> None:
        """It is done, or not, and we hear of it, or not."""
        outcome: dict[Place, tuple[ErrorCode, str | None]] = {}
        for each in job.places:
            place = (each.topic_id, each.partition)
            failed, lost = (self.random.random() < self.failed_writes for _ in range(2))
            outcome[place] = (ErrorCode.COORDINATOR_NOT_AVAILABLE if failed or lost else ErrorCode.NONE, None)
            if not failed:
                (self.begun.add if job.is_beginning else self.begun.discard)(place)
        self.after(self._latency(), partial(self._persisted, machine, job, outcome))

    def _persisted(self, machine: ShareGroups, job: PersistJob, outcome: Outcome) -> None:
        if machine is self.machine and self.shard is not None:
            self.shard.decide(lambda: machine.persisted(job, outcome, self.now), self.now)
            self.pump()

    # What happens

    def widen(self) -> None:
        topic = self.random.choice(sorted(self.metadata.topics))
        self.metadata.put(topic, len(self.metadata.topics[topic].partitions) + 1)

    def reconfigure(self) -> None:
        match self.random.randrange(3):
            case 0:
                self.random.choice(self.members).topics = self._topics()
            case 1 if "new" in self.metadata.topics:
                gone = self.metadata.topics["new"]
                self.metadata.remove("new")
                if self.shard is not None:
                    self.shard.decide(lambda: self.machine.topics_deleted([("new", gone.topic_id)]), self.now)
                    self.pump()
            case _:
                self.metadata.put("new", 1 + self.random.randrange(4))

    # What must hold

    def check_group(self, where: str, group: Any) -> None:
        if (group.epoch, group.assignment_epoch) < self.epochs or group.assignment_epoch > group.epoch:
            raise Violation(f"{where}: epochs go from {self.epochs} to {group.epoch}, {group.assignment_epoch}")
        self.epochs = (group.epoch, group.assignment_epoch)
        for member_id, current in group.current.items():
            if member_id not in group.members:
                raise Violation(f"{where}: {member_id} reads and is no member")
            if current.epoch > group.epoch:
                raise Violation(f"{where}: {member_id} is in epoch {current.epoch}, its group in {group.epoch}")
            without = {(topic, number) for topic, row in current.assigned.items() for number in row} - self.begun
            if any(topic in self.metadata.topics_by_id for topic, _ in without):
                raise Violation(f"{where}: {member_id} reads what has no state: {without}")
        for member in self.members:
            current = group.current.get(member.member_id)
            if current is not None and member.epoch > current.epoch:
                raise Violation(f"{where}: {member.member_id} believes in epoch {member.epoch} above {current.epoch}")

    def check_shares(self, where: str, group: Any) -> None:
        sizes = {topic.topic_id: len(topic.partitions) for topic in self.metadata.topics.values()}
        alike: dict[tuple[str, ...], list[Any]] = {}
        for member in self.members:
            there = tuple(sorted(name for name in member.topics if name in self.metadata.topics))
            alike.setdefault(there, []).append(member)
        for names, members in alike.items():
            topics = [self.metadata.topics[name].topic_id for name in names]
            wanted = {(topic, number) for topic in topics for number in range(sizes[topic])}
            read = [place for member in members for place in member.held]
            if set(read) != wanted:
                raise Violation(f"{where}: of {names} {len(set(read))} are read, not {len(wanted)}")
            loads = [len(member.held) for member in members]
            readers = [read.count(place) for place in wanted]
            if max(loads) - min(loads) > 1 or max(readers, default=0) - min(readers, default=0) > 1:
                raise Violation(f"{where}: of {names} members have {loads}, partitions {readers}")

    def check_settled(self) -> None:
        super().check_settled()
        group = self.find_group()
        behind = {member.member_id: member.epoch for member in self.members if member.epoch != group.epoch}
        if behind or group.epoch != group.assignment_epoch:
            raise Violation(f"seed {self.seed}: in epoch {group.epoch} members are in {behind}")
