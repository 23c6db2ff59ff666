from __future__ import annotations

import struct

import pytest

from appliance.groups.subscription import subscribed_topics


def subscription(*topics: str, version: int = 1) -> bytes:
    body = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    # User data and owned partitions follow; nobody here reads them.
    return struct.pack(">hi", version, len(topics)) + body + struct.pack(">ii", -1, 0)


def test_topics_of_all_members_are_found_in_any_version() -> None:
    found = subscribed_topics([subscription("a", "b", version=0), subscription("b", "ü", version=9)])
    assert found == {"a", "b", "ü"}


def test_nobody_reads_nothing() -> None:
    assert subscribed_topics([]) == frozenset()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\1\0\0",
        subscription("a")[:7],
        struct.pack(">hi", 1, 2**31 - 1),
        struct.pack(">hi", 1, -1),
        struct.pack(">hi", -1, 0),
        struct.pack(">hih", 1, 1, -5) + bytes(20),
        struct.pack(">hih2s", 1, 1, 2, b"\xff\xfe"),
    ],
)
def test_what_cannot_be_read_is_unknown(content: bytes) -> None:
    assert subscribed_topics([subscription("a"), content]) is None
