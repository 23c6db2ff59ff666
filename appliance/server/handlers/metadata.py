"""Metadata, versions 0 to 13: brokers, topics, partitions and their leaders.

- Version 0: no topics named means all; from version 1 on, null means all and an empty list none.
- By topic id from version 12 on (versions 10 and 11 carried ids that a server must not look at).
- A topic that does not exist is created where `auto.create.topics.enable` and the request allow it; the answer waits
  until this broker knows it.
"""

from __future__ import annotations

import re
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.server.context import Broker
from appliance.server.metadata_view import MetadataView
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
            version = request.api_version
            everything = [self.view.topic(image, state, version) for state in image.topics.values()]
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
        if not body.allow_auto_topic_creation or not broker.config.get("auto.create.topics.enable"):
            return []
        names = [
            topic.name
            for topic in body.topics or []
            if topic.name is not None and topic.name not in broker.image.topics and is_legal_topic_name(topic.name)
        ]
        return list(dict.fromkeys(names))[:AUTO_CREATE_MAX]

    def _named(self, broker: Broker, request: Request, topics: list[MetadataRequestTopic]) -> bytes:
        version = request.api_version
        parts = [self._part(broker, topic, version) for topic in topics]
        return self._response(broker, request, parts)

    def _response(self, broker: Broker, request: Request, parts: list[bytes]) -> bytes:
        listener = request.connection.listener.name
        return self.view.response(broker.image, parts, request.api_version, request.correlation_id, listener)

    def _part(self, broker: Broker, topic: MetadataRequestTopic, version: int) -> bytes:
        image, unknown = broker.image, self.view.unknown
        by_id = version >= TOPIC_IDS_SINCE
        if topic.name is None or (by_id and topic.topic_id != ZERO_UUID):
            if not by_id:
                return unknown(version, ErrorCode.INVALID_REQUEST, "", topic.topic_id)
            state = image.topics_by_id.get(topic.topic_id)
            if state is None:
                return unknown(version, ErrorCode.UNKNOWN_TOPIC_ID, None, topic.topic_id)
            return self.view.topic(image, state, version)
        state = image.topics.get(topic.name)
        if state is not None:
            return self.view.topic(image, state, version)
        if not is_legal_topic_name(topic.name):
            return unknown(version, ErrorCode.INVALID_TOPIC_EXCEPTION, topic.name)
        return unknown(version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name)


def failed(request: Request, code: ErrorCode, message: str | None) -> MetadataResponse:
    """Every topic of the request with the same error."""
    body = cast(MetadataRequest, request.body)
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in body.topics or []
        ]
    )
