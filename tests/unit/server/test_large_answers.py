"""Answers with much in memory, such as records from the object store: sent in parts, and not copied with each part."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from appliance.server.connection import Connection
from appliance.server.dispatcher import HandlerEntry
from appliance.server.requests import JOINED_MAX_BYTES, FileRange, OutputItem, Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.codec import encode_request
from appliance.wire.messages.metadata import MetadataRequest
from tests.support.server import ServerThread, receive_frame, running_server

LARGE = bytes(range(256)) * (6 << 12)
"""6 MiB in a pattern that shows when a part is missing."""
WAIT_S = 30


class Kept:
    """Stands for the segment of a file range."""

    released = 0

    def release(self) -> None:
        self.released += 1


def framed(correlation_id: int, parts: list[bytes]) -> bytes:
    return struct.pack(">ii", 4 + sum(map(len, parts)), correlation_id)


@pytest.mark.parametrize("kinds", ["L", "sL", "Ls", "sLs", "LL", "LfL", "fLs", "sLfsLs"])
def test_large_parts_come_whole_and_in_order(tmp_path: Path, kinds: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"file" * 500)
    small = b"small" * 10
    kept = Kept()
    parts = {"L": LARGE[: 1 << 20], "s": small, "f": file.read_bytes()}

    with file.open("rb") as opened:

        def handle(_: object, request: Request) -> Pending:
            pending = request.pending()
            wanted = [parts[kind] for kind in kinds]
            items: list[OutputItem] = [framed(request.correlation_id, wanted)]
            for kind in kinds:
                is_file = kind == "f"
                items.append(FileRange(opened.fileno(), 0, 2_000, kept) if is_file else parts[kind])  # type: ignore[arg-type]
            pending.answer_items(items)
            return pending

        with running_server({ApiKey.METADATA: HandlerEntry(handle)}) as server, server.connect() as sock:
            for number in range(2):
                sock.sendall(encode_request(MetadataRequest(topics=None), 4, number, "t"))
            time.sleep(0.05)
            for number in range(2):
                frame = receive_frame(sock)
                assert frame == struct.pack(">i", number) + b"".join(parts[kind] for kind in kinds)
    assert kept.released == 2 * kinds.count("f")


def test_the_rest_of_a_large_part_is_not_copied(tmp_path: Path) -> None:
    def handle(_: object, request: Request) -> Pending:
        pending = request.pending()
        pending.answer_items([framed(request.correlation_id, [LARGE]), LARGE])
        return pending

    with running_server({ApiKey.METADATA: HandlerEntry(handle)}) as server, server.connect() as sock:
        sock.sendall(encode_request(MetadataRequest(topics=None), 4, 1, "t"))
        deadline = time.monotonic() + WAIT_S
        while (rest := server.on_loop(lambda: rest_of(server))) is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert isinstance(rest, memoryview) and rest.obj is LARGE
        assert len(LARGE) > len(rest) > JOINED_MAX_BYTES
        assert receive_frame(sock)[4:] == LARGE


def rest_of(server: ServerThread) -> object:
    """What waits for the socket of the only connection."""
    connections: list[Connection] = list(server.server.connections)
    unsent = connections[0]._unsent if connections else None
    return unsent[0] if unsent else None
