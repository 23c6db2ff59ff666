from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appliance.tiering.chunk_cache import ChunkCache


def test_what_was_put_is_got_back(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 100)
    cache.put(("a", 0), b"x" * 40)
    cache.put(("a", 1), b"y" * 40)
    assert (cache.get(("a", 0)), cache.get(("a", 1)), cache.get(("b", 0))) == (b"x" * 40, b"y" * 40, None)
    assert (cache.hits, cache.misses) == (2, 1)


def test_the_least_recently_used_chunk_leaves_first(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 100)
    for number in range(3):
        cache.put(("a", number), bytes(33))
    cache.get(("a", 0))
    cache.put(("a", 3), bytes(33))
    assert [cache.get(("a", number)) is not None for number in range(4)] == [True, False, True, True]
    assert cache.size_bytes == 99 and len(list(tmp_path.iterdir())) == 3


def test_a_chunk_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 10)
    cache.put(("a", 0), bytes(11))
    assert len(cache) == 0
    nothing = ChunkCache(tmp_path, 0)
    nothing.put(("a", 0), b"x")
    assert len(nothing) == 0


def test_a_chunk_put_twice_counts_once(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 100)
    cache.put(("a", 0), bytes(30))
    cache.put(("a", 0), bytes(30))
    assert (cache.size_bytes, len(list(tmp_path.iterdir()))) == (30, 1)


def test_a_damaged_or_lost_file_is_a_miss(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 100)
    cache.put(("a", 0), b"x" * 30)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"z" * 30)
    assert cache.get(("a", 0)) is None
    cache.put(("a", 0), b"x" * 30)
    (path,) = tmp_path.iterdir()
    path.unlink()
    assert cache.get(("a", 0)) is None
    assert cache.size_bytes == 0


def test_a_start_begins_empty_and_leaves_other_files_alone(tmp_path: Path) -> None:
    ChunkCache(tmp_path, 100).put(("a", 0), b"x")
    (tmp_path / "other").write_bytes(b"")
    cache = ChunkCache(tmp_path, 100)
    assert cache.get(("a", 0)) is None
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_an_object_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 100)
    cache.put(("a", 0), b"x")
    cache.put(("b", 0), b"y")
    cache.forget("a")
    assert cache.get(("a", 0)) is None and cache.get(("b", 0)) == b"y"


def test_a_disk_that_fails_makes_the_cache_smaller_and_not_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = ChunkCache(folder, 100)
    folder.rmdir()
    cache.put(("a", 0), b"x")
    assert cache.get(("a", 0)) is None and cache.size_bytes == 0


def test_many_threads_may_use_it_at_once(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 1_000)

    def use(number: int) -> bool:
        key = ("a", number % 30)
        cache.put(key, bytes([number % 30]) * 50)
        data = cache.get(key)
        return data is None or data == bytes([number % 30]) * 50

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(1_000)))
    assert cache.size_bytes <= 1_000
