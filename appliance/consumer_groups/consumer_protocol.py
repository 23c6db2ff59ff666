"""The bytes in which classic consumers say what they read and are told what they have: read and written here only when
such a member and the new protocol meet in one group.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Mapping

from appliance.groups.epoch_context import Topic
from appliance.wire.codec import decode_from, encode
from appliance.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from appliance.wire.schema import WireError

_INT16 = struct.Struct(">h")
VERSION_MAX = 3


def version_of(content: bytes) -> int:
    """The version, or the newest that we know. Raises: WireError."""
    if len(content) < 2:
        raise WireError("no subscription")
    version: int = _INT16.unpack_from(content)[0]
    if version < 0:
        raise WireError("a subscription of a version below zero")
    return min(version, VERSION_MAX)


def read_subscription(content: bytes) -> ConsumerProtocolSubscription:
    """What a member wants. Raises: WireError."""
    return decode_from(ConsumerProtocolSubscription, content, version_of(content), 2)[0]


def read_assignment(content: bytes, topics: Mapping[str, Topic]) -> dict[uuid.UUID, frozenset[int]]:
    """What a member was given, as far as the topics exist; nothing for no bytes at all. Raises: WireError."""
    if not content:
        return {}
    assignment = decode_from(ConsumerProtocolAssignment, content, version_of(content), 2)[0]
    return by_topic_id(assignment.assigned_partitions, topics)


def by_topic_id(rows: list[TopicPartition], topics: Mapping[str, Topic]) -> dict[uuid.UUID, frozenset[int]]:
    """Partitions by the ids of their topics, as far as they exist."""
    found: dict[uuid.UUID, frozenset[int]] = {}
    for row in rows:
        topic = topics.get(row.topic)
        if topic is not None and row.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(row.partitions)
    return found


def write_assignment(
    partitions: Mapping[uuid.UUID, Collection[int]], topics_by_id: Mapping[uuid.UUID, Topic], version: int
) -> bytes:
    """What a member has, as it can read it; topics that are gone are left out."""
    rows = [
        TopicPartition(topic=topics_by_id[topic_id].name, partitions=sorted(partitions[topic_id]))
        for topic_id in partitions
        if topic_id in topics_by_id
    ]
    rows.sort(key=lambda row: row.topic)
    return _INT16.pack(version) + encode(ConsumerProtocolAssignment(assigned_partitions=rows), version)
