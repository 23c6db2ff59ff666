"""What every object store must do; the metadata log and the tier draw their safety from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectNotFound,
    RangeNotSatisfiable,
)
from appliance.tiering.body import BodyStore, FileBody
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.fsspec_kinds import PREFIX as FSSPEC
from appliance.tiering.fsspec_store import FsspecStore
from appliance.tiering.s3 import S3Store
from appliance.tiering.stores import open_store, probe_store
from tests.support.moto_server import MotoServer
from tests.support.programs import BUILD_TIMEOUT_S
from tests.support.racing import racing
from tests.support.store_peers import StorePeer

Opener = Callable[[], BodyStore]
"""Opens the same store once more, as another process would."""


BUILT_FIRST = pytest.mark.timeout(BUILD_TIMEOUT_S + 120)
CLOUDS = {"fsspec on gcs": "google", "fsspec on azure": "azure"}
"""File systems of fsspec whose store is a program that has to be built first, and the fixture of each."""
OURS = ["directory", "s3", "s3 with a prefix", "fsspec in memory", "fsspec on s3"]


@pytest.fixture(
    params=[*OURS, *(pytest.param(name, marks=[pytest.mark.soak, BUILT_FIRST]) for name in CLOUDS)],
)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "directory":
        return lambda: DirectoryStore(tmp_path / "objects")
    if request.param == "fsspec in memory":
        return lambda: FsspecStore(f"{FSSPEC}memory://{tmp_path.name}/objects")
    if request.param in CLOUDS:
        peer: StorePeer = request.getfixturevalue(CLOUDS[request.param])
        url = f"{peer.url_of_new_bucket()}/a/cluster"
        return lambda: FsspecStore(url, {**peer.fsspec_options, "skip_instance_cache": True})
    moto: MotoServer = request.getfixturevalue("moto")
    bucket = moto.bucket()
    if request.param == "fsspec on s3":
        return lambda: FsspecStore(f"{FSSPEC}s3://{bucket}/a/cluster", moto.fsspec_options)
    prefix = "a/cluster" if request.param.endswith("prefix") else ""
    return lambda: S3Store(bucket, prefix, moto.client_options)


@pytest.fixture
def store(opener: Opener) -> BodyStore:
    return opener()


def test_the_probe_passes_and_leaves_nothing_behind(store: BodyStore) -> None:
    probe_store(store)
    assert list(store.list("")) == []


def test_what_was_created_is_read_back(store: BodyStore) -> None:
    etag = store.create("tier/x/seg/1", b"some bytes")
    read = store.get("tier/x/seg/1")
    assert (read.data, read.etag, read.size) == (b"some bytes", etag, 10)


def test_an_empty_object_and_a_view_can_be_created(store: BodyStore) -> None:
    store.create("empty", b"")
    assert store.get("empty").data == b""
    store.create("view", memoryview(b"0123456789")[2:5])
    assert store.get("view").data == b"234"


def test_create_refuses_a_name_that_exists_and_keeps_its_body(store: BodyStore) -> None:
    store.create("name", b"first")
    with pytest.raises(ObjectExists):
        store.create("name", b"second")
    assert store.get("name").data == b"first"


def test_of_many_creators_one_wins(opener: Opener) -> None:
    stores = [opener() for _ in range(8)]
    for round_number in range(5):
        name = f"race/{round_number}"
        results = racing(8, lambda n, name=name: stores[n].create(name, b"body of %d" % n))
        winners = [n for n, result in enumerate(results) if isinstance(result, str)]
        assert len(winners) == 1
        assert sum(isinstance(result, ObjectExists) for result in results) == 7
        assert stores[0].get(name).data == b"body of %d" % winners[0]


def test_swap_replaces_only_the_body_it_knows(store: BodyStore) -> None:
    first = store.create("pointer", b"one")
    second = store.swap("pointer", b"two", first)
    assert second != first
    with pytest.raises(ETagMismatch):
        store.swap("pointer", b"three", first)
    read = store.get("pointer")
    assert (read.data, read.etag) == (b"two", second)


def test_swap_of_a_missing_object_is_refused(store: BodyStore) -> None:
    etag = store.create("other", b"x")
    with pytest.raises(ObjectNotFound):
        store.swap("missing", b"y", etag)
    assert [row.name for row in store.list("")] == ["other"]


def test_increments_by_swap_lose_nothing(opener: Opener) -> None:
    opener().create("counter", b"0")

    def increment(number: int) -> None:
        store = opener()
        for _ in range(5):
            while True:
                read = store.get("counter")
                try:
                    store.swap("counter", b"%d" % (int(read.data) + 1), read.etag)
                    break
                except ETagMismatch:
                    continue

    assert racing(4, increment) == [None] * 4
    assert opener().get("counter").data == b"20"


def test_ranges_count_from_the_start_or_from_the_end(store: BodyStore) -> None:
    etag = store.create("digits", b"0123456789")
    assert store.get("digits", start=2, length=3).data == b"234"
    assert store.get("digits", start=7).data == b"789"
    assert store.get("digits", start=8, length=100).data == b"89"
    assert store.get("digits", start=-4).data == b"6789"
    assert store.get("digits", start=-4, length=2).data == b"67"
    assert store.get("digits", start=-100).data == b"0123456789"
    part = store.get("digits", start=0, length=1, etag=etag)
    assert (part.data, part.etag, part.size) == (b"0", etag, 10)


def test_a_range_beyond_the_end_is_an_error(store: BodyStore) -> None:
    store.create("digits", b"0123456789")
    with pytest.raises(RangeNotSatisfiable):
        store.get("digits", start=10, length=1)


def test_a_conditional_read_refuses_another_body(store: BodyStore) -> None:
    old = store.create("pointer", b"one")
    store.swap("pointer", b"two", old)
    with pytest.raises(ETagMismatch):
        store.get("pointer", etag=old)
    with pytest.raises(ETagMismatch):
        store.get("pointer", start=1, length=1, etag=old)


def test_an_unchanged_object_is_not_sent_again(store: BodyStore) -> None:
    old = store.create("pointer", b"one")
    assert store.get_if_changed("pointer", old) is None
    new = store.swap("pointer", b"two", old)
    read = store.get_if_changed("pointer", old)
    assert read is not None and (read.data, read.etag) == (b"two", new)


def test_reading_a_missing_object_says_so(store: BodyStore) -> None:
    with pytest.raises(ObjectNotFound):
        store.get("missing")
    with pytest.raises(ObjectNotFound):
        store.get("missing/too", start=-10)
    with pytest.raises(ObjectNotFound):
        store.get_if_changed("missing", '"0"')


def test_delete_removes_and_forgives_what_is_not_there(store: BodyStore) -> None:
    store.create("a/b/c", b"x")
    store.delete("a/b/c")
    store.delete("a/b/c")
    with pytest.raises(ObjectNotFound):
        store.get("a/b/c")
    assert list(store.list("")) == []
    store.create("a/b/c", b"again")
    assert store.get("a/b/c").data == b"again"


def test_a_list_is_in_name_order_and_keeps_to_its_prefix(store: BodyStore) -> None:
    names = ["p/a", "p/a-b", "p/a/b", "p/a/c/d", "p/ab", "p/b", "q"]
    for name in reversed(names):
        store.create(name.replace("p/a/", "p/x/"), name.encode())
    wanted = sorted(name.replace("p/a/", "p/x/") for name in names)
    assert [row.name for row in store.list("")] == wanted
    assert [row.name for row in store.list("p/")] == wanted[:-1]
    assert [row.name for row in store.list("p/a")] == ["p/a", "p/a-b", "p/ab"]
    assert [row.name for row in store.list("p/", start_after="p/ab")] == ["p/b", "p/x/b", "p/x/c/d"]
    assert [row.name for row in store.list("p/", start_after="p/x/b")] == ["p/x/c/d"]
    assert [row.size for row in store.list("q")] == [1]
    assert list(store.list("nothing")) == []


def test_a_directory_sorts_by_its_full_name(store: BodyStore) -> None:
    for name in ["d/x", "d-x", "d.x", "dx"]:
        store.create(name, b"")
    assert [row.name for row in store.list("d")] == ["d-x", "d.x", "d/x", "dx"]


def test_a_list_goes_on_behind_its_first_page(store: BodyStore) -> None:
    if isinstance(store, S3Store):
        store.names_per_list = 7
    names = [f"many/{n:04}" for n in range(25)]
    for name in names:
        store.create(name, b"")
    assert [row.name for row in store.list("many/")] == names
    assert [row.name for row in store.list("many/", start_after="many/0003")] == names[4:]


def test_a_large_body_is_sent_from_its_file(store: BodyStore, tmp_path: Path) -> None:
    data = bytes(range(256)) * 12_000
    path = tmp_path / "segment"
    path.write_bytes(data + b"not part of it")
    with path.open("rb") as file:
        etag = store.create_from("large", FileBody(file.fileno(), len(data), b"the tail"))
    assert store.get("large", start=-8).data == b"the tail"
    assert store.get("large", start=len(data) - 4, length=8, etag=etag).data == data[-4:] + b"the "
    assert store.get("large").data == data + b"the tail"


def test_a_cancelled_body_creates_nothing(store: BodyStore, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(3_000_000))
    cancelled = threading.Event()
    cancelled.set()
    with path.open("rb") as file:
        body = FileBody(file.fileno(), 3_000_000, b"", cancelled)
        with pytest.raises(Exception, match="deadline"):
            store.create_from("large", body)
    assert list(store.list("")) == []


def test_the_url_opens_the_same_store(
    store: BodyStore, request: pytest.FixtureRequest, moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = request.node.callspec.params["opener"]
    peer = request.getfixturevalue(CLOUDS[kind]) if kind in CLOUDS else moto
    for variable, value in peer.environment.items():
        monkeypatch.setenv(variable, value)
    store.create("a/name", b"here")
    again = open_store(store.url)
    assert again.get("a/name").data == b"here"
    assert again.url == store.url


def test_what_looks_like_the_end_of_a_request_is_kept(store: BodyStore) -> None:
    """gcsfs ends a short body with such a line."""
    bodies = [b"--==0==--", b"one\n--==0==\ntwo", b"\r\n--==0==--\r\n", b"\n\n--==0==--", b"x\r\n"]
    for number, body in enumerate(bodies):
        etag = store.create(f"body/{number}", body)
        assert store.get(f"body/{number}").data == body
        store.swap(f"body/{number}", body + body, etag)
        assert store.get(f"body/{number}").data == body + body
