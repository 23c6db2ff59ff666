from __future__ import annotations

import pytest

from appliance.wire.schema import WireError
from appliance.wire.varint import decode_unsigned_varint, encode_unsigned_varint, skip_tag_section


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_values_have_their_bytes(value: int, data: bytes) -> None:
    assert encode_unsigned_varint(value) == data
    assert decode_unsigned_varint(b"." + data, 1) == (value, 1 + len(data))


def test_more_than_32_bits_are_refused() -> None:
    for data in (b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"):
        with pytest.raises(WireError):
            decode_unsigned_varint(data, 0)


def test_a_cut_off_varint_runs_out_of_bytes() -> None:
    with pytest.raises(IndexError):
        decode_unsigned_varint(b"\x80", 0)


def test_a_tag_section_is_stepped_over() -> None:
    assert skip_tag_section(memoryview(b"\x02\x00\x01a\x07\x02bbX"), 0, 10) == (8, 8)


def test_a_tag_beyond_the_end_is_refused() -> None:
    with pytest.raises(WireError):
        skip_tag_section(memoryview(b"\x01\x00\x05a"), 0, 10)


def test_more_tags_than_allowed_are_refused_before_they_are_read() -> None:
    with pytest.raises(WireError, match="too many"):
        skip_tag_section(memoryview(b"\xff\xff\xff\x7f"), 0, 10)
