"""A swap that is made of creates: who was overtaken, away or answered twice learns what became of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.object_store import ETagMismatch, ObjectNotFound, StoreUndecided
from appliance.tiering.fetcher import RemoteLogReader
from appliance.tiering.fsspec_store import PREFIX, VERSIONS_KEPT, FsspecStore
from appliance.tiering.stores import open_store, probe_store
from appliance.tiering.verify import verify_tier
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import Tiered, offsets_of


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"{PREFIX}memory://{tmp_path.name}/objects"


class Files:
    """A file system in whose next write something happens before or afterwards."""

    def __init__(self, inner: Any, before: Callable[[], object] = int, after: Callable[[], object] = int) -> None:
        self._inner = inner
        self._before = before
        self._after = after

    def pipe_file(self, path: str, data: bytes, mode: str) -> None:
        before, self._before, after, self._after = self._before, int, self._after, int
        before()
        self._inner.pipe_file(path, data, mode=mode)
        after()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def swaps(store: FsspecStore, count: int) -> str:
    etag = store.get("list").etag
    for number in range(count):
        etag = store.swap("list", b"swap %d" % number, etag)
    return etag


def paths(store: FsspecStore) -> list[str]:
    return sorted(store._files.find(store._root))


def disturbed(url: str, before: Callable[[], object] = int, after: Callable[[], object] = int) -> FsspecStore:
    store = FsspecStore(url)
    store._files = Files(store._files, before, after)
    return store


def test_old_versions_go(url: str) -> None:
    store = FsspecStore(url)
    store.create("list", b"first")
    swaps(store, 3 * VERSIONS_KEPT)
    assert store.get("list").data == b"swap %d" % (3 * VERSIONS_KEPT - 1)
    assert len(paths(store)) == 1 + VERSIONS_KEPT
    store.delete("list")
    assert paths(store) == []


@pytest.mark.parametrize(
    ("by", "answer"),
    [
        (1, ETagMismatch),
        (VERSIONS_KEPT, ETagMismatch),
        (VERSIONS_KEPT + 1, ETagMismatch),
        (3 * VERSIONS_KEPT, StoreUndecided),
    ],
)
def test_who_was_away_between_look_and_write_has_not_written_and_leaves_nothing(
    url: str, by: int, answer: type[Exception]
) -> None:
    other = FsspecStore(url)
    other.create("list", b"first")
    etag = swaps(other, 2)
    store = disturbed(url, before=lambda: swaps(other, by))
    with pytest.raises(answer):
        store.swap("list", b"mine", etag)
    assert other.get("list").data == b"swap %d" % (by - 1)
    assert not any(b"mine" in other._files.cat_file(path) for path in paths(other))


def test_who_is_overtaken_after_the_write_has_written(url: str) -> None:
    other = FsspecStore(url)
    etag = other.create("list", b"first")
    store = disturbed(url, after=lambda: swaps(other, 3))
    store.swap("list", b"mine", etag)
    assert other.get("list").data == b"swap 2"


def test_who_is_overtaken_by_far_does_not_know(url: str) -> None:
    other = FsspecStore(url)
    etag = other.create("list", b"first")
    store = disturbed(url, after=lambda: swaps(other, 2 * VERSIONS_KEPT))
    with pytest.raises(StoreUndecided):
        store.swap("list", b"mine", etag)


def test_a_write_that_was_sent_twice_is_ones_own(url: str) -> None:
    store = FsspecStore(url)
    etag = store.create("list", b"first")

    def refuse() -> None:
        raise FileExistsError

    again = disturbed(url, after=refuse)
    assert again.swap("list", b"mine", etag) == again.get("list").etag
    assert store.get("list").data == b"mine"


def test_a_write_without_answer_is_undecided(url: str) -> None:
    store = FsspecStore(url)
    etag = store.create("list", b"first")

    def fail() -> None:
        raise TimeoutError("no answer")

    with pytest.raises(StoreUndecided):
        disturbed(url, after=fail).swap("list", b"mine", etag)
    with pytest.raises(StoreUndecided):
        disturbed(url, before=fail).create("other", b"mine")


def test_what_was_deleted_meanwhile_does_not_come_back(url: str) -> None:
    other = FsspecStore(url)
    other.create("list", b"first")
    etag = swaps(other, 2)
    with pytest.raises(ObjectNotFound):
        disturbed(url, before=lambda: other.delete("list")).swap("list", b"mine", etag)
    assert paths(other) == []


def test_a_tier_lies_in_it(url: str, tmp_path: Path) -> None:
    store = FsspecStore(url)
    tiered = Tiered(tmp_path, store)
    for _ in range(3):
        tiered.hosted.append([b"value"] * 4)
        tiered.hosted.log.roll(0)
        tiered.tier()
    report = verify_tier(store)
    assert (report.problems, report.partitions[0].records) == ([], 12)
    reader = RemoteLogReader(store, tiered.clock, BrokerConfig({}), tmp_path / "cache")
    assert offsets_of(reader.read(TOPIC_ID, 0, 5, 1 << 20, 1 << 60)) == [4, 5, 6, 7]
    reader.close()


def test_urls_of_fsspec_open_a_store_or_say_what_is_missing(url: str) -> None:
    probe_store(open_store(url))
    with pytest.raises(UserError, match="gcsfs"):
        open_store("gs://bucket/prefix")
    with pytest.raises(UserError, match="nosuch"):
        open_store("nosuch://bucket/prefix")
