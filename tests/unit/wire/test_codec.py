from __future__ import annotations

import struct
import time
import uuid

import pytest

from appliance.wire import codec
from appliance.wire.codec import WireError, decode, decode_from, encode, encode_parts
from appliance.wire.decoder_source import MAX_REQUEST_ELEMENTS
from appliance.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from appliance.wire.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from appliance.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from appliance.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from appliance.wire.schema import UnsupportedVersion
from appliance.wire.varint import encode_unsigned_varint


def fetched(records: object) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])])


def test_an_old_request_is_written_byte_by_byte_as_the_protocol_says() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="ab")])
    frame = codec.encode_request(request, 1, 7, "me")
    body = b"\x00\x00\x00\x01" + b"\x00\x02ab"
    assert frame == b"\x00\x00\x00\x14" + b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x02me" + body


def test_a_flexible_request_has_compact_lengths_and_tag_sections_but_an_old_client_id() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="ab")])
    frame = codec.encode_request(request, 9, 7, "me")
    body = b"\x02" + b"\x03ab" + b"\x00" + b"\x01" + b"\x00" + b"\x00" + b"\x00"
    assert frame == b"\x00\x00\x00\x16" + b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\x00" + body


def test_the_header_of_a_response_ends_with_a_tag_section_in_flexible_versions() -> None:
    assert codec.encode_response(HeartbeatResponse(), 3, 7)[4:] == b"\x00\x00\x00\x07" + bytes(6)
    assert codec.encode_response(HeartbeatResponse(), 4, 7)[4:] == b"\x00\x00\x00\x07" + b"\x00" + bytes(6) + b"\x00"


def test_api_versions_has_no_tag_section_in_its_response_header() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    for version in range(5):
        frame = codec.encode_response(response, version, 7)
        assert frame[4:10] == b"\x00\x00\x00\x07\x00\x00"
        assert codec.decode_response(ApiVersionsResponse, frame[4:], version) == (7, response)


def test_a_response_comes_back_with_its_correlation_id() -> None:
    for version in (11, 12, 18):
        response = fetched(b"batch")
        if version >= 13:
            response.responses[0].topic = ""
        frame = codec.encode_response(response, version, -3)
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        assert codec.decode_response(FetchResponse, frame[4:], version) == (-3, response)


def test_a_request_header_is_read_in_both_forms() -> None:
    for version in (3, 4):
        frame = codec.encode_request(HeartbeatRequest(group_id="g"), version, 9, "client")
        header = codec.decode_request_header(memoryview(frame)[4:])
        assert header[:4] == (12, version, 9, "client")
        assert decode_from(HeartbeatRequest, frame[4:], version, header.body_offset)[0].group_id == "g"


def test_a_client_id_may_be_missing() -> None:
    frame = codec.encode_request(HeartbeatRequest(), 4, 9, None)
    assert codec.decode_request_header(frame[4:]).client_id is None


def test_tags_in_a_request_header_are_skipped() -> None:
    head = struct.pack(">hhih", 12, 4, 9, 1) + b"c"
    assert codec.decode_request_header(head + b"\x01\x05\x02xyBODY").body_offset == len(head) + 5


def test_the_header_of_an_unknown_api_or_version_can_be_read() -> None:
    head = struct.pack(">hhih", 9999, 77, 9, 1) + b"c"
    assert codec.decode_request_header(head + b"rest") == (9999, 77, 9, "c", len(head))
    newest = struct.pack(">hhih", 18, 99, 9, 1) + b"c"
    assert codec.decode_request_header(newest + b"\x00rest") == (18, 99, 9, "c", len(newest) + 1)


@pytest.mark.parametrize("cut", range(13))
def test_a_cut_off_request_header_is_refused(cut: int) -> None:
    frame = codec.encode_request(HeartbeatRequest(), 4, 9, "me")[4:]
    with pytest.raises(WireError):
        codec.decode_request_header(frame[:cut])


def test_a_client_id_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="UTF-8"):
        codec.decode_request_header(struct.pack(">hhih", 12, 0, 9, 1) + b"\xff")


def test_records_are_views_into_the_input() -> None:
    for version in (3, 9, 13):
        data = bytearray(encode(ProduceRequest(topic_data=[produced(b"records")]), version))
        records = decode(ProduceRequest, data, version).topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        data[data.index(b"records")] = ord("R")
        assert records == b"Records"


def produced(records: object) -> TopicProduceData:
    return TopicProduceData(partition_data=[PartitionProduceData(records=records)])


def test_records_may_be_any_buffer() -> None:
    for records in (b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]):
        assert encode(fetched(records), 4) == encode(fetched(b"abc"), 4)


def test_what_stands_for_records_goes_out_as_a_part_of_its_own() -> None:
    class Slice:
        def __len__(self) -> int:
            return 3

    here = Slice()
    for version in (4, 12):
        parts = encode_parts(fetched(here), version)
        assert sum(part is here for part in parts) == 1
        filled = b"".join(b"abc" if part is here else part for part in parts)
        assert filled == encode(fetched(b"abc"), version)


def test_bytes_fields_are_copied_out_of_the_input() -> None:
    request = JoinGroupRequest(protocols=[JoinGroupRequestProtocol(name="range", metadata=b"opaque")])
    read = decode(JoinGroupRequest, memoryview(encode(request, 9)), 9)
    assert type(read.protocols[0].metadata) is bytes
    assert read == request


def test_tagged_fields_are_written_only_if_they_differ_from_their_default() -> None:
    plain = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    hinted = FetchResponse(
        responses=[
            FetchableTopicResponse(
                partitions=[PartitionData(current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=8))]
            )
        ]
    )
    assert len(encode(hinted, 16)) == len(encode(plain, 16)) + 11
    assert decode(FetchResponse, encode(hinted, 16), 16) == hinted


