from __future__ import annotations

import struct
import uuid

import pytest

from appliance.groups.records import decode_record, encode_record
from appliance.groups.stored import (
    CommittedOffset,
    GenerationRecord,
    GroupRecord,
    OffsetRecord,
    StoredGeneration,
    StoredMember,
)
from appliance.wire.schema import WireError

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
MEMBER = StoredMember("m-1", "i", "app", "/10.0.0.1", 60_000, 10_000, b"sub", b"own")
GENERATION = StoredGeneration("consumer", 7, "range", "m-1", 1_700_000_000_000, (MEMBER,))

RECORDS: list[GroupRecord] = [
    OffsetRecord("g", "t", 3, CommittedOffset(42, 5, "note", 1_700_000_000_000, -1, TOPIC_ID)),
    OffsetRecord("g", "t", 3, CommittedOffset(42, -1, "", 1_700_000_000_000, 1_700_000_100_000)),
    OffsetRecord("g", "t", 3, None),
    GenerationRecord("g", GENERATION),
    GenerationRecord("g", StoredGeneration("", 0, None, None, -1, ())),
    GenerationRecord("g", None),
]


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_a_record_comes_back_as_it_was(record: GroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_the_bytes_of_an_offset_are_kafkas() -> None:
    key, value = encode_record(RECORDS[0])
    assert key.hex() == "0001" + "000167" + "000174" + "00000003"
    assert value is not None
    assert value.hex() == (
        "0004" + f"{42:016x}" + "00000005" + "05" + b"note".hex() + f"{1_700_000_000_000:016x}"
        # One tagged field: number 0, 16 bytes.
        + "01" + "00" + "10" + TOPIC_ID.hex
    )  # fmt: skip


def test_an_offset_with_an_expiry_is_written_in_the_version_that_has_one() -> None:
    _, value = encode_record(RECORDS[1])
    assert value is not None
    assert value.hex() == ("0001" + f"{42:016x}" + "0000" + f"{1_700_000_000_000:016x}" + f"{1_700_000_100_000:016x}")


def test_the_bytes_of_a_generation_are_kafkas() -> None:
    def text(content: str) -> str:
        return f"{len(content):04x}{content.encode().hex()}"

    key, value = encode_record(RECORDS[3])
    assert key.hex() == "0002" + "000167"
    assert value is not None
    assert value.hex() == (
        "0003" + text("consumer") + "00000007" + text("range") + text("m-1") + f"{1_700_000_000_000:016x}" + "00000001"
        + text("m-1") + text("i") + text("app") + text("/10.0.0.1") + f"{60_000:08x}" + f"{10_000:08x}"
        + "00000003" + b"sub".hex() + "00000003" + b"own".hex()
    )  # fmt: skip


def test_records_of_old_brokers_are_read() -> None:
    offset_v0 = struct.pack(">hqh1sq", 0, 42, 1, b"n", 1_000)
    key = struct.pack(">hh1sh1si", 0, 1, b"g", 1, b"t", 3)
    assert decode_record(key, offset_v0) == OffsetRecord("g", "t", 3, CommittedOffset(42, -1, "n", 1_000))
    member = struct.pack(">h1sh1sh1sii1si1s", 1, b"m", 1, b"c", 1, b"h", 9_000, 1, b"s", 1, b"a")
    generation_v0 = struct.pack(">hh8sih5sh1si", 0, 8, b"consumer", 7, 5, b"range", 1, b"m", 1) + member
    assert decode_record(struct.pack(">hh1s", 2, 1, b"g"), generation_v0) == GenerationRecord(
        "g",
        StoredGeneration(
            "consumer", 7, "range", "m", -1, (StoredMember("m", None, "c", "h", 9_000, 9_000, b"s", b"a"),)
        ),
    )


def test_a_record_of_an_unknown_kind_is_none_of_ours() -> None:
    assert decode_record(struct.pack(">hh1s", 3, 1, b"g"), b"anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", b""),
        (struct.pack(">hh", 1, 9), b""),
        (struct.pack(">hh1s", 2, 1, b"g"), b"\0"),
        (struct.pack(">hh1s", 2, 1, b"g"), struct.pack(">h", 99)),
        (struct.pack(">hh1s", 2, 1, b"g"), struct.pack(">hh", 3, 500)),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error_of_the_wire(key: bytes, value: bytes) -> None:
    with pytest.raises(WireError):
        decode_record(key, value)
