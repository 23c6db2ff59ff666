"""What is asked of share coordinators is answered once, however often a partition is named."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.broker_actors.share_offsets import ShareOffsets
from appliance.share_groups.context import PersistJob, Place
from appliance.share_groups.state_forms import key_of
from appliance.wire.messages.read_share_group_state_summary import PartitionResult

TOPIC = uuid.UUID(int=7)


class Persister:
    """Answers at once, and keeps whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ask(self, request: Any, done: Callable[[Any], None]) -> None:
        self.asked.append(key_of(request).partition)
        done(PartitionResult(partition=key_of(request).partition, start_offset=3))


def offsets() -> tuple[ShareOffsets, Persister]:
    persister = Persister()
    made = ShareOffsets.__new__(ShareOffsets)
    made._persister = persister  # type: ignore[assignment]
    return made, persister


def test_a_partition_that_is_named_twice_is_answered() -> None:
    made, persister = offsets()
    told: list[Any] = []
    made.summaries("g", [(TOPIC, 1), (TOPIC, 0), (TOPIC, 1)], told.append)
    assert [sorted(each) for each in told] == [[(TOPIC, 0), (TOPIC, 1)]]
    assert persister.asked == [1, 0]


def test_a_partition_whose_offset_is_set_twice_is_answered() -> None:
    made, persister = offsets()
    told: list[Any] = []
    made.persist(PersistJob("g", (Place(TOPIC, 0, 5), Place(TOPIC, 0, 6)), 1, None), told.append)
    assert [{place: error for place, (error, _) in each.items()} for each in told] == [{(TOPIC, 0): ErrorCode.NONE}]
    assert persister.asked == [0, 0]
