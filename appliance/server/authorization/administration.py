"""Rules of configs, and of what is told about the cluster."""

from __future__ import annotations

from typing import cast

from appliance.authorizer.bindings import CLUSTER_NAME, Operation, ResourceType
from appliance.base.config_resources import CLIENT_METRICS
from appliance.base.config_resources import GROUP as GROUP_CONFIGS
from appliance.base.errors import ErrorCode
from appliance.server.access import Access
from appliance.server.authorization.rules import CLUSTER, DENIED, GROUP, TEXTS, TOPIC, Rule, amend
from appliance.server.context import Broker
from appliance.server.forwarding import ErrorForm
from appliance.server.handlers.alter_log_dirs import answer_of, wanted_in
from appliance.server.handlers.configs import BROKER, BROKER_LOGGER
from appliance.server.handlers.configs import TOPIC as TOPIC_CONFIGS
from appliance.server.handlers.metadata import cluster_operations
from appliance.server.operations import NOT_ASKED
from appliance.server.requests import Request
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from appliance.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from appliance.wire.messages.describe_client_quotas import DescribeClientQuotasResponse
from appliance.wire.messages.describe_cluster import DescribeClusterResponse
from appliance.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from appliance.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from appliance.wire.schema import Struct

_LOG_DIRS_ERROR_SINCE = 3
_KINDS = {
    TOPIC_CONFIGS: TOPIC,
    GROUP_CONFIGS: GROUP,
    BROKER: CLUSTER,
    BROKER_LOGGER: CLUSTER,
    CLIENT_METRICS: CLUSTER,
}
"""Configs of topics and groups are theirs; all others are the cluster's."""


def configs(results: str, failed: ErrorForm, operation: Operation) -> Rule:
    """One operation on what each resource stands for; `results` is the list of the answer."""

    def rule(broker: Broker, request: Request, access: Access) -> Struct | None:
        body = request.body
        wanted = body.resources  # type: ignore[attr-defined]
        kinds: list[tuple[ResourceType, bool]] = []
        for row in wanted:
            kind = _KINDS.get(row.resource_type)
            if kind is None:
                # The handler says that there is no such thing.
                kinds.append((CLUSTER, True))
                continue
            name = CLUSTER_NAME if kind is CLUSTER else row.resource_name
            kinds.append((kind, access.may(operation, kind, name)))
        if all(allowed for _, allowed in kinds):
            return None
        body.resources = wanted  # type: ignore[attr-defined]
        refused = failed(request, ErrorCode.NONE, None)
        rows = [row for row, (_, allowed) in zip(getattr(refused, results), kinds, strict=True) if not allowed]
        for row, kind in zip(rows, (kind for kind, allowed in kinds if not allowed), strict=True):
            row.error_code, row.error_message = DENIED[kind], TEXTS[kind]
        kept = [row for row, (_, allowed) in zip(wanted, kinds, strict=True) if allowed]
        body.resources = kept  # type: ignore[attr-defined]
        if not kept:
            setattr(refused, results, rows)
            return refused
        amend(request, lambda response: getattr(response, results).extend(rows))
        return None

    return rule


def describe_cluster(broker: Broker, request: Request, access: Access) -> None:
    """Brokers are told to everybody, operations to who may describe the cluster."""

    def tell(response: DescribeClusterResponse) -> None:
        if response.cluster_authorized_operations != NOT_ASKED:
            response.cluster_authorized_operations = cluster_operations(access)

    amend(request, tell)


def describe_log_dirs(broker: Broker, request: Request, access: Access) -> Struct | None:
    """DESCRIBE of the cluster; older versions have no room for an error and list nothing."""
    if access.may(Operation.DESCRIBE, CLUSTER):
        return None
    has_room = request.api_version >= _LOG_DIRS_ERROR_SINCE
    return DescribeLogDirsResponse(error_code=DENIED[CLUSTER] if has_room else ErrorCode.NONE)


def alter_log_dirs(broker: Broker, request: Request, access: Access) -> Struct | None:
    """ALTER of the cluster."""
    if access.may(Operation.ALTER, CLUSTER):
        return None
    wanted = wanted_in(cast(AlterReplicaLogDirsRequest, request.body))
    return answer_of(dict.fromkeys(wanted, DENIED[CLUSTER]))


def describe_quotas(broker: Broker, request: Request, access: Access) -> Struct | None:
    """DESCRIBE_CONFIGS of the cluster."""
    if access.may(Operation.DESCRIBE_CONFIGS, CLUSTER):
        return None
    return DescribeClientQuotasResponse(error_code=DENIED[CLUSTER], error_message=TEXTS[CLUSTER], entries=None)


def alter_reassignments(broker: Broker, request: Request, access: Access) -> Struct | None:
    """ALTER of the cluster. The error stands at each partition, too."""
    if access.may(Operation.ALTER, CLUSTER):
        return None
    code, text = DENIED[CLUSTER], TEXTS[CLUSTER]
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=text,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=one.partition_index, error_code=code, error_message=text
                    )
                    for one in topic.partitions
                ],
            )
            for topic in cast(AlterPartitionReassignmentsRequest, request.body).topics
        ],
    )


def list_reassignments(broker: Broker, request: Request, access: Access) -> Struct | None:
    """DESCRIBE of the cluster. Who may not hears back what it asked for."""
    if access.may(Operation.DESCRIBE, CLUSTER):
        return None
    return ListPartitionReassignmentsResponse(
        error_code=DENIED[CLUSTER],
        error_message=TEXTS[CLUSTER],
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[OngoingPartitionReassignment(partition_index=one) for one in topic.partition_indexes],
            )
            for topic in cast(ListPartitionReassignmentsRequest, request.body).topics or ()
        ],
    )
