"""InitializeShareGroupState 0, ReadShareGroupState 0, WriteShareGroupState 0-1, DeleteShareGroupState 0 and
ReadShareGroupStateSummary 0-1 (KIP-932): what brokers ask the share coordinator of a partition of a group.

Each partition has a coordinator of its own; one that is not here is NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.group_calls import answer_or_wait, call_of
from appliance.server.requests import Pending, Request
from appliance.share_groups.state_forms import joined, refuse_all, split
from appliance.wire.api import ApiKey
from appliance.wire.schema import Struct


class ShareCoordinators(Protocol):
    """`broker.shares`: the share coordinators of the partitions of `__share_group_state` that this broker leads."""

    def submit(self, call: Call, answer: Callable[[Struct], None]) -> None: ...

    def create_topic(self, done: Callable[[], None]) -> None: ...


def share_coordinators_of(broker: Broker) -> ShareCoordinators:
    """The broker's share coordinators."""
    return cast(ShareCoordinators, cast(Any, broker).shares)


def share_state_handlers() -> dict[int, HandlerEntry]:
    """By API key."""
    entry = HandlerEntry(handle, error=failed)
    return {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: entry,
        ApiKey.READ_SHARE_GROUP_STATE: entry,
        ApiKey.WRITE_SHARE_GROUP_STATE: entry,
        ApiKey.DELETE_SHARE_GROUP_STATE: entry,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: entry,
    }


def handle(broker: Broker, request: Request) -> Struct | Pending:
    singles = split(request.body)
    if not singles:
        return joined(request.body, [])
    return answer_or_wait(request, lambda answer: _ask_all(broker, request, singles, answer))


def _ask_all(broker: Broker, request: Request, singles: list[Struct], answer: Callable[[Struct], None]) -> None:
    answers: list[Struct | None] = [None] * len(singles)
    left = len(singles)

    def came(number: int, response: Struct) -> None:
        nonlocal left
        answers[number] = response
        left -= 1
        if not left:
            answer(joined(request.body, answers))

    for number, single in enumerate(singles):
        share_coordinators_of(broker).submit(call_of(request, single), partial(came, number))


def failed(request: Request, code: ErrorCode, message: str | None) -> Struct:
    """The answer when everything failed alike."""
    return refuse_all(request.body, code, message)
