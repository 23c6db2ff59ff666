"""Message sets of magic 0 and 1 become batches and come out of them; what is damaged is refused."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import ErrorCode
from appliance.records.batch import CorruptBatch, parse_header, set_log_append_time
from appliance.records.builder import build_batch, build_gap
from appliance.records.compression import Codec, compress
from appliance.records.message_sets import batch_of, encode_message, read_set, sets_of, xxh32
from appliance.records.reader import Record, read_records
from tests.support.java_message_sets import ask_java

CODECS = (0, 1, 2, 3)
MAGICS = (0, 1)
GOLDEN_0 = bytes.fromhex("0000000000000007" + "00000010" + "1fecd70a" + "00" + "00" + "000000016b" + "0000000176")
GOLDEN_1 = bytes.fromhex(
    "0000000000000007" + "00000018" + "7fdc1dec" + "01" + "00" + "0000000000000005" + "000000016b" + "0000000176"
)


def unpacked(message_set: bytes) -> list[Record]:
    made = batch_of(message_set)
    return [] if made is None else list(read_records(made[0]))


def refusal(message_set: bytes) -> ErrorCode:
    with pytest.raises(CorruptBatch) as caught:
        batch_of(message_set)
    return caught.value.code


def message(value: bytes | None = b"v", magic: int = 1, attributes: int = 0, key: bytes | None = b"k") -> bytes:
    return encode_message(0, magic, attributes, 5, key, value)


def test_the_bytes_of_a_message_are_those_of_ten_years_ago() -> None:
    assert message_at_7(0) == GOLDEN_0
    assert message_at_7(1) == GOLDEN_1


def message_at_7(magic: int) -> bytes:
    return encode_message(7, magic, 0, 5, b"k", b"v")


fields = st.none() | st.binary(max_size=40)
rows = st.lists(st.tuples(st.integers(0, 2**40), fields, fields), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from(MAGICS), st.sampled_from(CODECS), st.integers(0, 2**50))
def test_what_goes_out_comes_back(
    records: list[tuple[int, bytes | None, bytes | None]], magic: int, codec: int, base_offset: int
) -> None:
    batch = build_batch([(*record, [("h", b"x")]) for record in records], codec=codec, base_offset=base_offset)
    made = sets_of(batch, magic, 0)
    assert (made.record_count, made.next_offset) == (len(records), base_offset + len(records))
    back = unpacked(made.records)
    assert [record.offset for record in back] == list(range(len(records)))
    expected = [(timestamp if magic else -1, key, value) for timestamp, key, value in records]
    assert [(record.timestamp, record.key, record.value) for record in back] == expected
    again = batch_of(made.records)
    assert again is not None and parse_header(again[0]).codec == codec


def test_a_wrapper_has_the_offset_of_its_last_record_and_offsets_from_its_first_in_magic_1() -> None:
    batch = build_batch([(5, None, b"a", ()), (9, None, b"b", ()), (7, None, b"c", ())], codec=1, base_offset=40)
    for magic, inner in ((0, [40, 41, 42]), (1, [0, 1, 2])):
        (wrapper,) = read_set(sets_of(batch, magic, 0).records)
        assert (wrapper.offset, wrapper.codec, wrapper.timestamp) == (42, 1, 9 if magic else -1)
        assert wrapper.value is not None
        assert [each.offset for each in read_set(zlib.decompress(wrapper.value, wbits=31))] == inner


def test_readers_get_what_they_can_know() -> None:
    def of(count: int, base_offset: int, **how: bool | int) -> bytes:
        return build_batch([(1, b"k", b"v", ())] * count, base_offset=base_offset, **how)  # type: ignore[arg-type]

    log = of(3, 10) + of(1, 13, producer_id=5, producer_epoch=0, transactional=True, control=True) + of(2, 14)
    found = sets_of(log, 1, 12)
    assert [each.offset for each in read_set(found.records)] == [12, 14, 15]
    assert (found.record_count, found.next_offset) == (3, 16)
    nothing = sets_of(of(1, 7, producer_id=5, producer_epoch=0, transactional=True, control=True), 0, 7)
    assert nothing == (b"", 0, 8)
    assert sets_of(build_gap(5, 0), 0, 0) == (b"", 0, 5)
    assert sets_of(b"", 1, 0) == (b"", 0, -1)
    assert sets_of(of(2, 0) + of(2, 2)[:-1], 1, 0).next_offset == 2, "a batch that is cut off is for the next time"


def test_the_time_of_the_append_is_that_of_all_records() -> None:
    batch = bytearray(build_batch([(5, None, b"a", ()), (6, None, b"b", ())]))
    set_log_append_time(batch, 99)
    assert [(each.attributes, each.timestamp) for each in read_set(sets_of(batch, 1, 0).records)] == [(8, 99)] * 2
    assert [each.attributes for each in read_set(sets_of(batch, 0, 0).records)] == [0, 0]


def test_zstd_is_nothing_for_them() -> None:
    packed = build_batch([(1, None, b"v", ())], codec=4, base_offset=2)
    with pytest.raises(CorruptBatch) as caught:
        sets_of(packed, 1, 2)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    found = sets_of(build_batch([(1, None, b"v", ())] * 2) + packed, 1, 0)
    assert (found.record_count, found.next_offset) == (2, 2), "what comes before it"


def test_a_message_that_is_cut_off_at_the_end_is_passed_over() -> None:
    both = message(b"a") + message(b"b")
    for missing in range(1, len(message())):
        assert [record.value for record in unpacked(both[:-missing])] == [b"a"]
    assert batch_of(message()[:-1]) is None
    assert batch_of(b"") is None


@pytest.mark.parametrize("magic", MAGICS)
def test_what_is_wrong_is_refused_by_kafkas_codes(magic: int) -> None:
    good = message(magic=magic)
    assert refusal(good[:-1] + b"x") == ErrorCode.CORRUPT_MESSAGE
    assert refusal(good[:8] + struct.pack(">i", 3) + good[12:]) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(good[:16] + b"\x07" + good[17:]) == ErrorCode.INVALID_RECORD
    packed = message(compress(1, good), magic, 1, None)
    assert [record.value for record in unpacked(packed)] == [b"v"]
    for wrong in (
        packed + good,
        good + packed,
        message(None, magic, 1),
        message(compress(1, b""), magic, 1),
        message(compress(1, good[:-1]), magic, 1),
        message(compress(1, packed), magic, 1),
        message(compress(1, message(magic=1 - magic)), magic, 1),
        message(compress(4, good), magic, 4),
        message(good, magic, 7),
    ):
        assert refusal(wrong) == ErrorCode.INVALID_RECORD
    assert refusal(message(b"no gzip", magic, 1)) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(message(compress(1, good[:-1] + b"x"), magic, 1)) == ErrorCode.CORRUPT_MESSAGE


def test_producers_do_not_set_the_time_of_the_append() -> None:
    assert refusal(message(attributes=8)) == ErrorCode.INVALID_TIMESTAMP


def test_what_a_wrapper_unpacks_to_has_a_limit() -> None:
    with pytest.raises(CorruptBatch, match="more than"):
        batch_of(message(compress(1, message(bytes(100_000))), attributes=1), max_bytes=50_000)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_is_converted_or_refused(seed: int) -> None:
    source = random.Random(seed)
    for codec in CODECS:
        for magic in MAGICS:
            batch = build_batch([(n, b"k", bytes(n), ()) for n in range(5)], codec=codec)
            for whole, convert in (
                (sets_of(batch, magic, 0).records, lambda data: batch_of(data, 1 << 20)),
                (batch, lambda data, magic=magic: sets_of(data, magic, 0)),
            ):
                for _ in range(30):
                    data = bytearray(whole)
                    for _ in range(source.randint(1, 4)):
                        data[source.randrange(len(data))] = source.randrange(256)
                    try:
                        convert(bytes(data[: source.randint(0, len(data))]))
                    except CorruptBatch:
                        continue


def test_the_hash_of_lz4_frames() -> None:
    """Test vectors of xxHash."""
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a") == 0x550D7456
    assert xxh32(b"abc") == 0x32D153FF


@pytest.mark.java
def test_java_writes_and_reads_the_same(tmp_path: Path) -> None:
    """Kafka 3.9 is the last that knows message sets."""
    cases = [(magic, codec) for magic in MAGICS for codec in CODECS]
    records = [(1_000 + n, None if n % 3 == 0 else b"k%d" % n, b"value %d" % n) for n in range(7)]
    batches = {codec: build_batch([(*row, ()) for row in records], codec=codec, base_offset=50) for codec in CODECS}
    gap = build_batch([(5, b"x", b"later", [("h", b"1")])], base_offset=90)
    control = build_batch(
        [(5, b"\0\0\0\0", b"\0" * 6, ())],
        base_offset=80,
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    logs = {codec: batches[codec] + control + gap for codec in CODECS}
    ours = {(magic, codec): sets_of(logs[codec], magic, 53).records for magic, codec in cases}
    answers = ask_java(
        tmp_path,
        [f"WRITE {magic} {codec} 7" for magic, codec in cases]
        + [f"DOWN {magic} 53 {logs[codec].hex()}" for magic, codec in cases]
        + [f"READ {ours[case].hex()}" for case in cases],
    )
    written, converted, read = (answers[at : at + len(cases)] for at in (0, len(cases), 2 * len(cases)))
    for case, (magic, codec) in enumerate(cases):
        back = [(record.timestamp, record.key, record.value) for record in unpacked(bytes.fromhex(written[case]))]
        assert back == [(timestamp if magic else -1, key, value) for timestamp, key, value in records]
        theirs, mine = read_set(bytes.fromhex(converted[case])), read_set(ours[magic, codec])
        if codec:
            assert [each[:5] for each in theirs] == [each[:5] for each in mine], "all but how it was packed"
        else:
            assert ours[magic, codec].hex() == converted[case]
        shown = [
            f"{offset}:{timestamp if magic else -1}:{_hex(key)}:{_hex(value)}"
            for offset, (timestamp, key, value) in [
                *zip(range(50, 57), records, strict=True),
                (90, (5, b"x", b"later")),
            ]
            if codec or offset >= 53
        ]
        assert read[case] == " ".join(shown)


def _hex(data: bytes | None) -> str:
    return "-" if data is None else "x" + data.hex()


def test_the_codecs_are_those_of_their_time() -> None:
    assert CODECS == (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
