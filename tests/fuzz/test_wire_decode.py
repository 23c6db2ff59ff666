"""Bytes from hell: decoding ends with a value or a WireError, soon, and without taking much memory."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc

import pytest

from appliance.wire.codec import (
    WireError,
    decode_from,
    decode_request_header,
    decode_response,
    encode,
)
from appliance.wire.frames import FrameReader, FrameTooLarge
from appliance.wire.schema import Struct
from tests.support.wire_messages import declared_versions, random_message, versions_of_all_that_is_read

SEEDS = range(8)
LONGEST_S = 2.0
"""For one message of at most some kilobytes, on a machine that does other things too."""
NASTY = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x7f\xff",
    b"\x00",
    b"\x01",
    b"\x80",
]


def mutated(data: bytes, source: random.Random) -> bytes:
    """The bytes with a few changes: flipped, cut, doubled, or with a length that lies."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(changed) + 1)
        match source.randrange(5):
            case 0:
                changed[at : at + 1] = source.randbytes(1)
            case 1:
                del changed[at : at + source.randint(1, 8)]
            case 2:
                changed[at:at] = changed[at : at + source.randint(1, 30)]
            case 3:
                nasty = source.choice(NASTY)
                changed[at : at + len(nasty)] = nasty
            case _:
                del changed[at:]
    return bytes(changed)


def read(cls: type[Struct], data: bytes, version: int) -> Struct | None:
    """The value, or None if it was refused; any other exception fails the test."""
    begin = time.perf_counter()
    try:
        value, end = decode_from(cls, data, version, 0)
    except WireError:
        value, end = None, 0
    assert time.perf_counter() - begin < LONGEST_S, f"{cls.__name__} version {version}: {data!r}"
    assert end <= len(data)
    return value


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_messages_give_a_value_or_a_wire_error(seed: int) -> None:
    source = random.Random(seed)
    for cls, version in versions_of_all_that_is_read() * 5:
        data = mutated(encode(random_message(cls, version, source), version), source)
        value = read(cls, data, version)
        if value is not None:
            # What was read can be written and read again: nothing half-read came out.
            assert decode_from(cls, encode(value, version), version, 0)[0] == value


@pytest.mark.parametrize("seed", SEEDS)
def test_random_bytes_give_a_value_or_a_wire_error(seed: int) -> None:
    source = random.Random(seed)
    for cls, version in versions_of_all_that_is_read():
        for length in (0, 3, 40, 400):
            read(cls, source.randbytes(length), version)
        read(cls, b"".join(source.choices(NASTY, k=20)), version)


def test_a_short_message_takes_little_memory_whatever_it_announces() -> None:
    source = random.Random(1)
    inputs = [(cls, version, b"".join(source.choices(NASTY, k=30))) for cls, version in versions_of_all_that_is_read()]
    for cls, version, data in inputs:
        read(cls, data, version)  # makes the decoder, whose memory does not count
    tracemalloc.start()
    try:
        for cls, version, data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            read(cls, data, version)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 256 * 1024, f"{cls.__name__} version {version}: {data!r}"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_headers_of_random_bytes_are_read_or_refused(seed: int) -> None:
    source = random.Random(seed)
    responses = [case for case in declared_versions() if case[0].__name__.endswith("Response")]
    for _ in range(300):
        data = struct.pack(">h", source.choice([source.randint(-5, 80), 18, 3])) + source.randbytes(
            source.randint(0, 30)
        )
        try:
            header = decode_request_header(data)
            assert header.body_offset <= len(data)
        except WireError:
            pass
        cls, version = source.choice(responses)
        try:
            decode_response(cls, data, version)
        except WireError:
            pass


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_of_random_bytes_gives_frames_below_the_limit_or_is_refused(seed: int) -> None:
    source = random.Random(seed)
    reader = FrameReader(1 << 16, buffer_bytes=256)
    try:
        for _ in range(200):
            size = source.choice([0, 1, 200, 1 << 16, source.randint(-1, 1 << 17)])
            for frame in reader.feed(struct.pack(">i", size) + source.randbytes(source.randint(0, 500))):
                assert len(frame) <= 1 << 16
    except FrameTooLarge:
        pass
