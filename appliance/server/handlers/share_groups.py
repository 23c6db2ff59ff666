"""ShareGroupHeartbeat 1, ShareGroupDescribe 1, and the offsets of share groups: Describe 0-1, Alter 0, Delete 0
(KIP-932).

The group's coordinator decides. Start offsets lie with the share coordinators; DescribeShareGroupOffsets asks those,
and the leaders of the partitions for what the lag is counted from (KIP-1226).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.group_calls import answer_or_wait, coordinators_of, of_group
from appliance.server.operations import GROUP_OPERATIONS
from appliance.server.requests import Pending, Request
from appliance.share_groups.stored import KnownState
from appliance.wire.api import ApiKey
from appliance.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from appliance.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from appliance.wire.schema import Struct

UNKNOWN_TEXT = "This server does not host this topic-partition."

Place = tuple[str, int]
"""Topic and partition."""


class ShareView(Protocol):
    """The groups of one partition of `__consumer_offsets`, to be looked at."""

    def describe_share_group(self, group_id: str) -> DescribedGroup: ...

    def known_state(self, group_id: str) -> KnownState | None: ...


class ShareOffsets(Protocol):
    """`broker.shares.offsets`: what other brokers know of a group's offsets."""

    def summaries(
        self,
        group_id: str,
        places: Sequence[tuple[uuid.UUID, int]],
        done: Callable[[Mapping[tuple[uuid.UUID, int], Any]], None],
    ) -> None:
        """What the share coordinators say of each partition."""

    def latest(self, places: Sequence[Place], done: Callable[[Mapping[Place, int]], None]) -> None:
        """The ends of partitions, of those that could be had."""


def share_group_handlers() -> dict[int, HandlerEntry]:
    """By API key."""
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: HandlerEntry(of_group),
        ApiKey.SHARE_GROUP_DESCRIBE: HandlerEntry(describe, error=describe_failed),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: HandlerEntry(describe_offsets, error=describe_offsets_failed),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: HandlerEntry(of_group),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: HandlerEntry(of_group),
    }


def _view(broker: Broker, group_id: str) -> ShareView | ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    view = coordinators_of(broker).view(group_id)
    return view if isinstance(view, ErrorCode) else cast(ShareView, view)


def describe(broker: Broker, request: Request) -> Struct:
    body = cast(ShareGroupDescribeRequest, request.body)
    groups: list[DescribedGroup] = []
    for group_id in body.group_ids:
        view = _view(broker, group_id)
        if isinstance(view, ErrorCode):
            groups.append(DescribedGroup(group_id=group_id, error_code=view))
            continue
        group = view.describe_share_group(group_id)
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
        groups.append(group)
    return ShareGroupDescribeResponse(groups=groups)


def describe_failed(request: Request, code: ErrorCode, message: str | None) -> ShareGroupDescribeResponse:
    """The answer when everything failed alike."""
    body = cast(ShareGroupDescribeRequest, request.body)
    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(group_id=each, error_code=code, error_message=message) for each in body.group_ids]
    )


# Offsets


def describe_offsets(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(DescribeShareGroupOffsetsRequest, request.body)
    rows = [_Row(broker, each) for each in body.groups]
    return answer_or_wait(request, lambda answer: _describe_all(broker, rows, answer))


class _Row:
    """One group of the request."""

    def __init__(self, broker: Broker, wanted: DescribeShareGroupOffsetsRequestGroup) -> None:
        self.answer = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
        self.places: list[tuple[uuid.UUID, int, DescribeShareGroupOffsetsResponsePartition]] = []
        """Those that share coordinators have to be asked for."""
        self.names: dict[uuid.UUID, str] = {}
        self.completed: list[tuple[Place, DescribeShareGroupOffsetsResponsePartition, int]] = []
        """Those whose lag can be counted, with the records behind the start that are done with."""
        view = _view(broker, wanted.group_id)
        if isinstance(view, ErrorCode):
            self.answer.error_code = view
        elif wanted.topics is None:
            known = view.known_state(wanted.group_id)
            for topic_id, (name, partitions) in known.initialized.items() if known is not None else ():
                self._add(name, topic_id, list(partitions))
        else:
            for topic in wanted.topics:
                state = broker.image.topics.get(topic.topic_name)
                if state is None:
                    # As in Kafka: nothing has been read of it.
                    for index in topic.partitions:
                        row = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=-1)
                        self._topic(topic.topic_name, uuid.UUID(int=0)).partitions.append(row)
                    continue
                there = [each for each in topic.partitions if 0 <= each < len(state.partitions)]
                self._add(topic.topic_name, state.topic_id, there)
                self._add_unknown(
                    topic.topic_name, state.topic_id, [each for each in topic.partitions if each not in there]
                )

    def _topic(self, name: str, topic_id: uuid.UUID) -> DescribeShareGroupOffsetsResponseTopic:
        for topic in self.answer.topics:
            if topic.topic_name == name:
                return topic
        topic = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
        self.answer.topics.append(topic)
        return topic

    def _add(self, name: str, topic_id: uuid.UUID, partitions: Sequence[int]) -> None:
        self.names[topic_id] = name
        for index in dict.fromkeys(partitions):
            row = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=-1)
            self._topic(name, topic_id).partitions.append(row)
            self.places.append((topic_id, index, row))

    def _add_unknown(self, name: str, topic_id: uuid.UUID, partitions: Sequence[int]) -> None:
        for index in partitions:
            row = DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=UNKNOWN_TEXT,
            )
            self._topic(name, topic_id).partitions.append(row)

    def take(self, summaries: Mapping[tuple[uuid.UUID, int], Any]) -> None:
        """What the share coordinators say."""
        for topic_id, index, row in self.places:
            summary = summaries[topic_id, index]
            if summary.error_code:
                row.error_code, row.error_message = summary.error_code, summary.error_message
                continue
            row.start_offset, row.leader_epoch = summary.start_offset, summary.leader_epoch
            if summary.start_offset >= 0 and summary.delivery_complete_count >= 0:
                self.completed.append(((self.names[topic_id], index), row, summary.delivery_complete_count))

    def count_lag(self, latest: Mapping[Place, int]) -> None:
        for place, row, completed in self.completed:
            end = latest.get(place)
            if end is not None:
                row.lag = max(0, end - row.start_offset - completed)


def _describe_all(broker: Broker, rows: list[_Row], answer: Callable[[Struct], None]) -> None:
    offsets = cast(ShareOffsets, cast(Any, broker).shares.offsets)
    left = len(rows)

    def told(row: _Row, summaries: Mapping[tuple[uuid.UUID, int], Any]) -> None:
        row.take(summaries)
        offsets.latest([place for place, _, _ in row.completed], lambda latest: counted(row, latest))

    def counted(row: _Row, latest: Mapping[Place, int]) -> None:
        nonlocal left
        row.count_lag(latest)
        left -= 1
        if not left:
            answer(DescribeShareGroupOffsetsResponse(groups=[each.answer for each in rows]))

    if not rows:
        answer(DescribeShareGroupOffsetsResponse())
    for each in rows:
        places = [(topic_id, index) for topic_id, index, _ in each.places]
        offsets.summaries(each.answer.group_id, places, partial(told, each))


def describe_offsets_failed(
    request: Request, code: ErrorCode, message: str | None
) -> DescribeShareGroupOffsetsResponse:
    """The answer when everything failed alike."""
    body = cast(DescribeShareGroupOffsetsRequest, request.body)
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id, error_code=code, error_message=message)
            for each in body.groups
        ]
    )
