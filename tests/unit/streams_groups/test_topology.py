"""What a topology asks of the topics."""

from __future__ import annotations

import pytest

from appliance.streams_groups.topology import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_SOURCE_TOPICS,
    InvalidTopology,
    check,
    configure,
)
from tests.support.streams_group_bench import subtopology, topology


def topics(**partitions: int) -> dict[str, object]:
    class Topic:
        def __init__(self, count: int) -> None:
            self.partitions = range(count)

    return {name: Topic(count) for name, count in partitions.items()}


def test_a_subtopology_has_as_many_tasks_as_its_largest_source() -> None:
    found = configure(topology(subtopology("0", ["a", "b"]), subtopology("1", ["b"])), topics(a=2, b=5))
    assert (found.tasks, found.status) == ({"0": 5, "1": 5}, None)


def test_missing_sources_are_named() -> None:
    found = configure(topology(subtopology("0", ["b", "a", "c"])), topics(c=1))
    assert found.status == (MISSING_SOURCE_TOPICS, "Source topics a, b are missing.")


def test_a_repartition_topic_follows_who_writes_to_it_through_others() -> None:
    found = configure(
        topology(
            subtopology("0", ["a"], sinks=["r"]),
            subtopology("1", [], repartitions={"r": 0}, sinks=["s"]),
            subtopology("2", [], repartitions={"s": 0}, changelogs=["c"]),
        ),
        topics(a=4),
    )
    assert {each.name: each.partitions for each in found.to_create} == {"r": 4, "s": 4, "c": 4}


def test_a_repartition_topic_that_may_choose_follows_what_it_is_joined_with() -> None:
    found = configure(
        topology(
            subtopology("0", ["a"], sinks=["r"]),
            subtopology("1", ["b"], repartitions={"r": 0}, together=[([0], [0])]),
        ),
        topics(a=2, b=7),
    )
    assert [(each.name, each.partitions) for each in found.to_create] == [("r", 7)]


def test_what_is_joined_has_to_be_equal() -> None:
    parts = topology(subtopology("0", ["a", "b"], together=[([0, 1], [])]))
    found = configure(parts, topics(a=2, b=3))
    assert (
        found.status is not None and found.status[0] == INCORRECTLY_PARTITIONED_TOPICS and "a=2, b=3" in found.status[1]
    )


def test_an_internal_topic_that_is_there_has_to_fit() -> None:
    found = configure(topology(subtopology("0", ["a"], changelogs=["c"])), topics(a=2, c=3))
    assert found.status is not None and found.status[0] == INCORRECTLY_PARTITIONED_TOPICS


@pytest.mark.parametrize(
    "wrong",
    [
        topology(subtopology("0", ["a"]), subtopology("0", ["b"])),
        topology(subtopology("0", ["a/b"])),
        topology(subtopology("0", ["a"], together=[([1], [])])),
        topology(subtopology("0", ["a"], changelogs=["__consumer_offsets"])),
    ],
)
def test_what_no_topics_can_make_right_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidTopology):
        check(wrong)  # type: ignore[arg-type]


def test_repartition_topics_in_a_circle_are_refused() -> None:
    parts = topology(
        subtopology("0", [], repartitions={"r": 0}, sinks=["s"]),
        subtopology("1", [], repartitions={"s": 0}, sinks=["r"]),
    )
    with pytest.raises(InvalidTopology):
        configure(parts, {})
