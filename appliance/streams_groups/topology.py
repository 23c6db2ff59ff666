"""What a topology asks of the topics: which tasks there are, and which internal topics are to be made.

- A subtopology has as many tasks as the largest of its source topics has partitions.
- A repartition topic without a number of partitions gets as many as the subtopologies have tasks that write to it.
- Topics of a copartition group have to have the same number of partitions; those that may still choose follow.
- A changelog has a partition for each task of its subtopology.

What is missing or does not fit is a status, with which members wait; what can never be is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.streams_groups.stored import Task
from appliance.wire.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, TopicInfo, Topology

STALE_TOPOLOGY = 0
MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5

SUBTOPOLOGIES_MAX = 1_000
TASKS_MAX = 20_000
"""Of a topology; more are refused, for a target names each of them."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")


class InvalidTopology(Exception):
    """A topology that no topics can make right."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One that is to be made."""

    name: str
    partitions: int
    replication_factor: int
    """-1: the broker's default."""
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology beside the topics as they are."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    """How many each subtopology has; none while anything is missing."""
    stateful: frozenset[str] = frozenset()
    """Subtopologies whose tasks keep state that is logged, of which others may keep copies."""
    status: tuple[int, str] | None = None
    to_create: tuple[InternalTopic, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.status is None

    def all_tasks(self) -> list[Task]:
        """By partition, so that tasks with state and without lie beside each other and are spread alike."""
        tasks = [(name, number) for name in self.tasks for number in range(self.tasks[name])]
        return sorted(tasks, key=lambda task: (task[1], task[0]))


def check(topology: Topology) -> None:
    """What is wrong with a topology by itself. Raises: InvalidTopology."""
    if len(topology.subtopologies) > SUBTOPOLOGIES_MAX:
        raise InvalidTopology(f"A topology has at most {SUBTOPOLOGIES_MAX} subtopologies.")
    seen: set[str] = set()
    wrong: list[str] = []
    for each in topology.subtopologies:
        if each.subtopology_id in seen:
            raise InvalidTopology(f"Subtopology {each.subtopology_id} is named twice.")
        seen.add(each.subtopology_id)
        for changelog in each.state_changelog_topics:
            if changelog.partitions:
                raise InvalidTopology(
                    f"Changelog topic {changelog.name} must not say how many partitions it has, but says "
                    f"{changelog.partitions}."
                )
        wrong += [name for name in _names(each) if not _TOPIC_NAME.fullmatch(name) or name in (".", "..")]
        for topic in [*each.state_changelog_topics, *each.repartition_source_topics]:
            if topic.name in INTERNAL_TOPICS:
                raise InvalidTopology(f"{topic.name} is a topic of the brokers.")
            if topic.partitions < 0 or topic.replication_factor < -1:
                raise InvalidTopology(f"{topic.name} cannot be made with less than nothing.")
        for group in each.copartition_groups:
            _check_places(each, group)
    if wrong:
        raise InvalidTopology(f"Topic names {', '.join(wrong)} are not valid topic names.")


def _names(subtopology: Subtopology) -> list[str]:
    topics = [*subtopology.state_changelog_topics, *subtopology.repartition_source_topics]
    names = [*subtopology.source_topics, *subtopology.repartition_sink_topics, *(topic.name for topic in topics)]
    return list(dict.fromkeys(names))


def _check_places(subtopology: Subtopology, group: CopartitionGroup) -> None:
    for places, of in (
        (group.source_topics, subtopology.source_topics),
        (group.repartition_source_topics, subtopology.repartition_source_topics),
    ):
        if any(not 0 <= place < len(of) for place in places):
            raise InvalidTopology(f"A copartition group of subtopology {subtopology.subtopology_id} names no topic.")


def configure(topology: Topology, topics: Mapping[str, Any]) -> Configured:
    """What there is and what is to be made. Raises: InvalidTopology."""
    counts = {name: len(topics[name].partitions) for name in _external(topology) if name in topics}
    missing = [name for name in _external(topology) if name not in counts]
    if missing:
        return Configured(status=(MISSING_SOURCE_TOPICS, f"Source topics {', '.join(missing)} are missing."))
    internal = _repartition_counts(topology, counts)
    unequal = _copartition(topology, counts, internal)
    if unequal:
        return Configured(status=(INCORRECTLY_PARTITIONED_TOPICS, unequal))
    wanted: dict[str, InternalTopic] = {}
    tasks: dict[str, int] = {}
    for each in topology.subtopologies:
        for topic in each.repartition_source_topics:
            wanted[topic.name] = _to_be(topic, internal[topic.name])
    for each in topology.subtopologies:
        sources = [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        tasks[each.subtopology_id] = max((internal.get(name) or counts[name] for name in sources), default=0)
        for topic in each.state_changelog_topics:
            wanted[topic.name] = _to_be(topic, tasks[each.subtopology_id])
    if sum(tasks.values()) > TASKS_MAX:
        raise InvalidTopology(f"A topology has at most {TASKS_MAX} tasks.")
    for name, internal_topic in wanted.items():
        known = topics.get(name)
        if known is not None and len(known.partitions) != internal_topic.partitions:
            return Configured(
                status=(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has {len(known.partitions)} partitions, not {internal_topic.partitions}.",
                )
            )
    to_create = tuple(one for name, one in wanted.items() if name not in topics)
    stateful = frozenset(each.subtopology_id for each in topology.subtopologies if each.state_changelog_topics)
    if to_create:
        detail = f"Internal topics are missing: {', '.join(one.name for one in to_create)}"
        return Configured(status=(MISSING_INTERNAL_TOPICS, detail), to_create=to_create)
    return Configured(tasks, stateful)


def _external(topology: Topology) -> list[str]:
    return sorted({name for each in topology.subtopologies for name in each.source_topics})


def _to_be(topic: TopicInfo, partitions: int) -> InternalTopic:
    configs = tuple((each.key, each.value) for each in topic.topic_configs)
    return InternalTopic(topic.name, partitions, topic.replication_factor or -1, configs)


def _repartition_counts(topology: Topology, counts: Mapping[str, int]) -> dict[str, int]:
    """Partitions of each repartition topic: as it says, or by who writes to it. Raises: InvalidTopology."""
    internal = {
        topic.name: topic.partitions for each in topology.subtopologies for topic in each.repartition_source_topics
    }
    while open_ones := [name for name, count in internal.items() if not count]:
        is_any_found = False
        for name in open_ones:
            writers = [each for each in topology.subtopologies if name in each.repartition_sink_topics]
            found = max((_tasks_known(each, counts, internal) for each in writers), default=0)
            if found:
                internal[name], is_any_found = found, True
        if not is_any_found:
            raise InvalidTopology(
                "The partitions of a repartition topic are not known: nobody writes to it, or only who reads it."
            )
    return internal


def _tasks_known(subtopology: Subtopology, counts: Mapping[str, int], internal: Mapping[str, int]) -> int:
    external = [counts[name] for name in subtopology.source_topics]
    return max([*external, *(internal[topic.name] for topic in subtopology.repartition_source_topics)], default=0)


def _copartition(topology: Topology, counts: Mapping[str, int], internal: dict[str, int]) -> str | None:
    """Let those that may choose follow the others; what cannot be made equal is told."""
    for each in topology.subtopologies:
        for group in each.copartition_groups:
            sources = [each.source_topics[place] for place in group.source_topics]
            repartitions = [each.repartition_source_topics[place] for place in group.repartition_source_topics]
            fixed = {name: counts[name] for name in sources}
            if len(set(fixed.values())) > 1:
                shown = ", ".join(f"{name}={fixed[name]}" for name in sorted(fixed))
                return f"Following topics do not have the same number of partitions: [{{{shown}}}]"
            said = {topic.name: topic.partitions for topic in repartitions if topic.partitions}
            if len({*fixed.values(), *said.values()}) > 1:
                shown = ", ".join(f"{name}={count}" for name, count in sorted({**fixed, **said}.items()))
                return f"Following topics do not have the same number of partitions: [{{{shown}}}]"
            known = [*fixed.values(), *said.values()]
            count = known[0] if known else max((internal[topic.name] for topic in repartitions), default=0)
            internal.update(dict.fromkeys((topic.name for topic in repartitions), count))
    return None
