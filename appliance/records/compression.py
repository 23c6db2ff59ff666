"""The five codecs, as Kafka's Java clients write and read them, with a bound on what comes out.

The records of a batch are compressed as one block:

1. gzip: one or more members
2. snappy: xerial's frame (magic, two i32 versions, then blocks of i32 length + raw snappy), or raw snappy as some
   clients send it
3. lz4: the frame format; Java reads only independent blocks
4. zstd: one or more frames
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Any

import lz4.frame
import snappy
import zstandard

from appliance.base.errors import ErrorCode
from appliance.records.errors import CorruptBatch

DECOMPRESSED_MAX_BYTES = 256 << 20
"""The most that one batch may unpack to. A batch of max.message.bytes can claim a thousand times its size."""


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_PIECE_BYTES = 64 * 1024
_LZ4_LEVEL_DEFAULT = 9
_LZ4_LEVEL_MIN = 3
"""Of the thorough compressor; the library takes lower ones for the fast one."""
_ZSTD_LEVEL_DEFAULT = 3
_ZSTD_WINDOW_MAX_BYTES = 1 << 27
"""The window that zstd's own tools accept unasked; Java's too."""


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """The records' bytes, packed; with a level as Kafka's `compression.*.level` counts, or its default.

    Raises:
        CorruptBatch: there is no such codec.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, level=-1 if level is None else level, wbits=31)
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            packed: bytes = lz4.frame.compress(
                data,
                # To Kafka its default, 9, is the fast compressor; all others are levels of the thorough one.
                compression_level=0 if level is None or level == _LZ4_LEVEL_DEFAULT else max(level, _LZ4_LEVEL_MIN),
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return packed
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=_ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)
        case _:
            raise _unknown(codec)


def decompress(
    codec: int, data: bytes | bytearray | memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES
) -> bytes | memoryview:
    """The records' bytes, unpacked; with codec 0 a view of `data` itself.

    Raises:
        CorruptBatch: the block is damaged or cut off, unpacks to more than `max_bytes`, or there is no such codec.
    """
    if codec == Codec.NONE:
        return memoryview(data)
    if codec not in _DECOMPRESSORS:
        raise _unknown(codec)
    try:
        return _DECOMPRESSORS[codec](memoryview(data), max_bytes)
    except (zlib.error, zstandard.ZstdError, snappy.UncompressError, RuntimeError, ValueError, EOFError) as error:
        raise CorruptBatch(f"{Codec(codec).name.lower()} block of {len(data)} bytes: {error}") from error


def _unknown(codec: int) -> CorruptBatch:
    return CorruptBatch(f"compression codec {codec} is not known", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def _too_much(max_bytes: int) -> CorruptBatch:
    return CorruptBatch(f"the batch unpacks to more than {max_bytes} bytes")


def _decompress_gzip(data: memoryview, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    rest: bytes | memoryview = data
    room = max_bytes
    while True:
        member = zlib.decompressobj(wbits=31)
        piece = member.decompress(rest, room + 1)
        room -= len(piece)
        if room < 0:
            raise _too_much(max_bytes)
        if not member.eof:
            raise CorruptBatch("gzip block is cut off")
        pieces.append(piece)
        rest = member.unused_data
        if not rest:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _compress_xerial(data: memoryview) -> bytes:
    pieces: list[bytes] = [_XERIAL_HEADER]
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(data[position : position + _XERIAL_BLOCK_BYTES]))
        pieces += (struct.pack(">i", len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(data, max_bytes, max_bytes)
    pieces: list[bytes] = []
    room = max_bytes
    position, end = len(_XERIAL_HEADER), len(data)
    if end < position:
        raise CorruptBatch("snappy block is cut off")
    while position < end:
        if end - position < 4:
            raise CorruptBatch("snappy block is cut off")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or length > end - position:
            raise CorruptBatch(f"snappy block of {length} bytes where {end - position} are left")
        piece = _decompress_raw_snappy(data[position : position + length], room, max_bytes)
        room -= len(piece)
        pieces.append(piece)
        position += length
    return b"".join(pieces)


def _decompress_raw_snappy(data: memoryview, room: int, max_bytes: int) -> bytes:
    # Raw snappy begins with its unpacked length, so a bomb is refused before it is opened.
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CorruptBatch("snappy block has no length")
    if length > room:
        raise _too_much(max_bytes)
    # Snappy packs at most about 64 bytes into 3: a longer claim is a lie that would only cost memory.
    if length > 32 * len(data) + 64:
        raise CorruptBatch(f"snappy block of {len(data)} bytes claims {length}")
    unpacked: bytes = snappy.uncompress(bytes(data))
    return unpacked


def _decompress_lz4(data: memoryview, max_bytes: int) -> bytes:
    frame: Any = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    room = max_bytes
    rest: bytes | memoryview = data
    # The library takes as much memory as it may return, so it is asked for a little at a time.
    piece_bytes = max(_LZ4_PIECE_BYTES, 4 * len(data))
    while not frame.eof:
        piece: bytes = frame.decompress(rest, max_length=min(room + 1, piece_bytes))
        room -= len(piece)
        if room < 0:
            raise _too_much(max_bytes)
        if not piece and not frame.eof:
            raise CorruptBatch("lz4 frame is cut off")
        pieces.append(piece)
        rest = b""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decompress_zstd(data: memoryview, max_bytes: int) -> bytes:
    if not data:
        raise CorruptBatch("zstd block is empty")
    pieces: list[bytes] = []
    room = max_bytes
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES)
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while piece := reader.read(min(room + 1, 1 << 20)):
            room -= len(piece)
            if room < 0:
                raise _too_much(max_bytes)
            pieces.append(piece)
    return b"".join(pieces)


_DECOMPRESSORS = {
    int(Codec.GZIP): _decompress_gzip,
    int(Codec.SNAPPY): _decompress_snappy,
    int(Codec.LZ4): _decompress_lz4,
    int(Codec.ZSTD): _decompress_zstd,
}
