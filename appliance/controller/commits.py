"""The bytes of the metadata log in the object store: commits, snapshots and the pointer.

All integers are big-endian; CRC-32C covers everything before it. `docs/formats.md` has the same tables.

    commit    "APMC" u8 version  i64 number  i32 controller epoch  i32 writer id  i64 time (ms)
              16 B nonce  16 B nonce of commit number-1  u32 length, records  u32 crc
    snapshot  "APMS" u8 version  i64 number  i32 controller epoch  i32 writer id  i64 time (ms)
              16 B nonce of commit number  16 B zero  u32 length, body  u32 crc
    pointer   "APMP" u8 version  i64 snapshot  i64 trimmed  i32 controller epoch  i32 writer id  16 B nonce  u32 crc
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import crc32c

from appliance.controller.records import Record, RecordsUnreadable, decode_records, encode_records

VERSION = 1
NONCE_BYTES = 16
NO_NONCE = bytes(NONCE_BYTES)
"""Stands for the nonce before the first commit."""
MAX_COMMIT_BYTES = 1 << 20
"""Rule M7: what is larger is split by partition."""

_COMMIT_MAGIC, _SNAPSHOT_MAGIC, _POINTER_MAGIC = b"APMC", b"APMS", b"APMP"
_HEADER = struct.Struct(">4sBqiiq16s16sI")
_POINTER = struct.Struct(">4sBqqii16s")
_CRC = struct.Struct(">I")

COMMIT_OVERHEAD_BYTES = _HEADER.size + _CRC.size
"""Bytes of a commit beside its records."""


class LogCorrupt(Exception):
    """The metadata log holds what must not be there. Whoever reads it stops and reports; an operator decides."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One object of the log."""

    number: int
    controller_epoch: int
    writer_id: int
    timestamp_ms: int
    """Wall clock of the writer; used to keep a day of commits and by people, never to decide."""
    nonce: bytes
    previous_nonce: bytes
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The image after one commit, as bytes that `appliance.controller.snapshots` makes and reads."""

    number: int
    controller_epoch: int
    writer_id: int
    timestamp_ms: int
    nonce: bytes
    """Of commit `number`, so that the next commit's claim about its predecessor can be checked."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where to begin to read. Both numbers only go up; -1 for none."""

    snapshot: int
    trimmed: int
    """Commit objects up to this number may be gone; one that is there after all counts for nothing."""
    controller_epoch: int
    writer_id: int
    nonce: bytes
    """Keeps an ETag from coming back."""


def encode_commit(commit: Commit) -> bytes:
    """The object's bytes; the same commit always gives the same bytes."""
    return _seal(
        _COMMIT_MAGIC,
        (commit.number, commit.controller_epoch, commit.writer_id, commit.timestamp_ms),
        (commit.nonce, commit.previous_nonce),
        encode_records(commit.records),
    )


def decode_commit(data: bytes) -> Commit:
    """Read a commit object. Raises: LogCorrupt."""
    numbers, (nonce, previous_nonce), body = _open(_COMMIT_MAGIC, data, "commit")
    try:
        records = tuple(decode_records(body))
    except RecordsUnreadable as error:
        raise LogCorrupt(f"commit {numbers[0]}: {error}") from error
    return Commit(*numbers, nonce, previous_nonce, records)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The object's bytes."""
    return _seal(
        _SNAPSHOT_MAGIC,
        (snapshot.number, snapshot.controller_epoch, snapshot.writer_id, snapshot.timestamp_ms),
        (snapshot.nonce, NO_NONCE),
        snapshot.body,
    )


def decode_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot object. Raises: LogCorrupt."""
    numbers, (nonce, _), body = _open(_SNAPSHOT_MAGIC, data, "snapshot")
    return Snapshot(*numbers, nonce, bytes(body))


def encode_pointer(pointer: Pointer) -> bytes:
    """The object's bytes."""
    data = _POINTER.pack(
        _POINTER_MAGIC,
        VERSION,
        pointer.snapshot,
        pointer.trimmed,
        pointer.controller_epoch,
        pointer.writer_id,
        pointer.nonce,
    )
    return data + _CRC.pack(crc32c.crc32c(data))


def decode_pointer(data: bytes) -> Pointer:
    """Read the pointer object. Raises: LogCorrupt."""
    if len(data) != _POINTER.size + _CRC.size:
        raise LogCorrupt(f"pointer: {len(data)} bytes instead of {_POINTER.size + _CRC.size}")
    magic, version, snapshot, trimmed, controller_epoch, writer_id, nonce = _POINTER.unpack_from(data)
    _check(magic == _POINTER_MAGIC, version, data, "pointer")
    return Pointer(snapshot, trimmed, controller_epoch, writer_id, nonce)


def _seal(magic: bytes, numbers: tuple[int, int, int, int], nonces: tuple[bytes, bytes], body: bytes) -> bytes:
    data = _HEADER.pack(magic, VERSION, *numbers, *nonces, len(body)) + body
    return data + _CRC.pack(crc32c.crc32c(data))


def _open(magic: bytes, data: bytes, what: str) -> tuple[tuple[int, int, int, int], tuple[bytes, bytes], memoryview]:
    if len(data) < COMMIT_OVERHEAD_BYTES:
        raise LogCorrupt(f"{what}: only {len(data)} bytes")
    found, version, number, epoch, writer_id, timestamp_ms, nonce, previous, length = _HEADER.unpack_from(data)
    _check(found == magic, version, data, f"{what} {number}")
    if len(data) != COMMIT_OVERHEAD_BYTES + length:
        raise LogCorrupt(f"{what} {number}: {len(data)} bytes instead of {COMMIT_OVERHEAD_BYTES + length}")
    body = memoryview(data)[_HEADER.size : _HEADER.size + length]
    return (number, epoch, writer_id, timestamp_ms), (nonce, previous), body


def _check(magic_fits: bool, version: int, data: bytes, what: str) -> None:
    if not magic_fits:
        raise LogCorrupt(f"{what}: begins with {data[:4]!r}")
    if version != VERSION:
        raise LogCorrupt(f"{what}: has format version {version}, this program reads {VERSION}")
    view = memoryview(data)
    if _CRC.unpack(view[-_CRC.size :])[0] != crc32c.crc32c(view[: -_CRC.size]):
        raise LogCorrupt(f"{what}: crc differs")
