from __future__ import annotations

from collections import Counter

import pytest

from appliance.base.errors import UserError
from appliance.broker_actors.placement import Node, place_brokers


def nodes(*slots: int) -> list[Node]:
    return [Node(f"node-{number}", f"10.0.0.{number}", count) for number, count in enumerate(slots, 1)]


def test_brokers_spread_over_nodes() -> None:
    placed = place_brokers(range(1, 7), nodes(4, 4, 4), {})
    assert Counter(placed.values()) == {"node-1": 2, "node-2": 2, "node-3": 2}


def test_a_broker_stays_where_it_was_and_new_ones_go_where_room_is() -> None:
    placed = place_brokers([1, 2, 3], nodes(2, 2), {1: "node-2", 2: "node-2"})
    assert placed == {1: "node-2", 2: "node-2", 3: "node-1"}


def test_a_broker_waits_for_a_node_that_is_away() -> None:
    assert place_brokers([1, 2], nodes(2), {1: "node-9"}) == {1: "node-9", 2: "node-1"}


@pytest.mark.parametrize("slots", [(), (0,), (1, 1)])
def test_too_few_slots_are_named(slots: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="3 brokers need as many broker slots"):
        place_brokers([1, 2, 3], nodes(*slots), {})