def test_unknown_tags_are_skipped() -> None:
    written = encode(HeartbeatResponse(error_code=27), 4)
    assert written[-1:] == b"\x00"
    assert decode(HeartbeatResponse, written[:-1] + b"\x02\x05\x01x\x63\x00", 4).error_code == 27


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    written = encode(FetchRequest(cluster_id="abc"), 12)
    assert written.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(WireError, match="cluster_id"):
        decode(FetchRequest, written[:-7] + b"\x01\x00\x05\x04abc!", 12)


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    without, with_one = ConsumerGroupHeartbeatResponse(), ConsumerGroupHeartbeatResponse(assignment=Assignment())
    assert encode(without, 0)[-2:] == b"\xff\x00"
    assert encode(with_one, 0)[-4:] == b"\x01\x01\x00\x00"
    assert decode(ConsumerGroupHeartbeatResponse, encode(with_one, 0), 0) == with_one


def test_lengths_beyond_one_byte_survive() -> None:
    for count in (126, 127, 128, 300, 16_383, 20_000):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="n" * 200)] * count)
        assert decode(MetadataRequest, encode(request, 9), 9) == request


def test_bytes_behind_a_message_are_left_alone() -> None:
    written = encode(HeartbeatRequest(group_id="g"), 4)
    assert decode_from(HeartbeatRequest, b"xx" + written + b"more", 4, 2) == (
        HeartbeatRequest(group_id="g"),
        2 + len(written),
    )


def test_an_absent_field_that_may_be_ignored_is_dropped() -> None:
    response = MetadataResponse(cluster_id="c", throttle_time_ms=5)
    assert decode(MetadataResponse, encode(response, 0), 0) == MetadataResponse()


def test_an_absent_field_that_may_not_be_ignored_is_refused() -> None:
    partition = ListOffsetsPartitionResponse(offset=5, leader_epoch=2)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[partition])])
    assert encode(response, 4)
    with pytest.raises(WireError, match="cannot carry leader_epoch"):
        encode(response, 3)


@pytest.mark.parametrize("version", [-1, 19])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        encode(FetchRequest(), version)
    with pytest.raises(UnsupportedVersion):
        decode(FetchRequest, b"", version)


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(group_id=None),
        HeartbeatRequest(group_id=5),
        HeartbeatRequest(generation_id="x"),
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(group_id="\ud800"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(message: HeartbeatRequest) -> None:
    with pytest.raises(WireError, match="HeartbeatRequest version 4"):
        encode(message, 4)


def test_a_string_that_is_too_long_for_an_old_version_is_refused() -> None:
    request = HeartbeatRequest(group_id="x" * 40_000)
    assert decode(HeartbeatRequest, encode(request, 4), 4) == request
    with pytest.raises(WireError):
        encode(request, 3)


def test_null_where_none_may_stand_is_refused() -> None:
    with pytest.raises(WireError, match="group_id"):
        decode(HeartbeatRequest, b"\xff\xff" + bytes(20), 3)
    with pytest.raises(WireError, match="group_id"):
        decode(HeartbeatRequest, b"\x00" + bytes(20), 4)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="UTF-8"):
        decode(HeartbeatRequest, b"\x02\xff" + bytes(20), 4)


@pytest.mark.parametrize("version", [8, 9])
def test_a_count_that_cannot_be_true_is_refused_before_anything_is_allocated(version: int) -> None:
    huge = b"\xff\xff\xff\xff\x0f" if version == 9 else b"\x7f\xff\xff\xff"
    begin = time.perf_counter()
    with pytest.raises(WireError, match="count"):
        decode(MetadataRequest, huge + bytes(60), version)
    assert time.perf_counter() - begin < 0.5


def test_a_varint_of_more_than_32_bits_is_refused() -> None:
    for endless in (b"\xff" * 20, b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01"):
        with pytest.raises(WireError, match="32 bits"):
            decode(MetadataRequest, endless, 9)


def test_uuids_lie_as_they_are_on_the_wire() -> None:
    topic_id = uuid.uuid4()
    written = encode(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)]), 12)
    assert written[1:17] == topic_id.bytes
    assert decode(MetadataRequest, written, 12).topics[0].topic_id == topic_id


def test_an_empty_body_is_a_message_too() -> None:
    assert encode(ApiVersionsRequest(), 0) == b""
    assert decode(ApiVersionsRequest, b"", 0) == ApiVersionsRequest()


def test_a_request_with_more_elements_than_a_broker_has_partitions_is_refused() -> None:
    def topics(count: int) -> bytes:
        return encode_unsigned_varint(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00\x00"

    assert len(decode(MetadataRequest, topics(1_000), 9).topics or ()) == 1_000
    begin = time.perf_counter()
    with pytest.raises(WireError, match="too many elements"):
        decode(MetadataRequest, topics(MAX_REQUEST_ELEMENTS + 1), 9)
    assert time.perf_counter() - begin < 0.5


def test_elements_are_counted_over_all_arrays_and_tags_of_a_request() -> None:
    many = MAX_REQUEST_ELEMENTS // 4 + 1
    request = OffsetFetchRequest(topics=[OffsetFetchRequestTopic(partition_indexes=[0] * many)] * 4)
    with pytest.raises(WireError, match="too many elements"):
        decode(OffsetFetchRequest, encode(request, 6), 6)
    tags = encode_unsigned_varint(MAX_REQUEST_ELEMENTS) + b"\x07\x00" * MAX_REQUEST_ELEMENTS
    with pytest.raises(WireError, match="too many tagged fields"):
        decode(MetadataRequest, b"\x02\x01\x00\x00\x00\x00" + tags, 9)
