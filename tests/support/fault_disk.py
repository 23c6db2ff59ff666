"""A disk in memory that loses power, runs full and lies when a test says so.

What it forgets at a power cut is what POSIX allows: bytes that were not fsynced, page by page, and changes of names
whose folder was not fsynced, each by itself as long as none is kept without what it builds on. A killed process loses
nothing but the rest of the write it was in.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

PAGE_BYTES = 512
UNLIMITED = 1 << 40


class PowerCut(BaseException):
    """The machine or the process is gone. Not an Exception: nothing in the product may catch it."""


@dataclass(eq=False)
class Inode:
    """A file, or a folder."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    is_directory: bool = False


@dataclass
class _Open:
    inode: Inode
    flags: int
    position: int = 0


Change = tuple[str, Path, Inode | Path | None]


class Loss(Enum):
    """What becomes of all that was not fsynced when the power goes."""

    NOTHING = "kept"
    EVERYTHING = "lost"
    SOMETHING = "torn"
    """Pages and names by chance."""


class FaultDisk:
    """The Disk seam over dicts. `steps` counts the calls that change something; `cut_at` names the one to die in."""

    def __init__(self, seed: int = 0, page_bytes: int = PAGE_BYTES) -> None:
        self.random = random.Random(seed)
        self.page_bytes = page_bytes
        self.names: dict[Path, Inode] = {Path("/"): Inode(is_directory=True)}
        self.durable_names = dict(self.names)
        self.pending: list[Change] = []
        self.descriptors: dict[int, _Open] = {}
        self.next_descriptor = 3
        self.steps = 0
        self.cut_at = -1
        self.dead = False
        self.capacity = UNLIMITED
        self.failures: dict[str, list[int]] = {}
        """Errno values by method: each call of the method takes one."""
        self.max_open = 0
        self.calls: dict[str, int] = {}
        self.watch: Callable[[], None] | None = None
        """Called before each change, and in the middle of each write: a moment to take a copy."""

    # What tests do to it

    def fail(self, method: str, code: int, times: int = 1) -> None:
        """Let the next calls of a method fail."""
        self.failures.setdefault(method, []).extend([code] * times)

    def copy(self, seed: int) -> FaultDisk:
        """The same disk at this moment, to go another way. Nothing is open on it."""
        other = FaultDisk(seed, self.page_bytes)
        known: dict[int, Inode] = {}

        def twin(inode: Inode) -> Inode:
            if id(inode) not in known:
                known[id(inode)] = Inode(bytearray(inode.data), inode.durable, inode.is_directory)
            return known[id(inode)]

        other.names = {name: twin(inode) for name, inode in self.names.items()}
        other.durable_names = {name: twin(inode) for name, inode in self.durable_names.items()}
        other.pending = [
            (kind, path, twin(what) if isinstance(what, Inode) else what) for kind, path, what in self.pending
        ]
        return other

    def restart(self, *, power_cut: bool, loss: Loss | None = None) -> None:
        """Come back after a crash: of the process alone, or with everything that was not flushed in doubt."""
        self.dead, self.cut_at = False, -1
        self.descriptors.clear()
        self.failures.clear()
        if not power_cut:
            return
        loss = loss or self.random.choice([Loss.NOTHING, Loss.EVERYTHING, Loss.SOMETHING, Loss.SOMETHING])
        names = dict(self.durable_names)
        for change in self._kept_changes(loss):
            _apply(names, change)
        self.pending.clear()
        self.names, self.durable_names = names, dict(names)
        for inode in {id(inode): inode for inode in names.values()}.values():
            if not inode.is_directory:
                if loss is Loss.NOTHING:
                    inode.durable = bytes(inode.data)
                elif loss is Loss.SOMETHING:
                    inode.durable = self._after_power_cut(inode)
                inode.data = bytearray(inode.durable)

    def _kept_changes(self, loss: Loss) -> list[Change]:
        """The changes of names that have reached the disk. Only those of one path keep their order."""
        if loss is not Loss.SOMETHING:
            return self.pending if loss is Loss.NOTHING else []
        share = self.random.choice([0.2, 0.5, 0.8])
        kept: list[Change] = []
        lost: set[Path] = set()
        above_lost: set[Path] = set()
        for change in self.pending:
            paths = [change[1], *([change[2]] if isinstance(change[2], Path) else [])]
            builds_on_lost = any(
                path in lost or path in above_lost or not lost.isdisjoint(path.parents) for path in paths
            )
            if builds_on_lost or self.random.random() > share:
                lost.update(paths)
                above_lost.update(parent for path in paths for parent in path.parents)
            else:
                kept.append(change)
        return kept

    def _after_power_cut(self, inode: Inode) -> bytes:
        """Each page is as it was or as it should be; the size is somewhere between the two."""
        old, new = inode.durable, bytes(inode.data)
        if old == new:
            return old
        size = self.random.choice([len(old), len(new), self.random.randint(*sorted((len(old), len(new))))])
        kept = bytearray(size)
        lose_all = self.random.random() < 0.3
        for start in range(0, size, self.page_bytes):
            source = old if lose_all or self.random.random() < 0.3 else new
            page = source[start : start + self.page_bytes]
            kept[start : start + len(page)] = page[: size - start]
        # What was durable and was not touched since is still there.
        common = 0
        while common < min(len(old), len(new), size) and old[common] == new[common]:
            common += 1
        kept[:common] = old[:common]
        return bytes(kept)

    # The seam

    def open(self, path: Path | str, flags: int, mode: int = 0o644) -> int:
        self._call("open")
        path = Path(path)
        inode = self.names.get(path)
        if inode is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            if path.parent not in self.names:
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
            self._step()
            inode = Inode()
            self._change(("link", path, inode))
        elif inode.is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
        elif flags & os.O_TRUNC and inode.data:
            self._step()
            inode.data.clear()
        descriptor = self.next_descriptor
        self.next_descriptor += 1
        self.descriptors[descriptor] = _Open(inode, flags)
        self.max_open = max(self.max_open, len(self.descriptors))
        return descriptor

    def close(self, descriptor: int) -> None:
        if not self.dead:
            del self.descriptors[descriptor]

    def writev(self, descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
        self._call("writev")
        data = b"".join(map(bytes, pieces))
        return self._write(descriptor, data, None)

    def pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        self._call("pwrite")
        return self._write(descriptor, bytes(data), position)

    def _write(self, descriptor: int, data: bytes, position: int | None) -> int:
        opened = self._opened(descriptor)
        inode = opened.inode
        if opened.flags & os.O_APPEND:
            assert position is None, "pwrite on an O_APPEND descriptor appends on Linux"
            position = len(inode.data)
        elif position is None:
            position = opened.position
        room = len(data)
        if self.capacity < UNLIMITED:
            room = self.capacity - sum(len(other.data) for other in self._files()) + max(0, len(inode.data) - position)
        if data and room <= 0:
            raise OSError(errno.ENOSPC, "no space left")
        cut = self._reached_cut()
        if self.watch is not None:
            self._watch_torn_write(inode, data, position)
        count = self.random.randint(0, len(data)) if cut else min(len(data), room)
        if position > len(inode.data):
            inode.data.extend(bytes(position - len(inode.data)))
        inode.data[position : position + count] = data[:count]
        opened.position = position + count
        if cut:
            self._die()
        return count

    def _watch_torn_write(self, inode: Inode, data: bytes, position: int) -> None:
        assert self.watch is not None
        before, inode.data = inode.data, bytearray(inode.data)
        inode.data.extend(bytes(max(0, position - len(before))))
        part = data[: self.random.randint(0, len(data))]
        inode.data[position : position + len(part)] = part
        self.watch()
        inode.data = before

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        self._call("pread")
        return bytes(self._opened(descriptor).inode.data[position : position + length])

    def truncate(self, descriptor: int, length: int) -> None:
        self._call("truncate")
        self._step()
        data = self._opened(descriptor).inode.data
        if length > len(data):
            data.extend(bytes(length - len(data)))
        del data[length:]

    def size(self, descriptor: int) -> int:
        self._call("size")
        return len(self._opened(descriptor).inode.data)

    def fsync(self, descriptor: int) -> None:
        self._call("fsync")
        self._step()
        inode = self._opened(descriptor).inode
        inode.durable = bytes(inode.data)

    def fdatasync(self, descriptor: int) -> None:
        self._call("fdatasync")
        self._step()
        inode = self._opened(descriptor).inode
        inode.durable = bytes(inode.data)

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename")
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        self._step()
        self._change(("rename", source, target))

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        inode = self.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        if inode.is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
        self._step()
        self._change(("unlink", path, None))

    def mkdir(self, path: Path) -> None:
        self._call("mkdir")
        for folder in [*reversed(path.parents), path]:
            if folder not in self.names:
                self._step()
                self._change(("link", folder, Inode(is_directory=True)))

    def rmdir(self, path: Path) -> None:
        self._call("rmdir")
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self._step()
        self._change(("unlink", path, None))

    def listdir(self, path: Path) -> list[str]:
        self._call("listdir")
        inode = self.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        if not inode.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path))
        depth = len(path.parts) + 1
        return sorted(name.name for name in self.names if len(name.parts) == depth and name.parent == path)

    def exists(self, path: Path) -> bool:
        self._call("exists")
        return path in self.names

    def fsync_directory(self, path: Path) -> None:
        self._call("fsync_directory")
        self._step()
        kept: list[Change] = []
        for change in self.pending:
            if path in (change[1].parent, change[2].parent if isinstance(change[2], Path) else None):
                _apply(self.durable_names, change)
            else:
                kept.append(change)
        self.pending = kept

    can_sync_all = True

    def sync_all(self, path: Path) -> None:
        self._call("sync_all")
        self._step()
        for change in self.pending:
            _apply(self.durable_names, change)
        self.pending = []
        for inode in self._files():
            inode.durable = bytes(inode.data)

    def free_bytes(self, path: Path) -> int:
        self._call("free_bytes")
        return max(0, self.capacity - sum(len(inode.data) for inode in self._files()))

    def total_bytes(self, path: Path) -> int:
        return self.capacity

    def start_writeback(self, descriptor: int, position: int, length: int) -> None:
        """What it may keep at a power cut is up to chance anyway."""
        self._call("start_writeback")

    # Inside

    def _files(self) -> list[Inode]:
        return [inode for inode in self.names.values() if not inode.is_directory]

    def _call(self, method: str) -> None:
        if self.dead:
            raise PowerCut
        self.calls[method] = self.calls.get(method, 0) + 1
        waiting = self.failures.get(method)
        if waiting:
            code = waiting.pop(0)
            raise OSError(code, os.strerror(code))

    def _opened(self, descriptor: int) -> _Open:
        try:
            return self.descriptors[descriptor]
        except KeyError:
            raise OSError(errno.EBADF, "not an open descriptor") from None

    def _reached_cut(self) -> bool:
        self.steps += 1
        return self.steps == self.cut_at

    def _step(self) -> None:
        """A change that happens whole or, if the cut is here, not at all."""
        if self.watch is not None:
            self.watch()
        if self._reached_cut():
            self._die()

    def _die(self) -> None:
        self.dead = True
        raise PowerCut

    def _change(self, change: Change) -> None:
        _apply(self.names, change)
        self.pending.append(change)


def _apply(names: dict[Path, Inode], change: Change) -> None:
    kind, path, other = change
    if kind == "link":
        assert isinstance(other, Inode)
        names[path] = other
    elif kind == "unlink":
        names.pop(path, None)
    elif path in names:
        assert isinstance(other, Path)
        is_directory = names[path].is_directory
        names[other] = names.pop(path)
        if is_directory:
            for name in [name for name in names if path in name.parents]:
                names[other / name.relative_to(path)] = names.pop(name)
