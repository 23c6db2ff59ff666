"""Metadata, versions 0 to 13: brokers, topics, partitions and their leaders.

- Version 0: no topics named means all; from version 1 on, null means all and an empty list none.
- By topic id from version 12 on (versions 10 and 11 carried ids that a server must not look at).
- From v8 on a client may ask what it may do; from v11 on DescribeCluster tells that of the cluster (KIP-700).
- A topic that does not exist is created where `auto.create.topics.enable` and the request allow it; the answer waits
  until this broker knows it.
"""

from __future__ import annotations

import re
from typing import cast

from appliance.authorizer.bindings import Operation, ResourceType
from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.controller.image import TopicState
from appliance.server.access import Access
from appliance.server.context import Broker
from appliance.server.metadata_view import MetadataView
from appliance.server.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from appliance.server.requests import Pending, Request
from appliance.server.topic_waits import when_topics_are_there
from appliance.wire.codec import encode_response
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from appliance.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from appliance.wire.schema import Struct

ALL_WHEN_EMPTY_UNTIL = 0
TOPIC_IDS_SINCE = 12
FLEXIBLE_SINCE = 9
AUTO_CREATE_MAX = 100
"""Topics that one request may create."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_topic_name(name: str) -> bool:
    """Kafka's rule for names of topics."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


class MetadataHandler:
    """Keeps parts of answers between requests."""

    def __init__(self) -> None:
        self.view = MetadataView()

    def handle(self, broker: Broker, request: Request) -> bytes | Pending:
        body = cast(MetadataRequest, request.body)
        image = broker.image
        if body.topics is None or (not body.topics and request.api_version <= ALL_WHEN_EMPTY_UNTIL):
            everything = [
                self._known(broker, request, state)
                for state in image.topics.values()
                if request.access is None or request.access.could(Operation.DESCRIBE, ResourceType.TOPIC, state.name)
            ]
            return self._response(broker, request, everything)
        if request.api_version < TOPIC_IDS_SINCE and any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in body.topics
        ):
            response = failed(request, ErrorCode.INVALID_REQUEST, None)
            return encode_response(response, request.api_version, request.correlation_id)
        missing = self._to_create(broker, request, body)
        if not missing:
            return self._named(broker, request, body.topics)
        pending = request.pending()
        names, topics = missing, body.topics

        def created(response: Struct | Exception) -> None:
            if isinstance(response, CreateTopicsResponse):
                failed = [
                    result.name
                    for result in response.topics
                    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                ]
                names[:] = [name for name in names if name not in failed]
                when_topics_are_there(broker, names, answer)
            else:
                answer()

        def answer() -> None:
            pending.answer_items([self._named(broker, request, topics)])

        broker.controller.call(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names]
            ),
            created,
        )
        return pending

    @staticmethod
    def _to_create(broker: Broker, request: Request, body: MetadataRequest) -> list[str]:
        if not _would_be_created(broker, request):
            return []
        names = [
            topic.name
            for topic in body.topics or []
            if topic.name is not None
            and topic.name not in broker.image.topics
            and is_legal_topic_name(topic.name)
            and _may_be_created(request, topic.name)
        ]
        return list(dict.fromkeys(names))[:AUTO_CREATE_MAX]

    def _named(self, broker: Broker, request: Request, topics: list[MetadataRequestTopic]) -> bytes:
        return self._response(broker, request, [self._part(broker, request, topic) for topic in topics])

    def _response(self, broker: Broker, request: Request, parts: list[bytes]) -> bytes:
        listener, version = request.connection.listener.name, request.api_version
        frame = self.view.response(broker.image, parts, version, request.correlation_id, listener)
        if cast(MetadataRequest, request.body).include_cluster_authorized_operations:
            access = request.access
            operations = CLUSTER_OPERATIONS if access is None else cluster_operations(access)
            return _with_operations(frame, operations, version)
        return frame

    def _known(self, broker: Broker, request: Request, state: TopicState) -> bytes:
        part = self.view.topic(broker.image, state, request.api_version)
        if cast(MetadataRequest, request.body).include_topic_authorized_operations:
            operations, access = TOPIC_OPERATIONS, request.access
            if access is not None:
                operations = access.operations(ResourceType.TOPIC, state.name)
            return _with_operations(part, operations, request.api_version)
        return part

    def _part(self, broker: Broker, request: Request, topic: MetadataRequestTopic) -> bytes:
        image, unknown, version = broker.image, self.view.unknown, request.api_version
        by_id = version >= TOPIC_IDS_SINCE
        if topic.name is None or (by_id and topic.topic_id != ZERO_UUID):
            if not by_id:
                return unknown(version, ErrorCode.INVALID_REQUEST, "", topic.topic_id)
            state = image.topics_by_id.get(topic.topic_id)
            if state is None:
                return unknown(version, ErrorCode.UNKNOWN_TOPIC_ID, None, topic.topic_id)
            if not _is_seen(request, state.name):
                return unknown(version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic.topic_id)
            return self._known(broker, request, state)
        if not _is_seen(request, topic.name):
            return unknown(version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.name)
        state = image.topics.get(topic.name)
        if state is not None:
            return self._known(broker, request, state)
        if not is_legal_topic_name(topic.name):
            return unknown(version, ErrorCode.INVALID_TOPIC_EXCEPTION, topic.name)
        if _would_be_created(broker, request) and not _may_be_created(request, topic.name):
            return unknown(version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.name)
        return unknown(version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name)


def _is_seen(request: Request, name: str) -> bool:
    return request.access is None or request.access.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _would_be_created(broker: Broker, request: Request) -> bool:
    body = cast(MetadataRequest, request.body)
    return body.allow_auto_topic_creation and bool(broker.config.get("auto.create.topics.enable"))


def _may_be_created(request: Request, name: str) -> bool:
    """DESCRIBE of the topic, and CREATE of the cluster or of the topic."""
    access = request.access
    if access is None:
        return True
    if not access.could(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return False
    if access.could(Operation.CREATE, ResourceType.CLUSTER):
        return True
    return access.may(Operation.CREATE, ResourceType.TOPIC, name)


def cluster_operations(access: Access) -> int:
    """What may be done to the cluster; nothing for who may not describe it."""
    if not access.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return access.operations(ResourceType.CLUSTER)


def _with_operations(encoded: bytes, operations: int, version: int) -> bytes:
    """A topic's part, or an answer up to version 10: operations stand last, before the tags of flexible versions."""
    end = len(encoded) - (1 if version >= FLEXIBLE_SINCE else 0)
    return encoded[: end - 4] + operations.to_bytes(4, "big", signed=True) + encoded[end:]


def failed(request: Request, code: ErrorCode, message: str | None) -> MetadataResponse:
    """Every topic of the request with the same error."""
    body = cast(MetadataRequest, request.body)
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in body.topics or []
        ]
    )
