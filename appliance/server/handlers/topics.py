"""CreateTopics 0-7, DeleteTopics 0-6, CreatePartitions 0-3: the controller decides, any broker takes the request.

The answer of a creation waits until this broker has opened what it leads of the new topics; that of a deletion until
this broker has let go of them. v6 deletion by topic id (KIP-516) · v4 defaults for partitions and replicas (KIP-464)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.server.topic_waits import when_topics_are_gone, when_topics_are_there
from appliance.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
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


def create(broker: Broker, request: Request) -> Pending:
    body = cast(CreateTopicsRequest, request.body)

    refused: list[CreatableTopicResult] = []
    mutations = None if body.validate_only else broker.quotas.mutations_of(request)
    if mutations is not None:
        strictly = request.api_version >= CREATE_STRICTLY_SINCE
        wanted, body.topics = body.topics, []
        for topic in wanted:
            if mutations.allows(_partitions_of(broker, topic), strictly=strictly):
                body.topics.append(topic)
            else:
                row = CreatableTopicResult(name=topic.name, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
                row.error_message = TOO_MANY_CHANGES
                refused.append(row)
        mutations.tell(request)

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

    refused = _over_the_quota(broker, request, body)

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


def _over_the_quota(broker: Broker, request: Request, body: DeleteTopicsRequest) -> list[DeletableTopicResult]:
    """Take topics out of the request that the client's quota does not let through now."""
    mutations = broker.quotas.mutations_of(request)
    if mutations is None:
        return []
    strictly = request.api_version >= DELETE_STRICTLY_SINCE
    refused: list[DeletableTopicResult] = []

    def allows(name: str | None, topic_id: uuid.UUID) -> bool:
        state = broker.image.topics_by_id.get(topic_id) if name is None else broker.image.topics.get(name)
        if mutations.allows(0 if state is None else len(state.partitions), strictly=strictly):
            return True
        row = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        row.error_message = TOO_MANY_CHANGES
        refused.append(row)
        return False

    body.topics = [topic for topic in body.topics if allows(topic.name, topic.topic_id)]
    body.topic_names = [name for name in body.topic_names if allows(name, ZERO_UUID)]
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
    mutations = None if body.validate_only else broker.quotas.mutations_of(request)
    if mutations is not None:
        strictly = request.api_version >= CREATE_PARTITIONS_STRICTLY_SINCE
        wanted, body.topics = body.topics, []
        for topic in wanted:
            state = broker.image.topics.get(topic.name)
            added = max(0, topic.count - len(state.partitions)) if state is not None else 0
            if mutations.allows(added, strictly=strictly):
                body.topics.append(topic)
            else:
                row = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
                row.error_message = TOO_MANY_CHANGES
                refused.append(row)
        mutations.tell(request)

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
