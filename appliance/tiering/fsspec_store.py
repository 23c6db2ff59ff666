"""An object store in whatever fsspec opens (gs://, abfs://, ...), if its create of a new file is conditional.

fsspec knows no compare-and-swap. A swap is made of creates instead: version `n` of an object is a file of its own, and
of many who create version `n + 1` one wins. The highest version is the object.

    {name}                   what `create` wrote: version 0, its bytes as they are
    .swaps/{name}/{n:012}    version n: 16 random bytes of its writer, those of version n - 1, the object's bytes

Old versions are deleted once `VERSIONS_KEPT` newer ones are there. A writer who was away for so long may create one of
these again: it then finds a higher version, whose writer did not follow upon it, and takes its file back. So a version
counts only for who has seen, after the write, that none is above it or that the next one names it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from crc32c import crc32c

from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreError,
    RangeNotSatisfiable,
    StoredObject,
    StoreRefused,
    StoreUnavailable,
    StoreUndecided,
)
from appliance.tiering.body import Body, BytesBody
from appliance.tiering.fsspec_kinds import create_options, is_refusal, open_files

VERSIONS_KEPT = 32
SWAPS = ".swaps/"
WRITER_BYTES = 16
HEAD_BYTES = 2 * WRITER_BYTES
FIRST_WRITER = bytes(WRITER_BYTES)
"""Of version 0, which names nobody."""
ETAG_FIELDS = ("ETag", "generation", "etag", "mtime", "LastModified", "created")
"""Where the file systems tell one body from another; the first that there is (Google's ETag has its metadata in it)."""
MESSAGE_LENGTH = 300
"""What some libraries have to say about credentials fills a screen."""
WRITTEN_ONCE = ("/seg/", "/page/")
"""Names with these are never swapped nor used again: nobody looks for their versions, or twice what they are."""
REMEMBERED_MAX = 4_096
"""Of so many objects that are written once it is known what they are."""


class _Version(NamedTuple):
    number: int
    path: str
    size: int
    etag: str


def is_written_once(name: str) -> bool:
    return any(part in name for part in WRITTEN_ONCE)


class FsspecStore:
    """Objects below a folder of an fsspec file system. Any thread may call any method."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        """`options` go to the file system. No request is sent, but for file systems that connect when they are made.

        Raises:
            StoreRefused: what it needs for this scheme is not installed or not configured.
            StoreUnavailable: no connection.
        """
        self._url = url.rstrip("/")
        try:
            self._files, root = open_files(url, options or {})
        except (ImportError, ValueError, TypeError) as error:
            raise StoreRefused(f"{url}: {error}") from error
        except (OSError, EOFError) as error:
            raise StoreUnavailable(f"no connection: {error}") from error
        self._root = f"{root.rstrip('/')}/"
        self._remembered: dict[str, _Version] = {}
        self._remembered_lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._url

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, name: str, *, start: int = 0, length: int | None = None, etag: str | None = None) -> StoredObject:
        with _answers(name, StoreUnavailable):
            version = self._newest(name)
            if etag is not None and version.etag != etag:
                raise ETagMismatch(f"{name}: has another body than the one asked for")
            head = HEAD_BYTES if version.number else 0
            size = version.size - head
            first = max(0, size + start) if start < 0 else start
            if first and first >= size:
                raise RangeNotSatisfiable(f"{name}: the range lies beyond its end")
            end = size if length is None else min(size, first + length)
            try:
                data = self._files.cat_file(version.path, start=head + first, end=head + end) if end > first else b""
            except FileNotFoundError:
                self._forget(name)
                raise
        if len(data) != end - first:
            raise StoreUnavailable(f"{name}: {len(data)} of {end - first} bytes came")
        return StoredObject(data, version.etag, size)

    def get_if_changed(self, name: str, etag: str) -> StoredObject | None:
        with _answers(name, StoreUnavailable):
            if self._newest(name).etag == etag:
                return None
        return self.get(name)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        with _answers(prefix, StoreUnavailable):
            folder = prefix.rpartition("/")[0]
            sizes = {name: size for name, size in self._below(folder).items() if not name.startswith(SWAPS)}
            for path, size in sorted(self._below(f"{SWAPS}{folder}").items()):
                name = path.removeprefix(SWAPS).rpartition("/")[0]
                if name in sizes:
                    # In the order of their numbers, so that the highest stays.
                    sizes[name] = size - HEAD_BYTES
        for name in sorted(sizes):
            if name.startswith(prefix) and name > start_after:
                yield ObjectInfo(name, sizes[name])

    def _below(self, folder: str) -> dict[str, int]:
        """Sizes of all files below a folder, by name."""
        try:
            found = self._files.find(self._root + folder, detail=True)
        except FileNotFoundError:
            return {}
        if not isinstance(found, dict):  # adlfs, of a file: there is nothing below
            return {}
        strip = len(self._root.lstrip("/"))
        return {path.lstrip("/")[strip:]: int(row["size"]) for path, row in found.items()}

    def _newest(self, name: str) -> _Version:
        """Raises: FileNotFoundError."""
        if is_written_once(name):
            return self._written_once(name)
        first = self._version(name, 0)
        numbers = self._numbers(name)
        if not numbers:
            return first
        try:
            return self._version(name, numbers[-1])
        except FileNotFoundError:
            # Many newer ones are there by now, or it was deleted.
            return self._version(name, max(self._numbers(name), default=0))

    def _written_once(self, name: str) -> _Version:
        found = self._remembered.get(name)
        if found is None:
            found = self._version(name, 0)
            with self._remembered_lock:
                if len(self._remembered) >= REMEMBERED_MAX:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[name] = found
        return found

    def _forget(self, name: str) -> None:
        with self._remembered_lock:
            self._remembered.pop(name, None)

    def _numbers(self, name: str) -> tuple[int, ...]:
        folder = f"{SWAPS}{name}"
        found = [path.removeprefix(f"{folder}/") for path in self._below(folder)]
        return tuple(sorted(int(number) for number in found if number.isdigit()))

    def _version(self, name: str, number: int) -> _Version:
        path = self._path(name, number)
        info = self._files.info(path)
        if info["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, path)
        tells = next((str(info[field]) for field in ETAG_FIELDS if info.get(field) is not None), "")
        return _Version(number, path, int(info["size"]), f"{number}-{tells}")

    def _path(self, name: str, number: int) -> str:
        return f"{self._root}{SWAPS}{name}/{number:012}" if number else self._root + name

    # ------------------------------------------------------------------------------------------------------- writing

    def create(self, name: str, data: bytes | memoryview) -> str:
        return self.create_from(name, BytesBody(data))

    def create_from(self, name: str, body: Body) -> str:
        """The whole body is in memory while it is sent."""
        data = body.read_at(0, body.size)
        if body.known_crc32c is not None and crc32c(data) != body.known_crc32c:
            raise OSError(errno.EIO, f"{name}: its bytes are not those that were scanned")
        with _answers(name, StoreUndecided):
            try:
                self._create_file(self._path(name, 0), data)
            except FileExistsError as error:
                raise ObjectExists(f"{name}: exists already") from error
            except FileNotFoundError as error:
                raise StoreRefused(f"{name}: there is no place for it: {error}") from error
            return self._made(name, 0, len(data)).etag

    def _create_file(self, path: str, data: bytes) -> None:
        """Raises: FileExistsError."""
        self._files.pipe_file(path, data, mode="create", **create_options(self._files, data))

    def _made(self, name: str, number: int, size: int) -> _Version:
        """The version that was just created, which must be as long as what was sent."""
        try:
            version = self._version(name, number)
        except FileNotFoundError as error:
            raise StoreUndecided(f"{name}: what was just created is gone already") from error
        if version.size != size:
            raise StoreUndecided(f"{name}: {size} bytes were sent, and {version.size} are there")
        return version

    def swap(self, name: str, data: bytes, etag: str) -> str:
        changed = ETagMismatch(f"{name}: has another body than the one to be replaced")
        with _answers(name, StoreUndecided):
            before = self._newest(name)
            if before.etag != etag:
                raise changed
            writer_before = self._writer(name, before.number)
            number, writer = before.number + 1, os.urandom(WRITER_BYTES)
            path = self._path(name, number)
            versioned = writer + writer_before + data
            try:
                self._create_file(path, versioned)
            except FileExistsError as error:
                # The file system may have sent it twice, and met its own.
                if self._writer(name, number) != writer:
                    raise changed from error
            self._check(name, number, writer, before.path, changed)
            made = self._made(name, number, len(versioned)).etag
        if number > VERSIONS_KEPT:
            with contextlib.suppress(ObjectStoreError), _answers(name, StoreUndecided):
                self._files.rm_file(self._path(name, number - VERSIONS_KEPT))
        return made

    def _check(self, name: str, number: int, writer: bytes, path_before: str, changed: ETagMismatch) -> None:
        """Whether version `number`, just created, is one that ever was the object's newest."""
        path = self._path(name, number)
        if self._numbers(name)[-1:] == (number,):
            if self._files.exists(path_before):
                return
            self._files.rm_file(path)
            raise ObjectNotFound(f"{name}: was deleted")
        try:
            followed = self._files.cat_file(self._path(name, number + 1), start=WRITER_BYTES, end=HEAD_BYTES)
        except FileNotFoundError as error:
            # Many newer ones are there, and nobody misses this one.
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(path)
            raise StoreUndecided(f"{name}: {VERSIONS_KEPT} newer versions are there by now") from error
        if followed != writer:
            self._files.rm_file(path)
            raise changed

    def _writer(self, name: str, number: int) -> bytes:
        if not number:
            return FIRST_WRITER
        found: bytes = self._files.cat_file(self._path(name, number), start=0, end=WRITER_BYTES)
        return found

    def delete(self, name: str) -> None:
        with _answers(name, StoreUndecided):
            self._forget(name)
            numbers = () if is_written_once(name) else self._numbers(name)
            # The versions before what they replaced: nothing may be left that a new object would inherit.
            for number in [*numbers, 0]:
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(self._path(name, number))


@contextlib.contextmanager
def _answers(name: str, without_answer: type[StoreUnavailable]) -> Iterator[None]:
    """Turn what file systems raise into the words of the seam. Their libraries have errors of many kinds."""
    try:
        yield
    except ObjectStoreError:
        raise
    except FileNotFoundError as error:
        raise ObjectNotFound(f"{name}: does not exist") from error
    except Exception as error:
        said = f"{name}: {' '.join(str(error).split())[:MESSAGE_LENGTH] or type(error).__name__}"
        if is_refusal(error):
            raise StoreRefused(said) from error
        raise without_answer(said) from error
