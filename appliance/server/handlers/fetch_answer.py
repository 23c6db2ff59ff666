"""The answer to a fetch: what each partition brought, in the order of service, with file slices among the bytes."""

from __future__ import annotations

import uuid

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.handlers.fetch_read import PartitionRead
from appliance.server.leaders import leader_hint
from appliance.server.requests import JOINED_MAX_BYTES, FileRange, OutputItem, Request
from appliance.wire.codec import encode_parts
from appliance.wire.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, NodeEndpoint

TOPIC_IDS_SINCE = 13
LEADER_HINT_SINCE = 12
ENDPOINTS_SINCE = 16
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def add_partition(broker: Broker, request: Request, response: FetchResponse, read: PartitionRead) -> None:
    """Put a partition behind those that are in the answer already."""
    data, version = read.data, request.api_version
    if read.range is not None:
        data.records = read.range  # type: ignore[assignment]
    if data.error_code in _MOVED:
        _hint(broker, request, read, response)
    topic = read.partition.key[0]
    last = response.responses[-1] if response.responses else None
    if last is None or (last.topic if version < TOPIC_IDS_SINCE else last.topic_id) != topic:
        last = FetchableTopicResponse(topic=topic) if version < TOPIC_IDS_SINCE else _by_id(topic)  # type: ignore[arg-type]
        response.responses.append(last)
    last.partitions.append(data)


def _by_id(topic: uuid.UUID) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic_id=topic)


def _hint(broker: Broker, request: Request, read: PartitionRead, response: FetchResponse) -> None:
    """Tell the reader where the leader is now (KIP-951)."""
    topic, index = read.partition.key
    version = request.api_version
    if version < LEADER_HINT_SINCE:
        return
    if isinstance(topic, uuid.UUID):
        state = broker.image.topics_by_id.get(topic)
        topic = state.name if state is not None else ""
    hint = leader_hint(broker, request.connection.listener.name, topic, index)
    if hint is None:
        return
    read.data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
    if version >= ENDPOINTS_SINCE and all(one.node_id != hint.leader_id for one in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
        )


def encode_with_ranges(response: FetchResponse, version: int, correlation_id: int) -> list[OutputItem]:
    """A whole frame in pieces: bytes, and ranges of files where records lie in them."""
    parts = encode_parts(response, version)
    header = b"\0" if version >= LEADER_HINT_SINCE else b""
    size = 4 + len(header) + sum(map(len, parts))
    items: list[OutputItem] = []
    joined: list[bytes] = [size.to_bytes(4, "big"), correlation_id.to_bytes(4, "big", signed=True), header]
    for part in parts:
        if type(part) is FileRange:
            items.append(b"".join(joined))
            items.append(part)
            joined = []
        elif len(part) > JOINED_MAX_BYTES:
            # Records that came from the object store lie in memory: they are not copied once more.
            items += (b"".join(joined), part)
            joined = []
        else:
            joined.append(part)
    if joined:
        items.append(b"".join(joined))
    return items
