"""An object store in a local directory: the embedded default, for one machine.

Safe among any number of processes of one host (not over NFS):

    create   temporary file, fsync, link(2) (the one that wins is the creator), fsync of the directory
    swap     flock on a lock file that is never removed, hash of the bytes compared, rename(2), fsync of the directory
    delete   under the same lock, or a swap that has compared already would bring the object back

The bytes of an inode never change, so a reader sees one whole body or another. The ETag is the SHA-256 of the body.
Below the root, `.tmp/` holds bodies that are being written and `.locks/` the lock files; both are hidden from `list`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from appliance.base.errors import invariant
from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    RangeNotSatisfiable,
    StoredObject,
    StoreRefused,
    StoreUnavailable,
    StoreUndecided,
)
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.tiering.body import PIECE_BYTES, Body, BytesBody, read_exactly

_LOCK_FILES = 64
_LOCK_WAIT_MS = 10_000
_MKDIR_RETRIES = 20
_HASH_CACHE_ENTRIES = 4_096
_ALWAYS_HASHED_BYTES = 1 << 20
"""Bodies up to this size are hashed at each read; larger ones are immutable segments, whose hash is remembered."""

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


class DirectoryStore:
    """See the module's text. Any thread may call any method."""

    def __init__(self, root: Path, randomness: Randomness | None = None) -> None:
        """Open the store in `root`, which is created, and remove what earlier processes left half written.

        Raises:
            StoreRefused, StoreUnavailable: the directory cannot be made or read.
        """
        self._root = root.absolute()
        self._randomness = randomness or SystemRandomness()
        self._hashes: dict[tuple[int, int, int, int], str] = {}
        self._temporary = self._root / ".tmp"
        self._locks = self._root / ".locks"
        with _reading(str(root)):
            self._temporary.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(exist_ok=True)
            self._remove_leftovers()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def get(self, name: str, *, start: int = 0, length: int | None = None, etag: str | None = None) -> StoredObject:
        with _reading(name), self._opened(name) as descriptor:
            size = os.fstat(descriptor).st_size
            first = start if start >= 0 else max(0, size + start)
            if (first >= size and (start > 0 or length)) or (start < 0 and size == 0):
                raise RangeNotSatisfiable(f"{name}: {first} lies beyond its {size} bytes")
            last = size if length is None else min(size, first + length)
            data = read_exactly(descriptor, first, last - first)
            whole = last - first == size
            found = hashlib.sha256(data).hexdigest() if whole else self._hash_of(descriptor)
        if etag is not None and etag != found:
            raise ETagMismatch(f"{name}: has another body than the one asked for")
        return StoredObject(data, found, size)

    def get_if_changed(self, name: str, etag: str) -> StoredObject | None:
        stored = self.get(name)
        return None if stored.etag == etag else stored

    def create(self, name: str, data: bytes | memoryview) -> str:
        return self.create_from(name, BytesBody(data))

    def create_from(self, name: str, body: Body) -> str:
        with _writing(name), self._written(body) as (temporary, etag):
            target = self._path(name)
            for _ in range(_MKDIR_RETRIES):
                self._make_directory(target.parent)
                try:
                    os.link(temporary, target)
                except FileExistsError as error:
                    raise ObjectExists(f"{name}: exists already") from error
                except FileNotFoundError:
                    # The last object of the directory went just now, and the directory with it.
                    continue
                _fsync_directory(target.parent)
                return etag
        raise StoreUndecided(f"{name}: its directory vanished {_MKDIR_RETRIES} times while it was being created")

    def swap(self, name: str, data: bytes, etag: str) -> str:
        with _writing(name), self._written(BytesBody(data)) as (temporary, new_etag), self._locked(name):
            target = self._path(name)
            try:
                found = hashlib.sha256(target.read_bytes()).hexdigest()
            except FileNotFoundError as error:
                raise ObjectNotFound(f"{name}: does not exist") from error
            if found != etag:
                raise ETagMismatch(f"{name}: has another body than the one to be replaced")
            temporary.rename(target)
            _fsync_directory(target.parent)
        return new_etag

    def delete(self, name: str) -> None:
        with _writing(name), self._locked(name):
            target = self._path(name)
            try:
                target.unlink()
            except FileNotFoundError:
                return
            _fsync_directory(target.parent)
            self._remove_empty(target.parent)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        directory, _, _ = prefix.rpartition("/")
        with _reading(prefix):
            yield from self._walk(f"{directory}/" if directory else "", prefix, start_after)

    def _walk(self, directory: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Objects below `directory`, which ends with "/" or is the root (""), in the order of their full names."""
        try:
            with os.scandir(self._root / directory) as entries:
                # "a/b" comes after "a-b": a directory sorts by its name with the slash.
                found = sorted((e.name + "/" if e.is_dir(follow_symlinks=False) else e.name, e) for e in entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry_name, entry in found:
            name = directory + entry_name
            if entry_name.startswith("."):
                continue
            if name.endswith("/"):
                wanted = name.startswith(prefix) or prefix.startswith(name)
                if wanted and (name >= start_after or start_after.startswith(name)):
                    yield from self._walk(name, prefix, start_after)
            elif name.startswith(prefix) and name > start_after:
                try:
                    yield ObjectInfo(name, entry.stat().st_size)
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        invariant(all(part and not part.startswith(".") for part in parts), f"not a name for an object: {name!r}")
        return self._root.joinpath(*parts)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _hash_of(self, descriptor: int) -> str:
        """SHA-256 of a whole file, remembered for large ones."""
        stat = os.fstat(descriptor)
        key = (stat.st_ino, stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size)
        known = self._hashes.get(key) if stat.st_size > _ALWAYS_HASHED_BYTES else None
        if known is not None:
            return known
        digest = hashlib.sha256()
        for position in range(0, stat.st_size, PIECE_BYTES):
            digest.update(read_exactly(descriptor, position, min(PIECE_BYTES, stat.st_size - position)))
        if len(self._hashes) >= _HASH_CACHE_ENTRIES:
            self._hashes.clear()
        self._hashes[key] = digest.hexdigest()
        return digest.hexdigest()

    @contextlib.contextmanager
    def _written(self, body: Body) -> Iterator[tuple[Path, str]]:
        """The body in a temporary file, durable; the file goes at the end, unless it was renamed away."""
        path = self._temporary / self._randomness.random_bytes(16).hex()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            # The lock tells `_remove_leftovers` of a starting process that somebody is still writing here.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            digest = hashlib.sha256()
            for position in range(0, body.size, PIECE_BYTES):
                piece = body.read_at(position, PIECE_BYTES)
                digest.update(piece)
                view = memoryview(piece)
                while view:
                    view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
            yield path, digest.hexdigest()
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            os.close(descriptor)

    def _remove_leftovers(self) -> None:
        for path in self._temporary.iterdir():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            except BlockingIOError:
                continue
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _LOCK_FILES
        descriptor = os.open(self._locks / f"{number:02}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + _LOCK_WAIT_MS / 1_000
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise StoreUndecided(f"{name}: another process holds its lock") from error
                    time.sleep(0.001)
            yield
        finally:
            os.close(descriptor)

    def _make_directory(self, directory: Path) -> None:
        """Make a directory and those above it, each durable in its parent."""
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                path.mkdir()
                _fsync_directory(path.parent)

    def _remove_empty(self, directory: Path) -> None:
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:
                return
            directory = directory.parent


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectNotFound(f"{name}: does not exist") from error
    except OSError as error:
        if error.errno in _REFUSED:
            raise StoreRefused(f"{name}: {error}") from error
        raise StoreUnavailable(f"{name}: {error}") from error


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            raise StoreRefused(f"{name}: {error}") from error
        raise StoreUndecided(f"{name}: {error}") from error
