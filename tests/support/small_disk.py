"""A file system of a few MiB that only the calling thread and those it starts can see: to run full, really."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18


def with_small_disk(folder: Path, size_bytes: int, test: Callable[[], None]) -> None:
    """Run `test` on a thread in a mount namespace of its own, with a tmpfs of that size at `folder`.

    The mount is gone when the threads of the test are.
    """
    if os.geteuid() != 0 or not hasattr(ctypes.CDLL(None), "unshare"):
        pytest.skip("only root may mount a file system")
    folder.mkdir(parents=True, exist_ok=True)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _mount(folder, size_bytes)
            test()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="small-disk")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _mount(folder: Path, size_bytes: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result:
            code = ctypes.get_errno()
            if code in (1, 38):
                pytest.skip(f"no mount namespaces here: {os.strerror(code)}")
            raise OSError(code, os.strerror(code))

    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    options = f"size={size_bytes}".encode()
    check(libc.mount(b"none", bytes(folder), b"tmpfs", ctypes.c_ulong(0), options))
