"""Rules of the APIs about groups and their offsets."""

from __future__ import annotations

from typing import Any, cast

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode
from appliance.groups.refusals import PROTOCOL_MAY_BE_NULL_SINCE
from appliance.server.access import Access
from appliance.server.authorization.rules import CLUSTER, DENIED, GROUP, TOPIC, TRANSACTIONAL_ID, amend, refuse_rows
from appliance.server.context import Broker
from appliance.server.handlers import find_coordinator, offsets
from appliance.server.handlers.group_calls import topic_name
from appliance.server.handlers.transactions import commit_offsets_failed
from appliance.server.operations import NOT_ASKED
from appliance.server.requests import Request
from appliance.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from appliance.wire.messages.list_groups import ListGroupsResponse
from appliance.wire.messages.offset_commit import OffsetCommitRequest
from appliance.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from appliance.wire.messages.streams_group_describe import StreamsGroupDescribeResponse
from appliance.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from appliance.wire.messages.sync_group import SyncGroupRequest
from appliance.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from appliance.wire.schema import Struct

PROTOCOL_NAMED_SINCE = 5
"""SyncGroup."""
NOT_TOLD = "The group has described topic(s) that the client is not authorized to describe."


def find(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """DESCRIBE of the group or transactional id that is looked for; what is neither is for brokers."""
    body = cast(FindCoordinatorRequest, request.body)
    kinds = {find_coordinator.GROUP: GROUP, find_coordinator.TRANSACTION: TRANSACTIONAL_ID}
    kind = kinds.get(body.key_type)
    if kind is None:
        shared = body.key_type == find_coordinator.SHARE
        return DENIED[CLUSTER] if shared and not access.may(Operation.CLUSTER_ACTION, CLUSTER) else None
    if request.api_version < find_coordinator.MANY_KEYS_SINCE:
        return None if access.may(Operation.DESCRIBE, kind, body.key) else DENIED[kind]
    allowed = [access.may(Operation.DESCRIBE, kind, key) for key in body.coordinator_keys]
    if all(allowed):
        return None
    return refuse_rows(request, "coordinator_keys", "coordinators", find_coordinator.failed, allowed, kind)


def join(broker: Broker, request: Request, access: Access) -> JoinGroupResponse | None:
    """READ of the group."""
    if access.may(Operation.READ, GROUP, cast(JoinGroupRequest, request.body).group_id):
        return None
    protocol_name = None if request.api_version >= PROTOCOL_MAY_BE_NULL_SINCE else ""
    return JoinGroupResponse(error_code=DENIED[GROUP], protocol_name=protocol_name)


def sync(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    """READ of the group; before that comes that the protocol has to be named (KIP-559)."""
    body = cast(SyncGroupRequest, request.body)
    if request.api_version >= PROTOCOL_NAMED_SINCE and (body.protocol_type is None or body.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None if access.may(Operation.READ, GROUP, body.group_id) else DENIED[GROUP]


def list_groups(broker: Broker, request: Request, access: Access) -> None:
    """Those that may be described, or all for who may describe the cluster."""
    if access.could(Operation.DESCRIBE, CLUSTER):
        return

    def hide(response: ListGroupsResponse) -> None:
        response.groups = [one for one in response.groups if access.could(Operation.DESCRIBE, GROUP, one.group_id)]

    amend(request, hide)


def tell_operations(request: Request, access: Access) -> None:
    """Where a client asked what it may do to groups."""

    def tell(response: Any) -> None:
        for group in response.groups:
            if group.authorized_operations != NOT_ASKED:
                group.authorized_operations = access.operations(GROUP, group.group_id)

    amend(request, tell)


def heartbeat(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    """READ of the group, and DESCRIBE of each topic that is subscribed to by its name."""
    body = cast(ConsumerGroupHeartbeatRequest, request.body)
    if not access.may(Operation.READ, GROUP, body.group_id):
        return DENIED[GROUP]
    names = body.subscribed_topic_names or []
    return None if all(access.may(Operation.DESCRIBE, TOPIC, name) for name in names) else DENIED[TOPIC]


def streams_heartbeat(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    """READ of the group, and DESCRIBE of each topic of the topology."""
    body = cast(StreamsGroupHeartbeatRequest, request.body)
    if not access.may(Operation.READ, GROUP, body.group_id):
        return DENIED[GROUP]
    names: set[str] = set()
    for each in body.topology.subtopologies if body.topology is not None else ():
        names.update(each.source_topics, each.repartition_sink_topics)
        names.update(topic.name for topic in [*each.repartition_source_topics, *each.state_changelog_topics])
    return None if all(access.may(Operation.DESCRIBE, TOPIC, name) for name in sorted(names)) else DENIED[TOPIC]


def hide_streams(broker: Broker, access: Access, response: StreamsGroupDescribeResponse) -> None:
    """A group that has to do with a topic that may not be described is not told about."""
    for group in response.groups:
        names: set[str] = set()
        for each in (group.topology.subtopologies or ()) if group.topology is not None else ():
            names.update(each.source_topics, each.repartition_sink_topics)
            names.update(topic.name for topic in [*each.repartition_source_topics, *each.state_changelog_topics])
        if all(access.could(Operation.DESCRIBE, TOPIC, name) for name in sorted(names)):
            continue
        group.error_code, group.error_message = DENIED[TOPIC], NOT_TOLD
        group.members, group.topology = [], None


def hide_members(broker: Broker, access: Access, response: ConsumerGroupDescribeResponse) -> None:
    """A group that has to do with a topic that may not be described is not told about."""
    for group in response.groups:
        names = {name for member in group.members for name in member.subscribed_topic_names}
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                names.update(topic.topic_name for topic in assignment.topic_partitions)
        if all(access.could(Operation.DESCRIBE, TOPIC, name) for name in sorted(names)):
            continue
        group.error_code, group.error_message = DENIED[TOPIC], NOT_TOLD
        group.members = []


def consumer_describe_failed(request: Request, code: ErrorCode, message: str | None) -> ConsumerGroupDescribeResponse:
    body = cast(ConsumerGroupDescribeRequest, request.body)
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=each, error_code=code, error_message=message) for each in body.group_ids]
    )


def commit(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """READ of the group and of each topic."""
    body = cast(OffsetCommitRequest, request.body)
    if not access.may(Operation.READ, GROUP, body.group_id):
        return DENIED[GROUP]
    by_id = request.api_version >= offsets.TOPIC_IDS_SINCE
    allowed = []
    for topic in body.topics:
        name = topic_name(broker, topic.topic_id) if by_id else topic.name
        allowed.append(name is None or access.may(Operation.READ, TOPIC, name))
    if all(allowed):
        return None
    return refuse_rows(request, "topics", "topics", offsets.commit_failed, allowed, TOPIC)


def fetch_offsets(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """DESCRIBE of each group and each topic; topics that may not be described are not there for who asks for all."""
    body = cast(OffsetFetchRequest, request.body)
    if request.api_version < offsets.MANY_GROUPS_SINCE:
        return _fetch_of_one(request, access, body)
    allowed = [access.may(Operation.DESCRIBE, GROUP, group.group_id) for group in body.groups]
    by_id = request.api_version >= offsets.TOPIC_IDS_SINCE
    for group, good in zip(body.groups, allowed, strict=True):
        if good:
            _fetch_of(broker, request, access, group, by_id=by_id)
    if all(allowed):
        return None
    return refuse_rows(request, "groups", "groups", offsets.fetch_failed, allowed, GROUP)


def _fetch_of(broker: Broker, request: Request, access: Access, group: OffsetFetchRequestGroup, *, by_id: bool) -> None:
    def name_of(topic: Any) -> str | None:
        return topic_name(broker, topic.topic_id) if by_id else topic.name

    group_id = group.group_id
    if group.topics is None:

        def hide(response: OffsetFetchResponse) -> None:
            for row in response.groups:
                if row.group_id == group_id:
                    row.topics = [one for one in row.topics if _is_seen(access, name_of(one))]

        amend(request, hide)
        return
    denied = [
        topic
        for topic in group.topics
        if (name := name_of(topic)) is not None and not access.may(Operation.DESCRIBE, TOPIC, name)
    ]
    if not denied:
        return
    group.topics = [topic for topic in group.topics if all(topic is not one for one in denied)]
    refused = [offsets.no_offsets(topic, DENIED[TOPIC]) for topic in denied]

    def add(response: OffsetFetchResponse) -> None:
        for row in response.groups:
            if row.group_id == group_id and not row.error_code:
                row.topics.extend(refused)

    amend(request, add)


def _is_seen(access: Access, name: str | None) -> bool:
    return name is not None and access.could(Operation.DESCRIBE, TOPIC, name)


def _fetch_of_one(request: Request, access: Access, body: OffsetFetchRequest) -> Struct | ErrorCode | None:
    if not access.may(Operation.DESCRIBE, GROUP, body.group_id):
        return DENIED[GROUP]
    if body.topics is None:

        def hide(response: OffsetFetchResponse) -> None:
            response.topics = [one for one in response.topics if _is_seen(access, one.name)]

        amend(request, hide)
        return None
    denied = [topic for topic in body.topics if not access.may(Operation.DESCRIBE, TOPIC, topic.name)]
    if not denied:
        return None
    body.topics = [topic for topic in body.topics if all(topic is not one for one in denied)]
    refused = [offsets.no_offsets_of_one(topic, DENIED[TOPIC]) for topic in denied]

    def add(response: OffsetFetchResponse) -> None:
        if not response.error_code:
            response.topics.extend(refused)

    amend(request, add)
    return None


def delete_offsets(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """DELETE of the group, READ of each topic."""
    body = cast(OffsetDeleteRequest, request.body)
    if not access.may(Operation.DELETE, GROUP, body.group_id):
        return DENIED[GROUP]
    allowed = [access.may(Operation.READ, TOPIC, topic.name) for topic in body.topics]
    if all(allowed):
        return None
    return refuse_rows(request, "topics", "topics", _no_offsets_deleted, allowed, TOPIC)


def _no_offsets_deleted(request: Request, code: ErrorCode, message: str | None) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in cast(OffsetDeleteRequest, request.body).topics
        ]
    )


def commit_in_transaction(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """WRITE of the transactional id, READ of the group and of each topic."""
    body = cast(TxnOffsetCommitRequest, request.body)
    if not access.may(Operation.WRITE, TRANSACTIONAL_ID, body.transactional_id):
        return DENIED[TRANSACTIONAL_ID]
    if not access.may(Operation.READ, GROUP, body.group_id):
        return DENIED[GROUP]
    allowed = [access.may(Operation.READ, TOPIC, topic.name) for topic in body.topics]
    if all(allowed):
        return None
    return refuse_rows(request, "topics", "topics", commit_offsets_failed, allowed, TOPIC)
