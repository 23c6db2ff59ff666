"""Whether a piece of a file lies in the page cache, so that the event loop never waits for a disk.

Linux answers that with RWF_NOWAIT: a read that would have to wait fails instead. Where the system or the file system
has no such flag, everything counts as cached.
"""

from __future__ import annotations

import errno
import os

from appliance.base.disk import WouldWait

PROBE_EVERY_BYTES = 256 * 1024
WARM_BYTES = 1 << 20

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_WOULD_WAIT = (errno.EAGAIN, errno.EWOULDBLOCK)


def read_if_cached(descriptor: int, position: int, length: int) -> bytes | None:
    """The bytes, or None when the disk would have to be read. Raises OSError when the file is shorter."""
    if not _NOWAIT:
        return _whole(os.pread(descriptor, length, position), length)
    buffer = bytearray(length)
    try:
        count = os.preadv(descriptor, [buffer], position, _NOWAIT)
    except OSError as error:
        if error.errno in _WOULD_WAIT:
            return None
        if error.errno != errno.EOPNOTSUPP:
            raise
        return _whole(os.pread(descriptor, length, position), length)
    if count < length:
        # The rest is not cached, or the file has become shorter: the slow way finds out.
        return None
    return bytes(buffer)


class CachedPages:
    """Reads what lies in the page cache, and raises WouldWait for all else (`appliance.base.disk.Pages`)."""

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        data = read_if_cached(descriptor, position, length)
        if data is None:
            raise WouldWait(f"{length} bytes at {position} are not in the page cache")
        return data


CACHED_PAGES = CachedPages()


def is_cached(descriptor: int, position: int, length: int) -> bool:
    """Whether the piece can be sent without waiting for the disk, as far as a few looks into it tell."""
    if not _NOWAIT:
        return True
    one = bytearray(1)
    end = position + length
    try:
        for at in (*range(position, end, PROBE_EVERY_BYTES), end - 1):
            os.preadv(descriptor, [one], at, _NOWAIT)
    except OSError as error:
        return error.errno not in _WOULD_WAIT
    return True


def warm(descriptor: int, position: int, length: int) -> None:
    """Read the piece from the disk, for the page cache. Blocks: helper threads only."""
    end = position + length
    while position < end:
        if not os.pread(descriptor, min(WARM_BYTES, end - position), position):
            return
        position += WARM_BYTES


def _whole(data: bytes, length: int) -> bytes:
    if len(data) < length:
        raise OSError(f"a file ended {length - len(data)} bytes before what its index promised")
    return data
