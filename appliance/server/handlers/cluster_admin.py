"""ListConfigResources 0-1 and DescribeQuorum 0-2 from this broker's image, UpdateFeatures 0-2 forwarded.

- ListConfigResources (KIP-1142): the names of all topics, brokers, groups and client metrics that have configs.
- UpdateFeatures (KIP-584): `appliance.controller.features` has the levels.
- DescribeQuorum (KIP-595): the active controller is the one voter there is; whoever takes over needs no quorum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from appliance.base.config_resources import CLIENT_METRICS, GROUP
from appliance.base.errors import ErrorCode
from appliance.controller.image import MetadataImage
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.handlers.configs import BROKER, BROKER_LOGGER, TOPIC
from appliance.server.requests import Pending, Request
from appliance.wire.messages import describe_quorum as quorum_messages
from appliance.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from appliance.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from appliance.wire.schema import Struct

ALL_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
TYPES_SINCE = 1
METADATA_TOPIC = "__cluster_metadata"
ONE_ERROR_SINCE = 2
NODES_SINCE = 2


def list_config_resources(broker: Broker, request: Request) -> ListConfigResourcesResponse:
    wanted: Iterable[int] = cast(ListConfigResourcesRequest, request.body).resource_types or ALL_TYPES
    if request.api_version < TYPES_SINCE:
        wanted = (CLIENT_METRICS,)
    if any(kind not in ALL_TYPES for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in dict.fromkeys(wanted)
        for name in _names(broker.image, kind)
    ]
    return ListConfigResourcesResponse(config_resources=resources)


def _names(image: MetadataImage, kind: int) -> Iterator[str]:
    if kind == TOPIC:
        yield from sorted(image.topics)
    elif kind in (BROKER, BROKER_LOGGER):
        yield from (str(broker_id) for broker_id in sorted(image.brokers))
    else:
        yield from sorted(name for resource_type, name in image.resource_configs if resource_type == kind)


def update_features(broker: Broker, request: Request) -> Pending:
    body = cast(UpdateFeaturesRequest, request.body)
    for update in body.feature_updates:
        # As in Kafka, this word of version 0 says nothing.
        update.allow_downgrade = False

    def add_results(response: Struct, answer: Callable[[], None]) -> None:
        decided = cast(UpdateFeaturesResponse, response)
        if decided.error_code == ErrorCode.NONE and request.api_version < ONE_ERROR_SINCE:
            decided.results = [
                UpdatableFeatureResult(feature=update.feature, error_message=None) for update in body.feature_updates
            ]
        answer()

    return forward(broker, request, update_features_failed, add_results)


def update_features_failed(request: Request, code: ErrorCode, message: str | None) -> UpdateFeaturesResponse:
    """The answer when everything failed alike."""
    return UpdateFeaturesResponse(error_code=code, error_message=message)


def quorum(broker: Broker, request: Request) -> quorum_messages.DescribeQuorumResponse:
    body = cast(quorum_messages.DescribeQuorumRequest, request.body)
    image = broker.image
    response = quorum_messages.DescribeQuorumResponse()
    is_asked = False
    for topic in body.topics:
        rows: list[quorum_messages.PartitionDataResponse] = []
        response.topics.append(quorum_messages.TopicDataResponse(topic_name=topic.topic_name, partitions=rows))
        for partition in topic.partitions:
            if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                rows.append(_quorum(image))
                is_asked = True
            else:
                rows.append(
                    quorum_messages.PartitionDataResponse(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=None,
                    )
                )
    if is_asked and request.api_version >= NODES_SINCE and image.controller_port > 0:
        address = quorum_messages.Listener(name="CONTROLLER", host=image.controller_host, port=image.controller_port)
        response.nodes = [quorum_messages.Node(node_id=image.controller_id, listeners=[address])]
    return response


def _quorum(image: MetadataImage) -> quorum_messages.PartitionDataResponse:
    end = image.position + 1
    voters = [quorum_messages.ReplicaState(replica_id=image.controller_id, log_end_offset=end)]
    observers = [
        quorum_messages.ReplicaState(replica_id=broker.broker_id, log_end_offset=end) for broker in image.live_brokers()
    ]
    return quorum_messages.PartitionDataResponse(
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=end,
        current_voters=voters,
        observers=observers,
    )
