"""The disk seam: every call by which the log touches the file system, so that a test can cut the power between two."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast


class Disk(Protocol):
    """Files by descriptor, names by path. Errors are `OSError`, as the operating system raises them."""

    def open(self, path: Path | str, flags: int, mode: int = 0o644) -> int:
        """A file descriptor, close-on-exec. A plain string is cheaper to make, where there are thousands."""

    def close(self, descriptor: int) -> None: ...

    def writev(self, descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
        """Append at the descriptor's position; returns the bytes written, which may be fewer than given."""

    def pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int: ...

    def pread(self, descriptor: int, length: int, position: int) -> bytes: ...

    def truncate(self, descriptor: int, length: int) -> None: ...

    def size(self, descriptor: int) -> int: ...

    def fsync(self, descriptor: int) -> None: ...

    def fdatasync(self, descriptor: int) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None: ...

    def rmdir(self, path: Path) -> None: ...

    def listdir(self, path: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def fsync_directory(self, path: Path) -> None:
        """Make renames, creations and removals in a directory durable."""

    @property
    def can_sync_all(self) -> bool:
        """Whether `sync_all` is to be had here."""

    def sync_all(self, path: Path) -> None:
        """Make everything durable that was written to the file system of a directory, by whomever."""

    def free_bytes(self, path: Path) -> int: ...

    def total_bytes(self, path: Path) -> int:
        """Size of the file system that holds `path`."""

    def start_writeback(self, descriptor: int, position: int, length: int) -> None:
        """Let the kernel begin to write these dirty pages to the disk. Promises nothing, raises nothing."""


class Pages(Protocol):
    """Where pieces of files are read from: a `Disk`, or only what is in memory of one."""

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        """Raises: WouldWait."""


class WouldWait(BlockingIOError):
    """The disk has to be read for this, and whoever asks must not wait for it."""


_SYNC_FILE_RANGE_WRITE = 2


def _load_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux has it, and Python has no name for it. A call through ctypes lets other threads go on meanwhile."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    return cast(Callable[[int, int, int, int], int], function)


_sync_file_range = _load_sync_file_range()


def _load_syncfs() -> Callable[[int], int] | None:
    """The same for syncfs, which tells its errors by errno."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int
    return cast(Callable[[int], int], function)


_syncfs = _load_syncfs()


class SystemDisk:
    """The file system of this host."""

    def open(self, path: Path | str, flags: int, mode: int = 0o644) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def writev(self, descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
        return os.writev(descriptor, pieces)

    def pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        return os.pwrite(descriptor, data, position)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        return os.pread(descriptor, length, position)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        # macOS has no fdatasync; fsync is the stronger of the two.
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 (names, not paths)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def fsync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def can_sync_all(self) -> bool:
        return _syncfs is not None

    def sync_all(self, path: Path) -> None:
        if _syncfs is None:
            raise OSError(errno.ENOSYS, "this host has no syncfs")
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def start_writeback(self, descriptor: int, position: int, length: int) -> None:
        if _sync_file_range is not None:
            _sync_file_range(descriptor, position, length, _SYNC_FILE_RANGE_WRITE)

    def total_bytes(self, path: Path) -> int:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize
