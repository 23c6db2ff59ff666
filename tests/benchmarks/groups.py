"""`make bench-groups`: groups of a hundred members over a thousand partitions, here and on Apache Kafka.

    python -m tests.benchmarks.groups [--quick] [--pairs N] [--ours-alone] [--print]

Both run at the same time. A run makes a group, lets it settle, and then has one member more and one less in turn; its
figure is the middle of those rebalances. Runs take turns, as in `make bench`. Then 1,000 groups stand idle.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.benchmarks.figures import Measure
from tests.benchmarks.group_members import TOPIC, ClassicMember, ConsumerMember, CooperativeMember, Member, Swarm
from tests.benchmarks.report import Pair, listed, marked, table
from tests.benchmarks.run import (
    add_ours_alone,
    add_pairs,
    give,
    machine_facts,
    pair_of,
    parsed,
    parser_of,
    say,
)
from tests.benchmarks.servers import BenchmarkedServer, SideBySide, beside_kafka

BEGIN = "<!-- group figures: written by `make bench-groups`, from here -->"
END = "<!-- group figures: to here -->"
PAIRS, QUICK_PAIRS = 5, 1
MEMBERS, PARTITIONS = 100, 1_000
REBALANCES, WARM_UP_REBALANCES = 20, 40
GROUPS, IDLE_S, QUICK_IDLE_S = 1_000, 60.0, 10.0
COMMIT_DEADLINE_S = 60.0
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "50",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which a group agrees who reads what."""

    title: str
    member: Callable[[Swarm], Member]


KINDS = (
    Kind("Classic, eager", ClassicMember),
    Kind("Classic, cooperative", CooperativeMember),
    Kind("KIP-848", ConsumerMember),
)

FORMED = Measure("all join at once", "ms", lambda run: run["formed_s"] * 1e3, digits=0)
REBALANCED = Measure("one more or one less", "ms", lambda run: run["rebalanced_s"] * 1e3, digits=0)
CPU = Measure("server CPU for that", "ms", lambda run: run["cpu_s"] * 1e3, digits=0)
CALLS = Measure("requests for that", "", lambda run: run["calls"], digits=0)
MEASURES = (FORMED, REBALANCED, CPU, CALLS)


def run_group(server: BenchmarkedServer, kind: Kind, topic_id: uuid.UUID, rebalances: int) -> dict[str, float]:
    """A new group, from its first member to its last rebalance."""
    swarm = Swarm((server.host, server.port), uuid.uuid4().hex, PARTITIONS, topic_id)
    try:
        for _ in range(MEMBERS):
            swarm.add(kind.member(swarm))
        formed_s = swarm.settle()
        took_s = []
        calls, cpu_s = swarm.calls, server.cpu_seconds()
        for number in range(rebalances):
            if number % 2 == 0:
                newcomer = kind.member(swarm)
                swarm.add(newcomer)
                newcomer.prepare()
                newcomer.join()
            else:
                gone = swarm.members[number * 7 % MEMBERS]
                if gone.waits:
                    swarm.wait_for(gone)
                gone.leave()
                swarm.wait_for(gone)
                swarm.remove(gone)
            for member in swarm.members:
                member.beats_at = 0.0
            took_s.append(swarm.settle())
        return {
            "formed_s": formed_s,
            "rebalanced_s": statistics.median(took_s),
            "cpu_s": (server.cpu_seconds() - cpu_s) / rebalances,
            "calls": (swarm.calls - calls) / rebalances,
        }
    finally:
        swarm.close()


def wait_for_coordinators(server: BenchmarkedServer) -> None:
    """The topic of groups is made when somebody asks for a coordinator."""
    deadline = time.monotonic() + COMMIT_DEADLINE_S
    with Connection(server.host, server.port) as connection:
        while time.monotonic() < deadline:
            (found,) = connection.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]), 4).coordinators
            if found.error_code == ErrorCode.NONE:
                return
            time.sleep(0.1)
    raise TimeoutError(f"{server.name} has no coordinator of groups")


