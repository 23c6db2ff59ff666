"""Which names a topic may have."""

from __future__ import annotations

import re

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.image import MetadataImage

MAX_LENGTH = 249
METADATA_TOPIC = "__cluster_metadata"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises: KafkaError, INVALID_TOPIC_EXCEPTION with what is wrong with the name."""
    problem = None
    if not name:
        problem = "is empty"
    elif name in (".", ".."):
        problem = "would be a directory's own or parent's name"
    elif len(name) > MAX_LENGTH:
        problem = f"has {len(name)} characters, {MAX_LENGTH} are allowed"
    elif not _LEGAL.fullmatch(name):
        problem = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r} {problem}")
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is reserved")


def check_no_collision(name: str, image: MetadataImage) -> None:
    """Metric names write '.' as '_', so two names that differ in that only would be one.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, naming the other topic.
    """
    if "." not in name and "_" not in name:
        return
    plain = name.replace(".", "_")
    for other in image.topics:
        if other != name and len(other) == len(name) and other.replace(".", "_") == plain:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r} collides with topic {other!r}")
