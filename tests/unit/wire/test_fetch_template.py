"""A follower's usual fetch is encoded once, and its frames are those that the codec would make."""

from __future__ import annotations

import uuid

import pytest

from appliance.wire.codec import encode_request
from appliance.wire.fetch_template import FetchTemplate
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

VERSION = 18
CLIENT_ID = "broker-2-replica"


def request(session_epoch: int, offset: int, high_watermark: int, topic_id: uuid.UUID | None = None) -> FetchRequest:
    row = FetchPartition(
        partition=3, current_leader_epoch=5, fetch_offset=offset, last_fetched_epoch=4, high_watermark=high_watermark
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=77),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=123,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=topic_id or uuid.UUID(int=7), partitions=[row])],
    )


@pytest.mark.parametrize(("epoch", "offset", "high_watermark"), [(1, 0, 0), (2**31 - 1, 2**62, 2**62), (9, 5, 2)])
def test_the_frames_are_the_codecs(epoch: int, offset: int, high_watermark: int) -> None:
    template = FetchTemplate(request, VERSION, CLIENT_ID)
    assert template.usable
    expected = encode_request(request(epoch, offset, high_watermark), VERSION, 0, CLIENT_ID)
    assert bytes(template.frame(epoch, offset, high_watermark)) == expected


def test_one_frame_leaves_nothing_behind_for_the_next() -> None:
    template = FetchTemplate(request, VERSION, CLIENT_ID)
    template.frame(2**31 - 1, 2**62, 2**62)
    assert bytes(template.frame(1, 2, 3)) == encode_request(request(1, 2, 3), VERSION, 0, CLIENT_ID)


def test_a_topic_id_that_looks_like_a_number_makes_no_template() -> None:
    offset = 0x0FF5E70FF5E70FF5.to_bytes(8, "big")
    topic_id = uuid.UUID(bytes=offset + bytes(8))
    template = FetchTemplate(lambda *numbers: request(*numbers, topic_id), VERSION, CLIENT_ID)
    assert not template.usable
