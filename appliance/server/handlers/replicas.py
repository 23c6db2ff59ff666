"""ElectLeaders 0-2, AlterPartitionReassignments 0-1, ListPartitionReassignments 0, UnregisterBroker 0.

The controller decides, any broker takes the request.
What is under way is told from this broker's image, which has all that it answered for before.
v1 unclean elections (KIP-460) · replicas moved by requests (KIP-455)
"""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.controller.reassignments import list_reassignments
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from appliance.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from appliance.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from appliance.wire.messages.unregister_broker import UnregisterBrokerResponse


def elect(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, elect_failed)


def elect_failed(request: Request, code: ErrorCode, message: str | None) -> ElectLeadersResponse:
    """Version 0 has no room for an error of the whole request."""
    body = cast(ElectLeadersRequest, request.body)
    return ElectLeadersResponse(
        error_code=code if request.api_version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=code, error_message=message)
                    for number in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )


def alter_reassignments(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, alter_reassignments_failed)


def alter_reassignments_failed(
    request: Request, code: ErrorCode, message: str | None
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)


def list_under_way(broker: Broker, request: Request) -> ListPartitionReassignmentsResponse:
    return list_reassignments(cast(ListPartitionReassignmentsRequest, request.body), broker.image)


def unregister(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, unregister_failed)


def unregister_failed(request: Request, code: ErrorCode, message: str | None) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=code, error_message=message)
