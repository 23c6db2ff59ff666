"""StreamsGroupHeartbeat 0 and StreamsGroupDescribe 0: groups of Kafka Streams' own protocol (KIP-1071).

The group's coordinator decides. What the topology needs and is not there is made here, with the rights of who asked.
Without `streams` in `group.coordinator.rebalance.protocols`, or with streams.version 0, both are UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from appliance.authorizer.bindings import Operation, ResourceType
from appliance.base.errors import ErrorCode
from appliance.controller.features import STREAMS_VERSION, level_of
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.group_calls import answer_or_wait, call_of, coordinators_of
from appliance.server.operations import GROUP_OPERATIONS
from appliance.server.requests import Pending, Request
from appliance.streams_groups.topology import MISSING_INTERNAL_TOPICS, InternalTopic
from appliance.wire.api import ApiKey
from appliance.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from appliance.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from appliance.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from appliance.wire.schema import Struct

PROTOCOL = "streams"
_log = logging.getLogger(__name__)


class StreamsView(Protocol):
    """The groups of one partition, to be looked at."""

    def describe_streams_group(self, group_id: str) -> DescribedGroup: ...

    def missing_internal_topics(self, group_id: str) -> tuple[InternalTopic, ...]: ...


def streams_group_handlers() -> dict[int, HandlerEntry]:
    """By API key."""
    return {
        ApiKey.STREAMS_GROUP_HEARTBEAT: HandlerEntry(heartbeat),
        ApiKey.STREAMS_GROUP_DESCRIBE: HandlerEntry(describe, error=describe_failed),
    }


def heartbeat(broker: Broker, request: Request) -> Struct | Pending:
    if not _is_served(broker):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    group_id = cast(StreamsGroupHeartbeatRequest, request.body).group_id
    call = call_of(request)

    def start(answer: Callable[[Struct], None]) -> None:
        coordinators_of(broker).submit(group_id, call, partial(_with_topics, broker, request, group_id, answer))

    return answer_or_wait(request, start)


def _with_topics(
    broker: Broker, request: Request, group_id: str, answer: Callable[[Struct], None], response: Struct
) -> None:
    """Have the missing topics made before the member hears that they are missing."""
    told = cast(StreamsGroupHeartbeatResponse, response)
    if any(status.status_code == MISSING_INTERNAL_TOPICS for status in told.status or ()):
        view = coordinators_of(broker).view(group_id)
        if not isinstance(view, ErrorCode):
            _create(broker, request, told, cast(StreamsView, view).missing_internal_topics(group_id))
    answer(response)


def _create(
    broker: Broker, request: Request, response: StreamsGroupHeartbeatResponse, topics: tuple[InternalTopic, ...]
) -> None:
    access = request.access
    if access is not None and not access.could(Operation.CREATE, ResourceType.CLUSTER):
        denied = [each.name for each in topics if not access.may(Operation.CREATE, ResourceType.TOPIC, each.name)]
        if denied:
            for status in response.status or ():
                if status.status_code == MISSING_INTERNAL_TOPICS:
                    status.status_detail += f"; Unauthorized to CREATE on topics {', '.join(denied)}."
            return
    if topics:
        broker.controller.call(CreateTopicsRequest(topics=[_creatable(each) for each in topics]), _created)


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )


def _created(response: object) -> None:
    """What could not be made is asked for again with the next heartbeat."""
    for topic in response.topics if isinstance(response, CreateTopicsResponse) else ():
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            _log.warning(
                "internal topic %s of a streams group could not be created: %s", topic.name, topic.error_message
            )


def describe(broker: Broker, request: Request) -> Struct:
    if not _is_served(broker):
        return describe_failed(request, ErrorCode.UNSUPPORTED_VERSION, None)
    body = cast(StreamsGroupDescribeRequest, request.body)
    groups = [_described(broker, group_id) for group_id in body.group_ids]
    for group in groups:
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return StreamsGroupDescribeResponse(groups=groups)


def _described(broker: Broker, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    view = coordinators_of(broker).view(group_id)
    if isinstance(view, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=view)
    return cast(StreamsView, view).describe_streams_group(group_id)


def describe_failed(request: Request, code: ErrorCode, message: str | None) -> StreamsGroupDescribeResponse:
    """The answer when everything failed alike."""
    body = cast(StreamsGroupDescribeRequest, request.body)
    return StreamsGroupDescribeResponse(
        groups=[DescribedGroup(group_id=each, error_code=code, error_message=message) for each in body.group_ids]
    )


def _is_served(broker: Broker) -> bool:
    named = PROTOCOL in broker.config.get("group.coordinator.rebalance.protocols")
    return named and level_of(broker.image, STREAMS_VERSION) > 0
