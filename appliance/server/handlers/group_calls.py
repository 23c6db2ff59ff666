"""From a request to the coordinator of its group, and back: shared by the handlers of groups and offsets."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from appliance.authorizer.bindings import Operation, ResourceType
from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.server.context import Broker
from appliance.server.requests import Pending, Request
from appliance.wire.messages import consumer_group_describe
from appliance.wire.messages.describe_groups import DescribedGroup
from appliance.wire.messages.list_groups import ListedGroup
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from appliance.wire.schema import Struct


class GroupView(Protocol):
    """The groups of one partition, to be looked at."""

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup: ...

    def describe(self, group_id: str) -> DescribedGroup: ...

    def describe_consumer_group(self, group_id: str) -> consumer_group_describe.DescribedGroup: ...

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]: ...


class Coordinators(Protocol):
    """`broker.groups`: the coordinators of the partitions of `__consumer_offsets` that this broker leads."""

    def submit(
        self, group_id: str, call: Call, answer: Callable[[Struct], None], *, after_writes: bool = False
    ) -> None:
        """Let the group's coordinator decide; `answer` is called once, on the loop, perhaps at once.

        Args:
            after_writes: decide when nothing that was written about the group is still under way.
        """

    def submit_to(self, partition: int, call: Call, answer: Callable[[Struct], None]) -> None:
        """The same for a call that concerns a whole partition of `__consumer_offsets`."""

    def view(self, group_id: str) -> GroupView | ErrorCode:
        """The groups of the partition that this group belongs to, or why they cannot be looked at here."""

    def views(self) -> list[GroupView] | ErrorCode:
        """All groups that this broker coordinates."""

    def create_topic(self, done: Callable[[], None]) -> None:
        """Have `__consumer_offsets` created; `done` is called when it is there, or could not be created."""


def coordinators_of(broker: Broker) -> Coordinators:
    """The broker's coordinators of groups."""
    return cast(Coordinators, broker.groups)


def call_of(request: Request, body: Struct | None = None) -> Call:
    """The request (or a part of it) on its way to a coordinator."""
    return Call(
        request.body if body is None else body,
        request.api_version,
        request.client_id or "",
        f"/{request.connection.host}",
        None if request.access is None else partial(request.access.could, Operation.DESCRIBE, ResourceType.TOPIC),
    )


def answer_or_wait(request: Request, start: Callable[[Callable[[Struct], None]], None]) -> Struct | Pending:
    """Call `start` with a function that takes the answer, now or later."""
    now: list[Struct] = []
    later: list[Pending] = []

    def answer(response: Struct) -> None:
        if later:
            later[0].answer(response)
        else:
            now.append(response)

    start(answer)
    if now:
        return now[0]
    later.append(request.pending())
    return later[0]


def of_group(broker: Broker, request: Request) -> Struct | Pending:
    """Serve a request that names one group in `group_id` and is answered by its coordinator alone."""
    body = request.body
    group_id: str = body.group_id  # type: ignore[attr-defined]
    call = call_of(request)
    return answer_or_wait(request, lambda answer: coordinators_of(broker).submit(group_id, call, answer))


def topic_name(broker: Broker, topic_id: uuid.UUID) -> str | None:
    """The name of the topic with this id."""
    state = broker.image.topics_by_id.get(topic_id)
    return None if state is None else state.name
