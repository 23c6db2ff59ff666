"""The one look that we take into a member's metadata: which topics a group of type `consumer` reads.

Only to know which committed offsets are still in use, as Kafka does; assignments and every other type stay opaque. All
versions of the format begin alike: int16 version, then an array (int32) of strings (int16).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that the given members subscribe to; None if any of them cannot be read."""
    topics: set[str] = set()
    try:
        for content in subscriptions:
            topics.update(_topics_of(content))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _topics_of(content: bytes) -> list[str]:
    (version,) = _INT16.unpack_from(content)
    (count,) = _INT32.unpack_from(content, 2)
    if version < 0 or count < 0 or count * 2 > len(content):
        raise ValueError("not a subscription")
    topics, position = [], 6
    for _ in range(count):
        (length,) = _INT16.unpack_from(content, position)
        end = position + 2 + length
        if length < 0 or end > len(content):
            raise ValueError("not a subscription")
        topics.append(content[position + 2 : end].decode())
        position = end
    return topics
