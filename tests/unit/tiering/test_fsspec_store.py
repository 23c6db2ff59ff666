"""A swap that is made of creates: who was overtaken, away or answered twice learns what became of it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.object_store import ETagMismatch, ObjectNotFound, StoreRefused, StoreUnavailable, StoreUndecided
from appliance.tiering.fetcher import RemoteLogReader
from appliance.tiering.fsspec_kinds import PREFIX, create_options
from appliance.tiering.fsspec_store import VERSIONS_KEPT, FsspecStore
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


def test_urls_of_fsspec_open_a_store_or_say_what_is_missing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    probe_store(open_store(url))
    with pytest.raises(UserError, match="nosuch"):
        open_store("nosuch://bucket/prefix")

    def not_there(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("appliance.tiering.fsspec_kinds.version", not_there)
    for scheme, library, extra in [("gs", "gcsfs", "gcs"), ("abfs", "adlfs", "azure"), ("az", "adlfs", "azure")]:
        with pytest.raises(UserError) as raised:
            open_store(f"{scheme}://bucket/prefix")
        assert str(raised.value).endswith(f": {scheme}:// needs {library}: install appliance[{extra}]")
    monkeypatch.setattr("appliance.tiering.fsspec_kinds.version", lambda name: "2024.6.1")
    with pytest.raises(UserError, match=r"needs gcsfs of 2026 or later, there is 2024.6.1: install appliance\[gcs\]"):
        open_store("gs://bucket/prefix")


class _Answer(Exception):
    """As the libraries have them: with a status under one name or another."""

    def __init__(self, said: str, **fields: object) -> None:
        super().__init__(said)
        self.__dict__.update(fields)


class DefaultCredentialsError(Exception):
    """Has the name of Google's."""


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (_Answer("who are you?", status_code=401), StoreRefused),
        (_Answer("no", code="403"), StoreRefused),
        (_Answer("no such container", status_code=404), StoreRefused),
        (_Answer("slow down", code=429), StoreUnavailable),
        (_Answer("busy", status=503), StoreUnavailable),
        (_Answer("", code=None), StoreUnavailable),
        (OSError("Forbidden: b/bucket/o"), StoreRefused),
        (ValueError("Bad Request: the key is invalid"), StoreRefused),
        (OSError("connection reset"), StoreUnavailable),
        (PermissionError("no"), StoreRefused),
        (DefaultCredentialsError("log in"), StoreRefused),
        (FileNotFoundError("name"), ObjectNotFound),
    ],
    ids=repr,
)
def test_whatever_a_library_raises_is_one_of_the_answers_of_a_store(
    url: str, error: Exception, answer: type[Exception]
) -> None:
    store = FsspecStore(url)

    class Failing:
        def __getattr__(self, name: str) -> Any:
            raise error

    store._files = Failing()
    with pytest.raises(answer) as raised:
        store.get("name")
    assert raised.type is answer
    assert str(raised.value) != "name: "


def test_a_body_that_is_not_whole_is_undecided(url: str) -> None:
    store = FsspecStore(url)
    etag = store.create("name", b"whole")

    class Cutting(Files):
        def pipe_file(self, path: str, data: bytes, mode: str) -> None:
            super().pipe_file(path, data[:-1], mode)

    store._files = Cutting(store._files)
    with pytest.raises(StoreUndecided, match="5 bytes were sent, and 4 are there"):
        store.create("other", b"whole")
    with pytest.raises(StoreUndecided):
        store.swap("name", b"more", etag)


def test_a_folder_that_is_a_file_has_nothing_below_it(url: str) -> None:
    """adlfs answers a list of names there, whatever it is asked for."""
    store = FsspecStore(url)
    store.create("name", b"one")

    class Listing(Files):
        def find(self, path: str, detail: bool = False) -> Any:
            return [path] if path.endswith("name") else self._inner.find(path, detail=detail)

    store._files = Listing(store._files)
    assert list(store.list("name/")) == []
    assert [row.name for row in store.list("name")] == ["name"]


def test_what_an_object_is_that_is_written_once_is_asked_for_once(url: str) -> None:
    store, other = FsspecStore(url), FsspecStore(url)
    name = "tier/t/00000/seg/1"
    etag = store.create(name, b"0123456789")
    store.create("pointer", b"one")
    asked: list[str] = []

    class Counting(Files):
        def info(self, path: str) -> Any:
            asked.append(path)
            return self._inner.info(path)

    store._files = Counting(store._files)
    assert [store.get(name, start=start, length=2, etag=etag).data for start in (0, 4, -2)] == [b"01", b"45", b"89"]
    assert len(asked) == 1
    assert [store.get("pointer").data for _ in range(2)] == [b"one"] * 2
    assert len(asked) == 3, "others may be replaced at any time"
    other.delete(name)
    for _ in range(2):
        with pytest.raises(ObjectNotFound):
            store.get(name, start=0, length=1)


def test_not_every_object_is_remembered(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.tiering.fsspec_store.REMEMBERED_MAX", 3)
    store = FsspecStore(url)
    for number in range(5):
        store.create(f"t/seg/{number}", b"%d" % number)
        assert store.get(f"t/seg/{number}").data == b"%d" % number
    assert list(store._remembered) == [f"t/seg/{number}" for number in (2, 3, 4)]
    store.delete("t/seg/3")
    assert list(store._remembered) == [f"t/seg/{number}" for number in (2, 4)]


def test_what_google_and_azure_must_be_told() -> None:
    class Google:
        protocol = ("gs", "gcs")

    class Azure:
        protocol = ("abfs", "az", "abfss")

    class Memory:
        protocol = "memory"

    body = b"a line --==0== inside"
    assert create_options(Google(), body) == {"chunksize": len(body)}
    assert create_options(Google(), b"none") == {}
    assert create_options(Azure(), body) == {"retry_total": 0}
    assert create_options(Memory(), body) == {}
