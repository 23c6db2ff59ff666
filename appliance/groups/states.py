"""The states of a classic group, and the ways from one to the next.

```
Empty ── join ──> PreparingRebalance ── all are back, or had their time ──> CompletingRebalance
  ^                 │            ^                                            │           │
  └── nobody left ──┘            │                                            │           │ leader's assignments
                                 ├────────────────────────────────────────────┘           v are stored
                                 └─── a member joins, leaves, fails or changes ────── Stable
```
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Values are the names that clients are shown."""

    EMPTY = "Empty"
    """Nobody is in the group; it may still have offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are awaited with their JoinGroup."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members of the next generation stand; their leader's assignments are awaited."""
    STABLE = "Stable"
    """All members of the generation may have their assignments."""
    DEAD = "Dead"
    """There is no such group."""


PREVIOUS_STATES: dict[GroupState, tuple[GroupState, ...]] = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.DEAD: (),
}
