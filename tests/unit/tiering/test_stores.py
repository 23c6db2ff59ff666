from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.base.object_store import ETagMismatch, ObjectExists, ObjectStore, StoreUnavailable, StoreUndecided
from appliance.tiering import stores
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.stores import open_store, probe_store


class Liar(DirectoryStore):
    """A store that answers every write with yes, as some S3 look-alikes do with conditions they do not know."""

    def create(self, name: str, data: bytes | memoryview) -> str:
        try:
            return super().create(name, data)
        except ObjectExists:
            return super().swap(name, bytes(data), super().get(name).etag)


class Forgetful(DirectoryStore):
    """A store that ignores If-Match."""

    def swap(self, name: str, data: bytes, etag: str) -> str:
        try:
            return super().swap(name, data, etag)
        except ETagMismatch:
            return super().swap(name, data, super().get(name).etag)


@pytest.mark.parametrize("kind", [Liar, Forgetful])
def test_a_store_that_ignores_a_condition_is_refused_by_name(kind: type[DirectoryStore], tmp_path: Path) -> None:
    store: ObjectStore = kind(tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path}.* is not safe to use: it ignores the condition") as caught:
        probe_store(store)
    assert caught.value.exit_code == 4
    assert list(store.list("")) == []


def test_an_unreachable_store_ends_with_code_4_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PROBE_ATTEMPTS", 2)
    monkeypatch.setattr(stores, "PROBE_PAUSE_S", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        with pytest.raises(UserError, match=r"object store s3://bucket/prefix is not reachable: ") as caught:
            probe_store(open_store("s3://bucket/prefix"))
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)


def test_a_directory_that_cannot_be_made_ends_with_code_4(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        open_store(str(tmp_path / "file" / "store"))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("url", ["", "s3://", "memory://x/y", "http://host/x", "file://host/x"])
def test_another_kind_of_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UserError, match="s3://bucket/prefix") as caught:
        open_store(url)
    assert caught.value.exit_code == 2


def test_a_path_and_its_file_url_open_the_same_directory(tmp_path: Path) -> None:
    folder = tmp_path / "with a blank"
    open_store(str(folder)).create("x", b"1")
    assert open_store(folder.as_uri()).get("x").data == b"1"
    assert open_store(open_store(str(folder)).url).get("x").data == b"1"


def test_a_start_removes_what_a_dead_process_was_writing_and_nothing_else(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    (tmp_path / ".tmp" / "left by a dead process").write_bytes(b"half")
    with store._written(_Slow(lambda: DirectoryStore(tmp_path))) as (path, _):
        DirectoryStore(tmp_path)
        assert path.exists()
    assert list((tmp_path / ".tmp").iterdir()) == []


class _Slow:
    """A body that lets something happen while it is being written."""

    size = 4

    def __init__(self, meanwhile: object) -> None:
        self._meanwhile = meanwhile

    def read_at(self, position: int, length: int) -> bytes:
        assert callable(self._meanwhile)
        self._meanwhile()
        return b"body"


def test_a_full_disk_leaves_a_write_undecided_and_a_failing_one_a_read_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    store.create("x", b"1")

    def fails(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fails)
    with pytest.raises(StoreUndecided, match="No space"):
        store.create("y", b"1")
    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(StoreUnavailable):
        store.get("x")
    monkeypatch.undo()
    assert [row.name for row in store.list("")] == ["x"]
    assert list((tmp_path / ".tmp").iterdir()) == []
