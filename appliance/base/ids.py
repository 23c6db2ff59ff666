"""Identifiers that travel through every layer."""

from __future__ import annotations

import base64
import uuid
from typing import NamedTuple

ZERO_UUID = uuid.UUID(int=0)
METADATA_TOPIC_ID = uuid.UUID(int=1)
"""Reserved by Kafka for `__cluster_metadata`; never given to a topic."""


class TopicPartition(NamedTuple):
    """One partition of a topic, by the topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(value: uuid.UUID) -> str:
    """Kafka's form of a UUID: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> uuid.UUID:
    """Read Kafka's form of a UUID.

    Raises:
        ValueError: the text is not 22 characters of URL-safe base64.
    """
    if len(text) != 22:
        raise ValueError(f"a UUID has 22 characters of URL-safe base64, not {len(text)}: {text!r}")
    return uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))


def is_usable_uuid(value: uuid.UUID) -> bool:
    """Kafka never gives out the reserved ids, nor one whose text begins with a dash (it would look like a flag)."""
    return value not in (ZERO_UUID, METADATA_TOPIC_ID) and not uuid_to_text(value).startswith("-")
