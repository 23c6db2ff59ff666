from __future__ import annotations

import struct

import pytest

from appliance.wire.frames import FrameReader, FrameTooLarge


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 1000])
def test_frames_come_out_whole_however_the_bytes_come_in(step: int) -> None:
    bodies = [b"", b"a", b"b" * 100, b"c" * 5, b"d" * 300]
    data = framed(*bodies)
    reader = FrameReader(1000, buffer_bytes=64)
    got = []
    for start in range(0, len(data), step):
        got += [bytes(frame) for frame in reader.feed(data[start : start + step])]
    assert got == bodies
    assert reader.pending_bytes == 0


def test_what_is_received_into_the_free_space_is_the_frame() -> None:
    reader = FrameReader(1000)
    data = framed(b"one", b"two") + b"\x00\x00"
    with reader.free_space() as space:
        space[: len(data)] = data
    assert [bytes(frame) for frame in reader.received(len(data))] == [b"one", b"two"]
    assert reader.pending_bytes == 2


def test_a_frame_that_is_kept_does_not_change() -> None:
    reader = FrameReader(1000, buffer_bytes=64)
    kept = [frame for body in (b"1", b"2", b"3") for frame in reader.feed(framed(body * 20))]
    for _ in range(50):
        reader.feed(framed(b"x" * 50))
    assert [bytes(frame) for frame in kept] == [b"1" * 20, b"2" * 20, b"3" * 20]


def test_the_buffer_is_used_again_when_no_frame_is_kept() -> None:
    reader = FrameReader(1000, buffer_bytes=64)
    buffers = set()
    for _ in range(50):
        reader.feed(framed(b"x" * 40))
        with reader.free_space() as space:
            buffers.add(id(space.obj))
    assert len(buffers) == 1


def test_a_large_frame_gets_a_buffer_of_its_own_size_and_gives_it_back() -> None:
    reader = FrameReader(10_000, buffer_bytes=64)
    data = framed(b"x" * 5000)
    assert not reader.feed(data[:10])
    with reader.free_space() as space:
        assert len(space) == len(data) - 10
    assert len(reader.feed(data[10:])[0]) == 5000
    for _ in range(2):
        reader.feed(framed(b"small"))
    with reader.free_space() as space:
        assert len(space.obj) == 64


def test_memory_is_taken_for_a_frame_only_once_its_size_is_allowed() -> None:
    reader = FrameReader(1000, buffer_bytes=64)
    assert len(reader.feed(framed(b"x" * 1000))[0]) == 1000
    with pytest.raises(FrameTooLarge, match="1001"):
        reader.feed(struct.pack(">i", 1001))


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(FrameTooLarge, match="-1"):
        FrameReader(1000).feed(struct.pack(">i", -1))


def test_a_size_beyond_the_limit_is_refused_behind_good_frames() -> None:
    with pytest.raises(FrameTooLarge):
        FrameReader(1000).feed(framed(b"good") + b"GET / HTTP/1.1\r\n")
