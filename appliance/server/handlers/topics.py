"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3: the controller decides, any broker takes the request.

The answer of a creation waits until this broker has opened what it leads of the new topics; that of a deletion until
this broker has let go of them. v6 deletion by topic id (KIP-516) · v4 defaults for partitions and replicas (KIP-464)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.server.topic_waits import when_topics_are_gone, when_topics_are_there
from appliance.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from appliance.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from appliance.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from appliance.wire.schema import Struct

DELETE_BY_STATE_SINCE = 6


def create(broker: Broker, request: Request) -> Pending:
    body = cast(CreateTopicsRequest, request.body)

    def then(response: Struct, answer: Callable[[], None]) -> None:
        topics = cast(CreateTopicsResponse, response).topics
        created = [] if body.validate_only else [topic.name for topic in topics if not topic.error_code]
        when_topics_are_there(broker, created, answer)

    return forward(broker, request, create_failed, then)


def create_failed(request: Request, code: ErrorCode, message: str | None) -> CreateTopicsResponse:
    body = cast(CreateTopicsRequest, request.body)
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in body.topics]
    )


def delete(broker: Broker, request: Request) -> Pending | DeleteTopicsResponse:
    if not broker.config.get("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
        return delete_failed(request, code, None)

    def then(response: Struct, answer: Callable[[], None]) -> None:
        results = cast(DeleteTopicsResponse, response).responses
        when_topics_are_gone(
            broker, [result.name for result in results if not result.error_code and result.name], answer
        )

    return forward(broker, request, delete_failed, then)


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
    return forward(broker, request, create_partitions_failed)


def create_partitions_failed(request: Request, code: ErrorCode, message: str | None) -> CreatePartitionsResponse:
    body = cast(CreatePartitionsRequest, request.body)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in body.topics
        ]
    )
