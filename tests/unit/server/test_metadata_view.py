"""Metadata answers that are put together from kept bytes are the ones that the codec would make."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from appliance.base.errors import ErrorCode
from appliance.controller.image import BrokerState, MetadataImage, TopicState
from appliance.controller.records import Listener, LogState, PartitionState
from appliance.server.metadata_view import MetadataView
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import decode_response, encode_response
from appliance.wire.messages.metadata import MetadataResponse

METADATA = APIS[ApiKey.METADATA]
VERSIONS = range(METADATA.min_version, METADATA.max_version + 1)
CORRELATION_ID = 0x01020304


def image_of(topics: int = 200, partitions: int = 3) -> MetadataImage:
    broker = BrokerState(
        1,
        7,
        uuid.UUID(int=9),
        (Listener("PLAINTEXT", "h", 9092),),
        "r",
        "n",
        (uuid.UUID(int=8),),
        LogState.CLEAN,
        False,
    )
    states = [
        TopicState(
            f"t{number}",
            uuid.UUID(int=100 + number),
            partitions=tuple(
                PartitionState(partition, 1 if partition else 2, 5, 6, (1, 2), (1,)) for partition in range(partitions)
            ),
        )
        for number in range(topics)
    ]
    return MetadataImage(
        position=3,
        cluster_id="c",
        brokers={1: broker},
        topics={state.name: state for state in states},
        topics_by_id={state.topic_id: state for state in states},
    )


def answer(view: MetadataView, image: MetadataImage, version: int) -> bytes:
    parts = [view.topic(image, state, version) for state in image.topics.values()]
    parts.append(view.unknown(version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody"))
    return view.response(image, parts, version, CORRELATION_ID)


@pytest.mark.parametrize("topics", [0, 1, 200])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_codec_in_every_version(version: int, topics: int) -> None:
    frame = answer(MetadataView(), image_of(topics), version)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = decode_response(MetadataResponse, frame[4:], version)
    assert correlation_id == CORRELATION_ID
    assert encode_response(response, version, CORRELATION_ID) == frame
    assert [topic.name for topic in response.topics] == [*(f"t{number}" for number in range(topics)), "nobody"]
    assert [broker.port for broker in response.brokers] == [9092]
    if topics:
        codes = [partition.error_code for partition in response.topics[0].partitions]
        assert codes == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE]


def test_a_topic_is_encoded_again_only_when_it_or_the_brokers_have_changed() -> None:
    view, image = MetadataView(), image_of(2)
    first = view.topic(image, image.topics["t0"], 12)
    assert view.topic(image, image.topics["t0"], 12) is first
    changed = replace(image.topics["t0"], partitions=image.topics["t0"].partitions[:1])
    assert len(view.topic(image, changed, 12)) < len(first)
    other = view.topic(image, image.topics["t1"], 12)
    fenced = replace(image, brokers={1: replace(image.brokers[1], fenced=True)})
    assert view.topic(fenced, image.topics["t1"], 12) != other
