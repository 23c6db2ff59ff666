"""Which broker lives on which node. Pure.

A broker keeps its node, because its data lies there: what an earlier start decided stands, also while the node is away
(then the broker waits for it). New brokers go where most slots are free, so that replicas spread over nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.base.errors import UserError


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that takes brokers."""

    name: str
    """Its label `appliance-node`."""
    address: str
    """The IP address by which the other nodes reach it."""
    slots: int
    """How many brokers it takes: its resource `broker_slot`."""


def place_brokers(broker_ids: Sequence[int], nodes: Sequence[Node], earlier: Mapping[int, str]) -> dict[int, str]:
    """The node of each broker, by name.

    Raises:
        UserError: not enough slots.
    """
    placed = {broker_id: earlier[broker_id] for broker_id in broker_ids if broker_id in earlier}
    free = {node.name: node.slots for node in sorted(nodes, key=lambda node: node.name)}
    for name in placed.values():
        if name in free:
            free[name] -= 1
    for broker_id in broker_ids:
        if broker_id in placed:
            continue
        name = max(free, key=lambda candidate: free[candidate], default="")
        if free.get(name, 0) <= 0:
            slots = sum(node.slots for node in nodes)
            raise UserError(f"{len(broker_ids)} brokers need as many broker slots; {len(nodes)} nodes offer {slots}")
        placed[broker_id] = name
        free[name] -= 1
    return placed
