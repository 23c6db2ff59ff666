from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.server import page_cache
from appliance.server.page_cache import is_cached, read_if_cached, warm

SIZE = 2 << 20


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    opened = os.open(path, os.O_RDWR)
    os.fsync(opened)
    yield opened
    os.close(opened)


def forget(descriptor: int, offset: int, size: int) -> bool:
    """Ask the kernel to drop the file's pages; whether it dropped these (it need not, and may drop only others)."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return not is_cached(descriptor, offset, size)


def test_what_was_just_written_is_cached(descriptor: int) -> None:
    assert is_cached(descriptor, 0, SIZE)
    assert read_if_cached(descriptor, 5, 10) == bytes(range(5, 15))


def test_what_the_kernel_has_dropped_is_read_by_a_helper_first(descriptor: int) -> None:
    if forget(descriptor, 1 << 20, 10):
        assert read_if_cached(descriptor, 1 << 20, 10) is None
    warm(descriptor, 0, SIZE)
    assert is_cached(descriptor, 0, SIZE)
    assert read_if_cached(descriptor, 1 << 20, 10) == bytes(range(10))


def test_a_file_that_ends_too_early_is_left_to_the_slow_way(descriptor: int) -> None:
    assert read_if_cached(descriptor, SIZE - 5, 10) is None
    warm(descriptor, SIZE - 5, 10)


def test_without_the_flag_everything_counts_as_cached(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_NOWAIT", 0)
    assert is_cached(descriptor, 0, SIZE)
    assert read_if_cached(descriptor, 5, 10) == bytes(range(5, 15))
    with pytest.raises(OSError, match="ended 5 bytes before"):
        read_if_cached(descriptor, SIZE - 5, 10)
