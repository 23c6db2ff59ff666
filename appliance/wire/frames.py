"""Frames: a size (int32, big-endian) and so many bytes. A connection's reading half, without the socket."""

from __future__ import annotations

import struct

from appliance.wire.schema import WireError

_SIZE = struct.Struct(">i")


class FrameTooLarge(WireError):
    """A peer announced a frame above the limit, or one of negative size; nothing after it can be understood."""


class FrameReader:
    """Bytes in, whole frames out.

    A frame is a view into the receive buffer and may be kept: the buffer is used again only once no view of it is
    left. A view that is kept pins the whole buffer, so drop it soon or copy what must live longer.

    Args:
        max_frame_bytes: a frame above it is refused before memory is taken for it.
        buffer_bytes: size of the buffer at first, and the most that one read takes while no larger frame is on its way.
    """

    def __init__(self, max_frame_bytes: int, buffer_bytes: int = 64 * 1024) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray(buffer_bytes)
        self._start = 0
        self._end = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._end - self._start

    def free_space(self) -> memoryview:
        """Where the next bytes belong (for `recv_into`), never empty; `received` tells how many came."""
        pending = self._end - self._start
        needed = self._frame_end() if pending >= _SIZE.size else _SIZE.size
        # A frame larger than a buffer gets one of its own size, filled without moving it again. Below that a read
        # should bring many small frames at once, so the rest of a buffer is given up when it has become short.
        least = needed - pending if needed > self._buffer_bytes else self._buffer_bytes // 4
        if not pending and self._is_free():
            if self._end <= self._buffer_bytes < len(self._buffer):
                self._buffer = bytearray(self._buffer_bytes)
            self._start = self._end = 0
        elif len(self._buffer) - self._end < least:
            # What is still read from the old buffer must not change under its reader: a new one takes the rest over.
            bigger = bytearray(max(self._buffer_bytes, needed))
            bigger[:pending] = memoryview(self._buffer)[self._start : self._end]
            self._buffer, self._start, self._end = bigger, 0, pending
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """`count` bytes were put into `free_space`; returns the frames that are complete now, without their sizes.

        Raises:
            FrameTooLarge: a size is negative or above the limit.
        """
        self._end += count
        frames: list[memoryview] = []
        start, end = self._start, self._end
        view = memoryview(self._buffer)
        while end - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(view, start)
            if not 0 <= size <= self.max_frame_bytes:
                raise FrameTooLarge(f"a frame of {size} bytes was announced; the limit is {self.max_frame_bytes}")
            stop = start + _SIZE.size + size
            if stop > end:
                break
            frames.append(view[start + _SIZE.size : stop])
            start = stop
        self._start = start
        return frames

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """Take bytes that were read elsewhere; returns the frames that are complete now.

        Raises:
            FrameTooLarge: a size is negative or above the limit.
        """
        frames: list[memoryview] = []
        rest = memoryview(data)
        while rest:
            with self.free_space() as space:
                count = min(len(space), len(rest))
                space[:count] = rest[:count]
            rest = rest[count:]
            frames += self.received(count)
        return frames

    def _frame_end(self) -> int:
        """The bytes from the start of the pending frame to its end; its size was checked when it came."""
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        return _SIZE.size + int(size)

    def _is_free(self) -> bool:
        """Whether nobody holds a view of the buffer: Python refuses to resize one that is looked at."""
        try:
            self._buffer.append(0)
        except BufferError:
            return False
        self._buffer.pop()
        return True
