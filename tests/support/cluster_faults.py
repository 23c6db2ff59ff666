"""What goes wrong in a simulated cluster, by chance, until it heals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appliance.controller.records import NO_LEADER, LogState
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from appliance.wire.messages.elect_leaders import ElectLeadersRequest
from tests.support.cluster_wire import Process

if TYPE_CHECKING:
    from tests.support.cluster_world import World

DAY_MS = 86_400_000
FAULTS_MS = 9_000
"""Of each day: then it heals."""
EVERYBODY = "*"


class Faults:
    """Cuts, crashes, pauses, a store that is away, and what operators do meanwhile."""

    def __init__(self, world: World, *, troubles: bool) -> None:
        self._world = world
        self._random = world.random
        self.on = troubles
        self._cuts: dict[tuple[str, str], int] = {}
        self._hosts_down: dict[str, None] = {}
        self._away: dict[str, int] = {}
        self.dirty: dict[int, bool] = {}
        """Brokers whose hosts may lack what they had, until they are in sync again, and whether they have registered
        since. The epoch does not tell: the store may have kept a registration of an earlier life waiting.
        """
        self._slow = self._random.choice((0.0, 0.01, 0.05))
        self._lossy = self._random.choice((0.0, 0.002, 0.01))

    def start(self) -> None:
        if self.on:
            self._world.at(1_500, self._trouble)

    def chance(self, probability: float) -> bool:
        return self.on and self._random.random() < probability

    def heal(self) -> None:
        self._world.note("healed")
        self.on = False
        self._cuts.clear()
        self._away.clear()

    # The network

    def latency_ms(self) -> int:
        chance = self._random.random()
        if self.on and chance < self._slow:
            return self._random.randrange(50, 3_000)
        return 1 + int(chance * 5)

    def is_cut(self, source: str, target: str) -> bool:
        return self._cut_until(source, target) > self._world.now

    def _cut_until(self, source: str, target: str) -> int:
        if source in self._hosts_down or target in self._hosts_down:
            return 1 << 40
        pairs = ((source, target), (source, EVERYBODY), (EVERYBODY, target))
        return max(self._cuts.get(pair, 0) for pair in pairs)

    def arrival_ms(self, source: str, target: str) -> int | None:
        """When a message that leaves now arrives; None: never, and nobody is told."""
        until = self._cut_until(source, target)
        if until >= 1 << 40 or self.chance(self._lossy):
            return None
        return max(until, self._world.now) + self.latency_ms()

    # The store

    def store_fate(self, name: str) -> str:
        if max(self._away.get(name, 0), self._away.get(EVERYBODY, 0)) > self._world.now:
            return self._random.choice(("refused", "lost"))
        if not self.on:
            return "answered"
        chance = self._random.random()
        for fate, probability in (("refused", 0.02), ("lost", 0.01), ("late", 0.02), ("unanswered", 0.02)):
            if chance < probability:
                return fate
            chance -= probability
        return "answered"

    def store_delay_ms(self) -> int:
        return self._random.randrange(200, 1_900) if self.chance(0.02) else self._random.randrange(1, 25)

    # Troubles

    def _trouble(self) -> None:
        if not self.on:
            return
        self._world.at(self._world.now + self._random.randrange(100, 900), self._trouble)
        kinds = (
            (self._crash, 4),
            (self._host_crash, 2),
            (self._lose_disk, 1),
            (self._crash_controller, 2),
            (self._pause, 4),
            (self._stall, 2),
            (self._cut, 4),
            (self._store_goes_away, 2),
            (self._clock_jumps, 1),
            (self._restart, 2),
            (self._elect, 3),
            (self._reassign, 3),
        )
        kind = self._random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        kind()

    def _broker(self) -> Any:
        process = self._world.brokers.get(self._random.choice(self._world.broker_ids))
        return process if process is not None and process.alive else None

    def _anybody(self) -> Process | None:
        everybody = [*self._world.brokers.values(), *self._world.controllers.values()]
        process = self._random.choice(everybody)
        return process if process.alive else None

    def _told(self, what: str, count: str) -> None:
        self._world.note(what)
        self._world.counts[count] += 1

    def _crash(self) -> None:
        process = self._broker()
        if process is not None:
            self.crash(process)

    def crash(self, process: Any) -> None:
        """Of the process: the page cache survives."""
        self._told(f"{process.name} crashes", "crashes")
        process.die()
        self._world.start_broker(process.broker_id, LogState.SAME_BOOT, self._random.randrange(20, 3_000))

    def _may_lose(self, process: Any) -> bool:
        """One host at a time may lack what it had; the next waits until all that it holds is in sync again."""
        world, image = self._world, self._world.checks.image
        for broker_id in list(self.dirty):
            if world.checks.in_sync_everywhere(broker_id):
                del self.dirty[broker_id]
        return process is not None and process.broker_id in image.brokers and not self.dirty

    def _host_crash(self) -> None:
        process = self._broker()
        if self._may_lose(process):
            self.host_crash(process)

    def host_crash(self, process: Any) -> None:
        """Nobody is told, and what was not flushed may be gone."""
        self.dirty[process.broker_id] = False
        process.alive = False
        self._hosts_down[process.name] = None
        lost = process.logs.power_cut(self._random)
        if self._random.random() < 0.5:
            process.logs.noted_epoch = -1
        self._told(f"the host of {process.name} goes down, {lost} batches are lost", "host crashes")
        self._world.counts["torn"] += lost > 0
        self._world.start_broker(process.broker_id, LogState.UNCLEAN, self._random.randrange(300, 4_000))

    def registered(self, broker_id: int) -> None:
        """A living process has heard that it is."""
        if broker_id in self.dirty:
            self.dirty[broker_id] = True

    def host_is_up(self, name: str) -> None:
        self._hosts_down.pop(name, None)

    def _lose_disk(self) -> None:
        process = self._broker()
        if self._may_lose(process):
            self.dirty[process.broker_id] = False
            self._told(f"{process.name} dies and loses its disk", "lost disks")
            process.die()
            process.logs.replace_disk(self._random, process.broker_id)
            self._world.start_broker(process.broker_id, LogState.EMPTY, self._random.randrange(100, 3_000))

    def _crash_controller(self) -> None:
        process = self._world.controllers.get(self._random.choice(self._world.controller_ids))
        if process is not None and process.alive:
            self._told(f"{process.name} crashes", "controller crashes")
            process.die()
            self._world.restart_controller(process.controller_id, self._random.randrange(20, 3_000))

    def _pause(self) -> None:
        process = self._anybody()
        if process is not None:
            self.pause(process, self._random.choice((300, 900, 2_300, 3_500, 8_000)))

    def pause(self, process: Process, most_ms: int) -> None:
        # What was to run meanwhile runs at the end of it: so nobody may stand still longer than the troubles last.
        process.paused_until = min(self._world.now + self._random.randrange(100, most_ms), FAULTS_MS)
        self._told(f"{process.name} stands still until {process.paused_until}", "pauses")

    def _stall(self) -> None:
        process = self._broker()
        if process is not None:
            length_ms = self._random.choice((150, 300, 450, 700, 3_000))
            process.stalled_until = min(self._world.now + length_ms, FAULTS_MS)
            self._told(f"the loop of {process.name} stands still until {process.stalled_until}", "stalls")

    def _cut(self) -> None:
        names = [*self._world.clocks][:-1]
        one, two = self._random.sample(names, 2)
        if self._random.random() < 0.4:
            two = EVERYBODY
        until = self._world.now + self._random.randrange(100, 5_000)
        ways = self._random.choice((((one, two),), ((two, one),), ((one, two), (two, one))))
        for way in ways:
            self._cuts[way] = until
        self._told(f"cut {' '.join(f'{source}>{target}' for source, target in ways)} until {until}", "cuts")

    def cut(self, one: str, two: str, until_ms: int) -> None:
        """Both ways."""
        self._cuts[one, two] = self._cuts[two, one] = until_ms

    def cut_off(self, *names: str, until_ms: int) -> None:
        """These reach each other and clients, and nobody else."""
        for name in names:
            for other in self._world.clocks:
                if other not in (*names, "x"):
                    self.cut(name, other, until_ms)
        self._world.note(f"{' and '.join(names)} are cut off until {until_ms}")

    def _store_goes_away(self) -> None:
        who = self._random.choice([EVERYBODY, *(f"c{number}" for number in self._world.controller_ids)])
        self.store_goes_away(who, self._world.now + self._random.randrange(300, 6_000))

    def store_goes_away(self, who: str, until_ms: int) -> None:
        self._away[who] = until_ms
        self._told(f"the store is away for {who} until {until_ms}", "store away")

    def _clock_jumps(self) -> None:
        clock = self._world.clocks[self._random.choice([*self._world.clocks])]
        clock.wall_ms += self._random.choice((-DAY_MS, -1_000, 1_000, 2 * DAY_MS, 3 * DAY_MS))
        self._world.counts["clock jumps"] += 1

    # Operators

    def _restart(self) -> None:
        process = self._broker()
        if process is not None:
            self._told(f"{process.name} is told to stop", "controlled shutdowns")
            process.later(0, process.broker.stop)

    def _partition(self) -> Any:
        topics = sorted(self._world.checks.image.topics.values(), key=lambda topic: topic.name)
        topic = self._random.choice(topics) if topics else None
        return (topic, self._random.choice(topic.partitions)) if topic is not None else None

    def _ask(self, request: Any) -> None:
        process = self._broker()
        if process is not None:
            process.later(0, lambda: process.broker.controller.call(request, lambda answer: None, timeout_ms=3_000))

    def _elect(self) -> None:
        self._told("leaders are sent home", "preferred elections")
        self._ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3_000))

    def _reassign(self) -> None:
        chosen = self._partition()
        if chosen is None:
            return
        topic, state = chosen
        target: list[int] | None = self._random.sample(self._world.broker_ids, 3)
        if (state.adding or state.removing) and self._random.random() < 0.5:
            target = None
        elif state.leader == NO_LEADER:
            return
        self._told(f"{topic.name}-{state.partition} is to move to {target}", "reassignments")
        part = ReassignablePartition(partition_index=state.partition, replicas=target)
        self._ask(
            AlterPartitionReassignmentsRequest(
                timeout_ms=3_000, topics=[ReassignableTopic(name=topic.name, partitions=[part])]
            )
        )
