from __future__ import annotations

import os
from pathlib import Path

import pytest
from crc32c import crc32c

from appliance.tiering.body import PIECE_BYTES, Body, BytesBody, FileBody, body_crc32c
from appliance.tiering.s3 import _BodyFile

DATA = os.urandom(2 * PIECE_BYTES + 777)


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    path = tmp_path / "file"
    path.write_bytes(DATA[:-100])
    return os.open(path, os.O_RDONLY)


def bodies(descriptor: int) -> list[Body]:
    return [BytesBody(DATA), FileBody(descriptor, len(DATA) - 100, DATA[-100:])]


@pytest.mark.parametrize("size", [1, 16_384, PIECE_BYTES, PIECE_BYTES + 1, -1])
def test_the_sdk_reads_the_whole_body_in_pieces_of_any_size(descriptor: int, size: int) -> None:
    for body in bodies(descriptor):
        if size == 1:
            body = BytesBody(DATA[:5_000])
        file = _BodyFile(body)
        pieces = iter(lambda: file.read(size), b"")  # noqa: B023
        assert b"".join(pieces) == DATA[: body.size]
        file.seek(10)
        assert file.read(20) == DATA[10:30]
        file.seek(-7, os.SEEK_END)
        assert (file.read(), file.tell()) == (DATA[: body.size][-7:], body.size)


def test_the_sdk_reads_a_file_in_large_pieces(descriptor: int) -> None:
    body, reads = FileBody(descriptor, len(DATA) - 100, DATA[-100:]), 0
    read_at = body.read_at

    def counted(position: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        return read_at(position, length)

    body.read_at = counted  # type: ignore[method-assign]
    file = _BodyFile(body)
    while file.read(16_384):
        pass
    assert reads <= 4 + 1


def test_a_checksum_is_read_from_the_body_unless_it_is_known(descriptor: int) -> None:
    for body in bodies(descriptor):
        assert body_crc32c(body) == crc32c(DATA)
    tail = DATA[-100:]
    known = FileBody(descriptor, len(DATA) - 100, tail, known_crc32c=crc32c(tail, crc32c(DATA[:-100])))
    assert body_crc32c(known) == crc32c(DATA), "that of the data goes on over the tail"