def idle_percent(servers: Sequence[BenchmarkedServer], seconds: float) -> list[float]:
    """What each uses of a core while nobody asks anything."""
    before, began = [server.cpu_seconds() for server in servers], time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - began
    return [(server.cpu_seconds() - at) / passed_s * 100 for server, at in zip(servers, before, strict=True)]


def commit_for(server: BenchmarkedServer, group_id: str, connection: Connection) -> None:
    """A group that has an offset and no member."""
    committed = [OffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in range(10)]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=committed)]
    deadline = time.monotonic() + COMMIT_DEADLINE_S
    while True:
        answer = connection.call(OffsetCommitRequest(group_id=group_id, topics=topics), 8)
        errors = {each.error_code for each in answer.topics[0].partitions}
        if errors == {ErrorCode.NONE}:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{server.name}: {group_id}: {errors}")
        time.sleep(0.05)


def stand_idle(servers: Sequence[BenchmarkedServer], seconds: float) -> list[tuple[str, list[float]]]:
    """Rows of what 1,000 groups cost above none, all servers at the same time."""
    time.sleep(seconds / 4)
    without = idle_percent(servers, seconds)
    for server in servers:
        with Connection(server.host, server.port) as connection:
            for number in range(GROUPS):
                commit_for(server, f"idle-{number}", connection)
    time.sleep(seconds / 4)
    with_them = idle_percent(servers, seconds)
    above = [more - less for more, less in zip(with_them, without, strict=True)]
    return [("none", without), (f"{GROUPS:,}", with_them), ("difference", above)]


def section(
    facts: Sequence[tuple[str, str]],
    results: Sequence[tuple[Kind, Sequence[Pair]]],
    idle: Sequence[tuple[str, list[float]]],
    names: tuple[str, str],
) -> str:
    """The marked part of the document."""
    lines = listed(facts)
    for kind, pairs in results:
        title = f"{kind.title}: {MEMBERS} members, {PARTITIONS:,} partitions"
        lines += ["", table(title, MEASURES, pairs, names)]
    lines += ["", "### Idle groups, each with offsets of 10 partitions", ""]
    lines += [f"| groups | {names[0]}, % of a core | {names[1]}, % of a core |", "|---|---|---|"]
    lines += [f"| {name} | {values[0]:.2f} | {values[-1]:.2f} |" for name, values in idle]
    return marked(lines, BEGIN, END)


def main(arguments: Sequence[str]) -> int:
    parser = parser_of("bench-groups", __doc__)
    add_pairs(parser, "kind", PAIRS, QUICK_PAIRS)
    add_ours_alone(parser)
    chosen = parsed(parser, arguments)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    warm = WARM_UP_REBALANCES // (8 if chosen.quick else 1)
    began = time.time()
    with SideBySide(*beside_kafka(PROPERTIES, ours_alone=chosen.ours_alone)) as servers:
        topic_ids = [uuid.UUID(hex=server.create_topic(TOPIC, PARTITIONS)) for server in servers]
        for server in servers:
            wait_for_coordinators(server)
        sides = list(zip(servers, topic_ids, strict=True))
        results: list[tuple[Kind, list[Pair]]] = []

        def run_of(kind: Kind, number: int, side: int) -> dict[str, float]:
            server, topic_id = sides[side]
            run = run_group(server, kind, topic_id, REBALANCES)
            told = ", ".join(f"{each.name} {each.of(run):,.0f} {each.unit}" for each in MEASURES)
            say(f"  {kind.title} {number + 1}/{pairs} {server.name}: {told}")
            return run

        for kind in KINDS:
            for server, topic_id in sides:
                run_group(server, kind, topic_id, warm)
            results.append((kind, [pair_of(number, partial(run_of, kind, number)) for number in range(pairs)]))
        idle = stand_idle(servers, QUICK_IDLE_S if chosen.quick else IDLE_S)
    facts = [
        *machine_facts(pairs, began),
        ("Both", "one broker, defaults but for " + ", ".join(f"`{key}={value}`" for key, value in PROPERTIES.items())),
        ("Warmed with", f"{warm} rebalances of each kind"),
    ]
    text = section(facts, results, idle, (servers[0].name, servers[-1].name))
    give(text, BEGIN, END, prints=chosen.print or chosen.ours_alone or chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
