"""Few moves that even replicas, bytes and leaders."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from appliance.controller.balancer import BrokerToBalance, CannotDrain, PartitionToBalance, plan_balance
from tests.support.seeds import seeds


def brokers(*ids: int, racks: str = "") -> list[BrokerToBalance]:
    return [BrokerToBalance(b, racks[at] if racks else None) for at, b in enumerate(ids)]


def parts(*replicas: tuple[int, ...], sizes: tuple[int, ...] = ()) -> list[PartitionToBalance]:
    return [PartitionToBalance("t", n, on, sizes[n] if sizes else 0) for n, on in enumerate(replicas)]


def test_what_is_even_stays() -> None:
    plan = plan_balance(brokers(1, 2, 3), parts((1, 2), (2, 3), (3, 1)))
    assert plan.moves == []
    assert plan.replicas_before == plan.replicas_after == {1: 2, 2: 2, 3: 2}


def test_a_new_broker_gets_its_share_and_no_more_than_that_moves() -> None:
    plan = plan_balance(brokers(1, 2, 3), parts(*[(1, 2)] * 6))
    assert plan.replicas_after == {1: 4, 2: 4, 3: 4}
    assert plan.leaders_after == {1: 2, 2: 2, 3: 2}
    assert sum(len(move.added) for move in plan.moves) == 4


def test_leaders_are_evened_by_the_order_of_replicas_alone() -> None:
    plan = plan_balance(brokers(1, 2, 3), parts(*[(1, 2, 3)] * 6))
    assert plan.leaders_after == {1: 2, 2: 2, 3: 2}
    assert all(sorted(move.before) == sorted(move.after) for move in plan.moves)
    assert plan.bytes_to_copy == 0


def test_a_leader_goes_over_a_third_broker_where_no_exchange_helps() -> None:
    # 1 leads two and shares no replica with 3, which leads none.
    plan = plan_balance(brokers(1, 2, 3), parts((1, 2), (1, 2), (2, 3), (3, 2), (3, 1), (3, 1), (3, 1)))
    assert max(plan.leaders_after.values()) - min(plan.leaders_after.values()) <= 1


def test_a_drained_broker_holds_nothing() -> None:
    plan = plan_balance(brokers(1, 2, 3), parts((1, 2), (2, 1), (1, 2)), drained=[2])
    assert plan.replicas_after == {1: 3, 2: 0, 3: 3}
    assert plan.leaders_after[2] == 0


def test_a_broker_that_is_gone_can_be_drained() -> None:
    plan = plan_balance(brokers(1, 3), parts((1, 9), (9, 1)), drained=[9])
    assert {b for move in plan.moves for b in move.after} == {1, 3}


def test_a_drain_that_leaves_too_few_is_refused() -> None:
    with pytest.raises(CannotDrain, match="t-0 has 2 replicas"):
        plan_balance(brokers(1, 2), parts((1, 2)), drained=[2])


def test_racks_are_never_worse_spread() -> None:
    plan = plan_balance(brokers(1, 2, 3, racks="aab"), parts(*[(1, 3)] * 4, *[(2, 3)] * 2))
    rack_of = {1: "a", 2: "a", 3: "b"}
    assert all(len({rack_of[b] for b in move.after}) == 2 for move in plan.moves)
    assert plan.replicas_after == {1: 3, 2: 3, 3: 6}


def test_bytes_are_evened_where_they_are_known() -> None:
    sizes = (100, 100, 100, 1, 1, 1)
    plan = plan_balance(brokers(1, 2), parts((1,), (1,), (1,), (2,), (2,), (2,), sizes=sizes))
    assert plan.replicas_after == {1: 3, 2: 3}
    assert sorted(plan.bytes_after.values()) == [102, 201]
    assert plan.bytes_to_copy == 101


@pytest.mark.parametrize("seed", seeds(20))
def test_any_cluster_ends_even_sound_and_stays_so(seed: int) -> None:
    chance = random.Random(seed)
    ids = list(range(1, chance.randrange(2, 8)))
    racks = [chance.choice("abc") for _ in ids] if chance.random() < 0.5 else None
    living = [BrokerToBalance(b, racks[at] if racks else None) for at, b in enumerate(ids)]
    factor = chance.randrange(1, min(3, len(ids)) + 1)
    found = [
        PartitionToBalance("t", number, tuple(chance.sample(ids, factor)), chance.randrange(1_000))
        for number in range(chance.randrange(1, 60))
    ]
    plan = plan_balance(living, found)
    after = {(p.topic, p.partition): p.replicas for p in found}
    after |= {(move.topic, move.partition): move.after for move in plan.moves}
    assert all(len(set(replicas)) == factor for replicas in after.values())
    counts = Counter(b for replicas in after.values() for b in replicas)
    assert {b: counts[b] for b in ids} == plan.replicas_after
    if racks is None:
        assert max(plan.replicas_after.values()) - min(plan.replicas_after.values()) <= 1
    assert max(plan.leaders_after.values()) <= max(plan.leaders_before.values())
    again = [PartitionToBalance(p.topic, p.partition, after[p.topic, p.partition], p.size_bytes) for p in found]
    assert plan_balance(living, again).moves == []
