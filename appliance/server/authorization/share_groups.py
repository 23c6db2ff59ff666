"""Rules of the APIs about share groups (KIP-932). ShareFetch and ShareAcknowledge ask for each topic by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from appliance.authorizer.bindings import Operation
from appliance.server.access import Access
from appliance.server.authorization import groups
from appliance.server.authorization.rules import (
    DENIED,
    GROUP,
    TEXTS,
    TOPIC,
    Rule,
    amend,
    needs,
    needs_for_each,
)
from appliance.server.context import Broker
from appliance.server.handlers import share_groups
from appliance.server.requests import Request
from appliance.wire.api import ApiKey
from appliance.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from appliance.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from appliance.wire.messages.share_group_describe import ShareGroupDescribeResponse
from appliance.wire.schema import Struct

_EACH_GROUP = needs_for_each(
    "group_ids", "groups", share_groups.describe_failed, Operation.DESCRIBE, GROUP, str, text=True
)
_EACH_GROUP_OF_OFFSETS = needs_for_each(
    "groups",
    "groups",
    share_groups.describe_offsets_failed,
    Operation.DESCRIBE,
    GROUP,
    lambda row: str(row.group_id),
    text=True,
)


def describe(broker: Broker, request: Request, access: Access) -> Any:
    """DESCRIBE of each group; one that has to do with a topic that may not be described is not told about."""
    groups.tell_operations(request, access)
    amend(request, lambda response: _hide_members(access, response))
    return _EACH_GROUP(broker, request, access)


def _hide_members(access: Access, response: ShareGroupDescribeResponse) -> None:
    for group in response.groups:
        names = {name for member in group.members for name in member.subscribed_topic_names}
        for member in group.members:
            names.update(topic.topic_name for topic in member.assignment.topic_partitions)
        if not all(access.could(Operation.DESCRIBE, TOPIC, name) for name in sorted(names)):
            group.error_code, group.error_message = DENIED[TOPIC], groups.NOT_TOLD
            group.members = []


def describe_offsets(broker: Broker, request: Request, access: Access) -> Any:
    """DESCRIBE of each group and each topic; topics that may not be described are not there for who asks for all."""
    body = cast(DescribeShareGroupOffsetsRequest, request.body)
    for group in body.groups:
        group_id = group.group_id
        if group.topics is None:
            amend(request, _hiding(access, group_id))
            continue
        denied = [each for each in group.topics if not access.may(Operation.DESCRIBE, TOPIC, each.topic_name)]
        if denied:
            group.topics = [each for each in group.topics if all(each is not one for one in denied)]
            amend(request, _adding(group_id, [_not_described(each) for each in denied]))
    return _EACH_GROUP_OF_OFFSETS(broker, request, access)


def _not_described(topic: Any) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each, error_code=DENIED[TOPIC], error_message=TEXTS[TOPIC]
            )
            for each in topic.partitions
        ],
    )


def _hiding(access: Access, group_id: str) -> Callable[[DescribeShareGroupOffsetsResponse], None]:
    def hide(response: DescribeShareGroupOffsetsResponse) -> None:
        for row in response.groups:
            if row.group_id == group_id:
                row.topics = [each for each in row.topics if access.could(Operation.DESCRIBE, TOPIC, each.topic_name)]

    return hide


def _adding(
    group_id: str, topics: list[DescribeShareGroupOffsetsResponseTopic]
) -> Callable[[DescribeShareGroupOffsetsResponse], None]:
    def add(response: DescribeShareGroupOffsetsResponse) -> None:
        for row in response.groups:
            if row.group_id == group_id and not row.error_code:
                row.topics.extend(topics)

    return add


def alter_offsets(broker: Broker, request: Request, access: Access) -> Any:
    """READ of the group and of each topic."""
    body = cast(AlterShareGroupOffsetsRequest, request.body)
    if not access.may(Operation.READ, GROUP, body.group_id):
        return DENIED[GROUP]
    denied = [each for each in body.topics if not access.may(Operation.READ, TOPIC, each.topic_name)]
    rows = [
        AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=each.partition_index, error_code=DENIED[TOPIC], error_message=TEXTS[TOPIC]
                )
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    return _without(request, body, denied, rows, AlterShareGroupOffsetsResponse)


def delete_offsets(broker: Broker, request: Request, access: Access) -> Any:
    """DELETE of the group, READ of each topic."""
    body = cast(DeleteShareGroupOffsetsRequest, request.body)
    if not access.may(Operation.DELETE, GROUP, body.group_id):
        return DENIED[GROUP]
    denied = [each for each in body.topics if not access.may(Operation.READ, TOPIC, each.topic_name)]
    rows = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=DENIED[TOPIC], error_message=TEXTS[TOPIC]
        )
        for topic in denied
    ]
    return _without(request, body, denied, rows, DeleteShareGroupOffsetsResponse)


def _without(request: Request, body: Any, denied: list[Any], rows: list[Any], form: type[Any]) -> Struct | None:
    """Take the denied topics out of the request and tell of them in its answer."""
    if not denied:
        return None
    body.topics = [each for each in body.topics if all(each is not one for one in denied)]
    if not body.topics:
        answer: Struct = form(responses=rows)
        return answer

    def add(response: Any) -> None:
        if not response.error_code:
            response.responses.extend(rows)

    amend(request, add)
    return None


SHARE_RULES: dict[int, Rule] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: groups.heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: describe,
    ApiKey.SHARE_FETCH: needs(Operation.READ, GROUP, "group_id"),
    ApiKey.SHARE_ACKNOWLEDGE: needs(Operation.READ, GROUP, "group_id"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: describe_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: alter_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: delete_offsets,
}
"""The state of share groups is for brokers alone."""
