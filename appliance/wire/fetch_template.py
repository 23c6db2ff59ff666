"""A follower's usual fetch: it names one partition, and from one fetch to the next only numbers change.

The follower encodes it once and patches it; the leader finds out by one comparison that nothing but the numbers is new.

Where these numbers stand in the frame is found by encoding numbers that occur nowhere else, so that the layout of the
message is declared in one place only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from appliance.wire.codec import encode_request
from appliance.wire.messages.fetch import FetchRequest

_EPOCH, _OFFSET, _HIGH_WATERMARK = 0x5E551011, 0x0FF5E70FF5E70FF5, 0x419840A7E4419840
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_CORRELATION_ID_AT = 8

MakeRequest = Callable[[int, int, int], FetchRequest]
"""From session epoch, fetch offset and high watermark; all else stays the same."""


class FetchTemplate:
    """Frames that are equal to those of `encode_request`, but for the correlation id, which the link gives."""

    __slots__ = ("_epoch_at", "_frame", "_high_watermark_at", "_offset_at")

    def __init__(self, make: MakeRequest, version: int, client_id: str | None) -> None:
        self._frame = bytearray(encode_request(make(_EPOCH, _OFFSET, _HIGH_WATERMARK), version, 0, client_id))
        self._epoch_at = self._only_place_of(_INT.pack(_EPOCH))
        self._offset_at = self._only_place_of(_LONG.pack(_OFFSET))
        self._high_watermark_at = self._only_place_of(_LONG.pack(_HIGH_WATERMARK))

    @property
    def usable(self) -> bool:
        """False where a topic id happens to have the same bytes as what is looked for."""
        return min(self._epoch_at, self._offset_at, self._high_watermark_at) > 0

    def frame(self, session_epoch: int, fetch_offset: int, high_watermark: int) -> bytearray:
        """To be sent before the next one is asked for: it is one and the same."""
        frame = self._frame
        _INT.pack_into(frame, self._epoch_at, session_epoch)
        _LONG.pack_into(frame, self._offset_at, fetch_offset)
        _LONG.pack_into(frame, self._high_watermark_at, high_watermark)
        return frame

    def numbers(self, buffer: bytearray, position: int, size: int) -> tuple[int, int, int] | None:
        """Session epoch, fetch offset and high watermark of the frame at this place of a buffer; None where anything
        else differs, but for the correlation id.
        """
        frame = self._frame
        if size != len(frame):
            return None
        (epoch,) = _INT.unpack_from(buffer, position + self._epoch_at)
        (offset,) = _LONG.unpack_from(buffer, position + self._offset_at)
        (high_watermark,) = _LONG.unpack_from(buffer, position + self._high_watermark_at)
        self.frame(epoch, offset, high_watermark)
        correlation_id_at = position + _CORRELATION_ID_AT
        frame[_CORRELATION_ID_AT : _CORRELATION_ID_AT + 4] = buffer[correlation_id_at : correlation_id_at + 4]
        return (epoch, offset, high_watermark) if buffer.startswith(frame, position) else None

    def _only_place_of(self, pattern: bytes) -> int:
        return self._frame.find(pattern) if self._frame.count(pattern) == 1 else -1
