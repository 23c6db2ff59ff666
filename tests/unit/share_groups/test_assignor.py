from __future__ import annotations

import random
import uuid

import pytest

from appliance.share_groups.assignor import ShareSubscriber, assign
from appliance.share_groups.stored import Target
from tests.support.seeds import seeds

T, U = uuid.UUID(int=1), uuid.UUID(int=2)


def assigned(members: list[str], partitions: int, before: dict[str, Target] | None = None) -> dict[str, Target]:
    known = before or {}
    subscribers = [ShareSubscriber(each, frozenset({T}), known.get(each, {})) for each in members]
    return assign(subscribers, {T: range(partitions)})


def loads(made: dict[str, Target]) -> list[int]:
    return sorted(sum(len(each) for each in target.values()) for target in made.values())


def readers(made: dict[str, Target], partitions: int) -> list[int]:
    return sorted(sum(number in target.get(T, ()) for target in made.values()) for number in range(partitions))


def test_partitions_are_dealt_out_evenly() -> None:
    made = assigned(["a", "b", "c"], 7)
    assert loads(made) == [2, 2, 3]
    assert readers(made, 7) == [1] * 7


def test_more_members_than_partitions_share_them() -> None:
    made = assigned(["a", "b", "c", "d", "e"], 2)
    assert loads(made) == [1] * 5
    assert readers(made, 2) == [2, 3]


def test_a_member_without_topics_that_exist_gets_nothing() -> None:
    assert assign([ShareSubscriber("a", frozenset({U}))], {T: range(3)}) == {"a": {}}


def test_members_of_other_topics_do_not_come_into_each_others_way() -> None:
    subscribers = [ShareSubscriber("a", frozenset({T})), ShareSubscriber("b", frozenset({T, U}))]
    assert assign(subscribers, {T: [0], U: [0, 1]}) == {"a": {T: (0,)}, "b": {T: (0,), U: (0, 1)}}


@pytest.mark.parametrize("seed", seeds(20))
def test_while_members_come_and_go_all_stays_even_and_little_moves(seed: int) -> None:
    source = random.Random(seed)
    partitions, members = source.randrange(1, 12), [f"m{number}" for number in range(source.randrange(1, 12))]
    made = assigned(members, partitions)
    for _ in range(8):
        if len(members) > 1 and source.random() < 0.5:
            members.remove(source.choice(members))
        else:
            members.append(f"n{source.random()}")
        after = assigned(members, partitions, made)
        assert max(loads(after)) - min(loads(after)) <= 1
        assert max(readers(after, partitions)) - min(readers(after, partitions)) <= 1
        assert min(readers(after, partitions)) >= 1
        assert assigned(members, partitions, after) == after, "nothing changes without a reason"
        made = after
