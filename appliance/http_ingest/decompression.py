"""Compressed request bodies (Content-Encoding), undone piece by piece within a limit."""

from __future__ import annotations

import zlib
from typing import Protocol

import zstandard

from appliance.http_ingest.bodies import BadRequest


class Decompressor(Protocol):
    def feed(self, data: bytes) -> bytes:
        """What `data` decompresses to. Raises BadRequest: 400 not such data, 413 more than the limit."""

    def finish(self) -> None:
        """The body has ended. Raises BadRequest: 400 in the middle of the data."""


def decompressor_for(encoding: str, max_bytes: int) -> Decompressor:
    """For a Content-Encoding header; `max_bytes` bounds the whole body after decompression.

    Raises:
        BadRequest: 415, the encoding is not known.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return _Identity(max_bytes)
        case "gzip" | "x-gzip":
            return _Gzip(max_bytes)
        case "zstd":
            return _Zstandard(max_bytes)
        case other:
            raise BadRequest(
                415, "UNSUPPORTED_ENCODING", f"Content-Encoding {other}: gzip, zstd and identity are known"
            )


class _Identity:
    def __init__(self, max_bytes: int) -> None:
        self._left = self._max_bytes = max_bytes

    def feed(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._max_bytes)
        return data

    def finish(self) -> None:
        pass


class _Gzip:
    def __init__(self, max_bytes: int) -> None:
        self._left = self._max_bytes = max_bytes
        self._inner = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> bytes:
        pieces = []
        while data:
            if self._inner.eof:
                # Several gzip members one after the other are one body.
                self._inner = zlib.decompressobj(wbits=31)
            try:
                piece = self._inner.decompress(data, self._left + 1)
            except zlib.error as error:
                raise BadRequest(400, "INVALID_ENCODING", f"the body is not gzip: {error}") from None
            self._left -= len(piece)
            if self._left < 0:
                raise _too_large(self._max_bytes)
            pieces.append(piece)
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
        return b"".join(pieces)

    def finish(self) -> None:
        if not self._inner.eof:
            raise BadRequest(400, "INVALID_ENCODING", "the gzip body is cut off")


class _Zstandard:
    def __init__(self, max_bytes: int) -> None:
        self._left = self._max_bytes = max_bytes
        # The window is the decompressor's memory; the sender chooses it, so it is bounded too.
        self._inner = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES).decompressobj()

    def feed(self, data: bytes) -> bytes:
        if not data:
            return b""
        pieces = []
        for start in range(0, len(data), _ZSTD_STEP_BYTES):
            try:
                piece = self._inner.decompress(data[start : start + _ZSTD_STEP_BYTES])
            except zstandard.ZstdError as error:
                raise BadRequest(400, "INVALID_ENCODING", f"the body is not zstd: {error}") from None
            self._left -= len(piece)
            if self._left < 0:
                raise _too_large(self._max_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def finish(self) -> None:
        if not self._inner.eof:
            raise BadRequest(400, "INVALID_ENCODING", "the zstd body is cut off")


_MAX_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
_ZSTD_STEP_BYTES = 512
"""Small steps, because one call gives back everything its input stands for: up to 128 KiB for four bytes."""


def _too_large(max_bytes: int) -> BadRequest:
    return BadRequest(413, "BODY_TOO_LARGE", f"the body is larger than {max_bytes} bytes; send several requests")
