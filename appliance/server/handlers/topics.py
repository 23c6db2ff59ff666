"""CreateTopics 0-7, DeleteTopics 0-6, CreatePartitions 0-3: the controller decides, any broker takes the request.

The answer of a creation waits until this broker has opened what it leads of the new topics; that of a deletion until
this broker has let go of them. v6 deletion by topic id (KIP-516) · v4 defaults for partitions and replicas (KIP-464)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.server.topic_waits import when_topics_are_gone, when_topics_are_there
from appliance.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from appliance.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from appliance.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from appliance.wire.schema import Struct

DELETE_BY_STATE_SINCE = 6
CREATE_STRICTLY_SINCE, DELETE_STRICTLY_SINCE, CREATE_PARTITIONS_STRICTLY_SINCE = 6, 5, 3
"""Clients of these versions know THROTTLING_QUOTA_EXCEEDED (KIP-599); older ones get their change, and wait."""
TOO_MANY_CHANGES = "the quota for changes of topics and partitions is used up for now"

T = TypeVar("T")


def create(broker: Broker, request: Request) -> Pending:
    body = cast(CreateTopicsRequest, request.body)
    refused: list[CreatableTopicResult] = []
    if not body.validate_only:
        strictly = request.api_version >= CREATE_STRICTLY_SINCE
        refused = [
            CreatableTopicResult(
                name=topic.name, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, error_message=TOO_MANY_CHANGES
            )
            for topic in _over_the_quota(broker, request, body.topics, partial(_partitions_of, broker), strictly)
        ]

    def then(response: Struct, answer: Callable[[], None]) -> None:
        topics = cast(CreateTopicsResponse, response).topics
        created = [] if body.validate_only else [topic.name for topic in topics if not topic.error_code]
        topics += refused
        when_topics_are_there(broker, created, answer)

    return forward(broker, request, create_failed, then)


def create_failed(request: Request, code: ErrorCode, message: str | None) -> CreateTopicsResponse:
    body = cast(CreateTopicsRequest, request.body)
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in body.topics]
    )


def delete(broker: Broker, request: Request) -> Pending | DeleteTopicsResponse:
    body = cast(DeleteTopicsRequest, request.body)
    if not broker.config.get("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
        return delete_failed(request, code, None)

    refused = _too_many_deletions(broker, request, body)

    def then(response: Struct, answer: Callable[[], None]) -> None:
        results = cast(DeleteTopicsResponse, response).responses
        results += refused
        when_topics_are_gone(
            broker, [result.name for result in results if not result.error_code and result.name], answer
        )

    return forward(broker, request, delete_failed, then)


def _partitions_of(broker: Broker, topic: CreatableTopic) -> int:
    """How many partitions a new topic is to have, as far as its row says."""
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else int(broker.config.get("num.partitions"))


def _too_many_deletions(broker: Broker, request: Request, body: DeleteTopicsRequest) -> list[DeletableTopicResult]:
    image, strictly = broker.image, request.api_version >= DELETE_STRICTLY_SINCE

    def partitions_of(name: str | None, topic_id: uuid.UUID = ZERO_UUID) -> int:
        state = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
        return 0 if state is None else len(state.partitions)

    # One of the lists is empty, by the version.
    topics = _over_the_quota(broker, request, body.topics, lambda row: partitions_of(row.name, row.topic_id), strictly)
    names = _over_the_quota(broker, request, body.topic_names, partitions_of, strictly)
    return [
        DeletableTopicResult(
            name=name,
            topic_id=topic_id,
            error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            error_message=TOO_MANY_CHANGES,
        )
        for name, topic_id in [*((row.name, row.topic_id) for row in topics), *((name, ZERO_UUID) for name in names)]
    ]


def _over_the_quota(
    broker: Broker, request: Request, wanted: list[T], partitions_of: Callable[[T], int], strictly: bool
) -> list[T]:
    """Take out of the request what the client's quota does not let through now, and return it."""
    mutations = broker.quotas.mutations_of(request) if wanted else None
    if mutations is None:
        return []
    allowed: list[T] = []
    refused: list[T] = []
    for each in wanted:
        (allowed if mutations.allows(partitions_of(each), strictly=strictly) else refused).append(each)
    wanted[:] = allowed
    mutations.tell(request)
    return refused


def delete_failed(request: Request, code: ErrorCode, message: str | None) -> DeleteTopicsResponse:
    body = cast(DeleteTopicsRequest, request.body)
    if request.api_version >= DELETE_BY_STATE_SINCE:
        wanted = [(topic.name, topic.topic_id) for topic in body.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
                for name, topic_id in wanted
            ]
        )
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name, error_code=code, error_message=message) for name in body.topic_names]
    )


def create_partitions(broker: Broker, request: Request) -> Pending:
    body = cast(CreatePartitionsRequest, request.body)
    refused: list[CreatePartitionsTopicResult] = []

    def added(topic: CreatePartitionsTopic) -> int:
        state = broker.image.topics.get(topic.name)
        return max(0, topic.count - len(state.partitions)) if state is not None else 0

    if not body.validate_only:
        strictly = request.api_version >= CREATE_PARTITIONS_STRICTLY_SINCE
        refused = [
            CreatePartitionsTopicResult(
                name=topic.name, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, error_message=TOO_MANY_CHANGES
            )
            for topic in _over_the_quota(broker, request, body.topics, added, strictly)
        ]

    def then(response: Struct, answer: Callable[[], None]) -> None:
        cast(CreatePartitionsResponse, response).results += refused
        answer()

    return forward(broker, request, create_partitions_failed, then)


def create_partitions_failed(request: Request, code: ErrorCode, message: str | None) -> CreatePartitionsResponse:
    body = cast(CreatePartitionsRequest, request.body)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in body.topics
        ]
    )
