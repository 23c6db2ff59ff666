"""The five codecs, their frames as Java writes them, and bombs."""

from __future__ import annotations

import gzip
import os
import random
import struct
import tracemalloc

import lz4.frame
import pytest
import snappy
import zstandard

from appliance.base.errors import ErrorCode
from appliance.records.compression import Codec, compress, decompress
from appliance.records.errors import CorruptBatch

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = [b"", b"a", b"abc" * 50_000, os.urandom(100_000), bytes(1 << 20)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", SAMPLES, ids=["empty", "one", "text", "random", "zeros"])
def test_what_is_packed_comes_out_again(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


def test_no_codec_means_no_copy() -> None:
    data = bytearray(b"as it is")
    view = decompress(Codec.NONE, data)
    assert isinstance(view, memoryview) and view.obj is data


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_before_it_fills_the_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, bomb, max_bytes=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("codec", PACKED)
def test_exactly_the_bound_is_allowed(codec: Codec) -> None:
    data = os.urandom(5_000)
    assert decompress(codec, compress(codec, data), max_bytes=5_000) == data
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, data), max_bytes=4_999)


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_is_corrupt(codec: Codec) -> None:
    # One zero byte is an empty block of raw snappy.
    for garbage in (b"", b"\1", b"garbage" * 10, random.Random(3).randbytes(200)):
        with pytest.raises(CorruptBatch):
            decompress(codec, garbage)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_block_that_is_cut_off_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, os.urandom(10_000))
    for length in (len(packed) - 1, len(packed) // 2, 10):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:length])


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_has_a_code_of_its_own(codec: int) -> None:
    for function in (compress, decompress):
        with pytest.raises(CorruptBatch) as refusal:
            function(codec, b"x")
        assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_snappy_is_written_in_xerial_frames_and_read_raw_too() -> None:
    data = b"0123456789" * 10_000
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert decompress(Codec.SNAPPY, snappy.compress(data)) == data


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_refused() -> None:
    claim = b"\xff\xff\xff\x7f" + b"\0" * 20
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, claim)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_lz4_blocks_are_independent_because_java_reads_no_others() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, b"x" * 500_000))
    assert not info["block_linked"]
    assert info["block_size"] == 65536


def test_lz4_with_linked_blocks_and_checksums_is_read_all_the_same() -> None:
    data = os.urandom(1000) * 300
    packed = lz4.frame.compress(data, block_linked=True, content_checksum=True, store_size=True)
    assert decompress(Codec.LZ4, packed) == data


def test_gzip_and_zstd_may_come_in_several_members() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    frames = zstandard.compress(b"one ") + zstandard.compress(b"two")
    assert decompress(Codec.ZSTD, frames) == b"one two"
