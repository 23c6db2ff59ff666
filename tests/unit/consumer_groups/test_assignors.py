"""Balance, stickiness and ownership, for whatever members read."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.consumer_groups.assignors import ASSIGNORS, Subscriber, Target, in_ranges, uniform

TOPICS = [uuid.UUID(int=number) for number in range(1, 7)]
PARTITIONS = dict(zip(TOPICS, (1, 2, 3, 5, 8, 13), strict=True))

subscriptions = st.lists(st.frozensets(st.sampled_from([*TOPICS, uuid.UUID(int=99)]), max_size=5), max_size=8)
alike = st.tuples(st.frozensets(st.sampled_from(TOPICS)), st.integers(1, 8)).map(lambda pair: [pair[0]] * pair[1])


def members(read: list[frozenset[uuid.UUID]], targets: dict[str, Target] | None = None) -> list[Subscriber]:
    return [
        Subscriber(f"m{number}", topics, None, (targets or {}).get(f"m{number}", {}))
        for number, topics in enumerate(read)
    ]


def owned(targets: dict[str, Target]) -> dict[tuple[uuid.UUID, int], str]:
    owners: dict[tuple[uuid.UUID, int], str] = {}
    for member_id, target in targets.items():
        for topic, numbers in target.items():
            assert numbers, "topics without partitions are left out"
            for number in numbers:
                assert (topic, number) not in owners, "owned twice"
                owners[topic, number] = member_id
    return owners


def load(target: Target) -> int:
    return sum(map(len, target.values()))


def check_owned(subscribers: list[Subscriber], targets: dict[str, Target], partitions: dict[uuid.UUID, int]) -> None:
    read = {each.member_id: each.topics for each in subscribers}
    owners = owned(targets)
    assert targets.keys() == read.keys()
    assert all(topic in read[member_id] for (topic, _), member_id in owners.items())
    wanted = {topic for topics in read.values() for topic in topics if topic in partitions}
    assert owners.keys() == {(topic, number) for topic in wanted for number in range(partitions[topic])}


def check_balanced(subscribers: list[Subscriber], targets: dict[str, Target]) -> None:
    for (topic, _), owner in owned(targets).items():
        for other in subscribers:
            if topic in other.topics:
                assert load(targets[owner]) - load(targets[other.member_id]) < 2


@pytest.mark.parametrize("name", ASSIGNORS)
@given(read=subscriptions | alike)
def test_every_partition_that_somebody_reads_has_one_owner_who_reads_it(
    name: str, read: list[frozenset[uuid.UUID]]
) -> None:
    subscribers = members(read)
    check_owned(subscribers, ASSIGNORS[name](subscribers, PARTITIONS), PARTITIONS)


@given(read=subscriptions | alike)
def test_uniform_is_balanced(read: list[frozenset[uuid.UUID]]) -> None:
    subscribers = members(read)
    check_balanced(subscribers, uniform(subscribers, PARTITIONS))


@given(first=subscriptions | alike, second=subscriptions | alike)
def test_uniform_stays_whole_and_balanced_when_members_change(
    first: list[frozenset[uuid.UUID]], second: list[frozenset[uuid.UUID]]
) -> None:
    before = uniform(members(first), PARTITIONS)
    after = members(second, before)
    targets = uniform(after, PARTITIONS)
    check_owned(after, targets, PARTITIONS)
    check_balanced(after, targets)


@given(read=subscriptions | alike)
def test_uniform_moves_nothing_when_nothing_changed(read: list[frozenset[uuid.UUID]]) -> None:
    before = uniform(members(read), PARTITIONS)
    assert uniform(members(read, before), PARTITIONS) == before


@given(topics=st.frozensets(st.sampled_from(TOPICS), min_size=1), count=st.integers(1, 8))
def test_when_members_read_the_same_a_newcomer_gets_its_share_and_nobody_else_gets_anything(
    topics: frozenset[uuid.UUID], count: int
) -> None:
    before = uniform(members([topics] * count), PARTITIONS)
    after = uniform(members([topics] * (count + 1), before), PARTITIONS)
    for number in range(count):
        mine = after[f"m{number}"]
        assert all(set(mine[topic]) <= set(before[f"m{number}"].get(topic, ())) for topic in mine)


@given(topics=st.frozensets(st.sampled_from(TOPICS), min_size=1), count=st.integers(2, 8))
def test_when_one_of_equals_leaves_the_others_keep_what_they_have(topics: frozenset[uuid.UUID], count: int) -> None:
    before = uniform(members([topics] * count), PARTITIONS)
    after = uniform(members([topics] * (count - 1), before), PARTITIONS)
    for member_id, target in after.items():
        assert all(set(before[member_id].get(topic, ())) <= set(target[topic]) for topic in before[member_id])


def test_targets_that_overlap_are_made_whole() -> None:
    doubled: dict[str, Target] = {"m0": {TOPICS[3]: (0, 1, 2)}, "m1": {TOPICS[3]: (1, 2, 3, 9)}}
    subscribers = members([frozenset(TOPICS[3:4])] * 2, doubled)
    check_owned(subscribers, uniform(subscribers, PARTITIONS), PARTITIONS)
    unlike = members([frozenset(TOPICS[3:4]), frozenset(TOPICS[2:4])], doubled)
    check_owned(unlike, uniform(unlike, PARTITIONS), PARTITIONS)


def test_ranges_are_neighbours_and_equal_partitions_of_equal_topics_meet() -> None:
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    both = frozenset((one, other))
    targets = in_ranges([Subscriber(each, both) for each in ("b", "a", "c")], {one: 7, other: 7})
    assert targets == {
        "a": {one: (0, 1, 2), other: (0, 1, 2)},
        "b": {one: (3, 4), other: (3, 4)},
        "c": {one: (5, 6), other: (5, 6)},
    }


def test_ranges_go_to_static_members_first_by_their_instance_ids() -> None:
    one = uuid.UUID(int=1)
    read = frozenset((one,))
    targets = in_ranges([Subscriber("a", read), Subscriber("z", read, "i1"), Subscriber("y", read, "i2")], {one: 3})
    assert targets == {"z": {one: (0,)}, "y": {one: (1,)}, "a": {one: (2,)}}


def test_members_with_more_than_their_share_keep_it_rather_than_others_get_it() -> None:
    one = uuid.UUID(int=1)
    read = frozenset((one,))
    before: dict[str, Target] = {"m0": {one: (0, 1)}, "m1": {one: (2, 3, 4)}}
    assert uniform(members([read, read], before), {one: 5}) == before


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 1_000))
def test_a_hundred_members_with_a_thousand_partitions(seed: int) -> None:
    topics = [uuid.UUID(int=number + 1) for number in range(20)]
    partitions = dict.fromkeys(topics, 50)
    read = [frozenset(topics[(seed + number) % 20 :][:7] or topics[:1]) for number in range(100)]
    before = uniform(members(read), partitions)
    check_owned(members(read), before, {topic: 50 for each in read for topic in each})
    after = members(read[1:], before)
    targets = uniform(after, partitions)
    check_balanced(after, targets)
