"""Rules of the APIs about topics. Metadata asks by itself (`Request.access`): it keeps parts of answers as bytes."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import cast

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.server.access import Access
from appliance.server.authorization.rules import CLUSTER, DENIED, TEXTS, TOPIC, amend, needs_for_each
from appliance.server.context import Broker
from appliance.server.handlers.topics import DELETE_BY_STATE_SINCE, create_failed
from appliance.server.requests import Request
from appliance.wire.messages.create_topics import CreateTopicsResponse
from appliance.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from appliance.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from appliance.wire.schema import Struct

_CREATE_TELLS_CONFIGS_SINCE = 5
_CREATE_EACH = needs_for_each(
    "topics", "topics", create_failed, Operation.CREATE, TOPIC, lambda topic: str(topic.name), text=True, once=True
)


def create(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """CREATE of the cluster, or of each topic. What a topic came out as is for those who may see configs."""
    if request.api_version >= _CREATE_TELLS_CONFIGS_SINCE:
        amend(request, lambda response: _hide_configs(access, response))
    if access.could(Operation.CREATE, CLUSTER):
        access.may(Operation.CREATE, CLUSTER)
        return None
    return _CREATE_EACH(broker, request, access)


def _hide_configs(access: Access, response: CreateTopicsResponse) -> None:
    for topic in response.topics:
        if topic.error_code or access.could(Operation.DESCRIBE_CONFIGS, TOPIC, topic.name):
            continue
        topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic.num_partitions = topic.replication_factor = -1
        topic.configs = []


def delete(broker: Broker, request: Request, access: Access) -> Struct | None:
    """DELETE of the cluster, or of each topic. An id that may not even be described keeps its name to itself."""
    body = cast(DeleteTopicsRequest, request.body)
    if access.could(Operation.DELETE, CLUSTER):
        access.may(Operation.DELETE, CLUSTER)
        return None
    refused: list[DeletableTopicResult] = []
    if request.api_version < DELETE_BY_STATE_SINCE:
        names: list[str] = []
        times = Counter[str | None](body.topic_names)
        for name in body.topic_names:
            if times[name] > 1 or _may_be_deleted(broker, access, name):
                names.append(name)
            else:
                refused.append(_not_deleted(name))
        body.topic_names = names
        is_any_left = bool(names)
    else:
        topics: list[DeleteTopicState] = []
        times = Counter(_name_of(broker, topic) for topic in body.topics)
        for topic in body.topics:
            named = _name_of(broker, topic)
            is_wrong = named is None or times[named] > 1 or (topic.name is not None and topic.topic_id != ZERO_UUID)
            if is_wrong or _may_be_deleted(broker, access, named or ""):
                topics.append(topic)
            elif topic.name is not None:
                refused.append(_not_deleted(topic.name))
            else:
                shown = named if access.could(Operation.DESCRIBE, TOPIC, named or "") else None
                refused.append(_not_deleted(shown, topic.topic_id))
        body.topics = topics
        is_any_left = bool(topics)
    if not refused:
        return None
    if not is_any_left:
        return DeleteTopicsResponse(responses=refused)
    amend(request, lambda response: response.responses.extend(refused))
    return None


def _name_of(broker: Broker, topic: DeleteTopicState) -> str | None:
    """The name of what is to be deleted; None: the handler knows what is wrong."""
    if topic.name is not None:
        return topic.name
    state = broker.image.topics_by_id.get(topic.topic_id)
    return None if state is None else state.name


def _may_be_deleted(broker: Broker, access: Access, name: str) -> bool:
    """Also where there is no such topic, if that is no secret: the handler says so."""
    if name not in broker.image.topics and access.could(Operation.DESCRIBE, TOPIC, name):
        return True
    return access.may(Operation.DELETE, TOPIC, name)


def _not_deleted(name: str | None, topic_id: uuid.UUID = ZERO_UUID) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=DENIED[TOPIC], error_message=TEXTS[TOPIC])


def describe_partitions(broker: Broker, request: Request, access: Access) -> Struct | None:
    """Topics that may not be described are not there for those who ask for all of them."""
    body = cast(DescribeTopicPartitionsRequest, request.body)
    names = sorted({topic.name for topic in body.topics} or set(broker.image.topics))
    is_negative = body.cursor is not None and body.cursor.partition_index < 0
    if body.cursor is not None and body.topics and (is_negative or body.cursor.topic_name not in names):
        # The handler has words for it.
        return None
    if body.cursor is not None:
        names = [name for name in names if name >= body.cursor.topic_name]
    seen = [name for name in names if access.could(Operation.DESCRIBE, TOPIC, name)]
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    if body.topics:
        for name in names:
            if not access.may(Operation.DESCRIBE, TOPIC, name):
                refused.append(DescribeTopicPartitionsResponseTopic(error_code=DENIED[TOPIC], name=name))
    if not seen:
        return DescribeTopicPartitionsResponse(topics=refused)
    body.topics = [TopicRequest(name=name) for name in seen]
    if body.cursor is not None and body.cursor.topic_name not in seen and body.cursor.partition_index >= 0:
        body.cursor = None

    def tell(response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics if not is_negative else ():
            topic.topic_authorized_operations = access.operations(TOPIC, topic.name or "")
        response.topics.extend(refused)

    amend(request, tell)
    return None
