"""Which segments hold an open descriptor, and when the files of deleted ones go."""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.base.disk import Disk
from appliance.log.damage import DamageBook
from appliance.log.writeback import WriteBack

if TYPE_CHECKING:
    from appliance.log.segment import Segment

OPEN_SEGMENTS_MAX = 4_096
"""Descriptors that logs hold at once; more only while that many slices are on their way to clients."""
_OPEN_SEGMENTS_MIN = 64
ROLLED_MAX = 10_000
"""Logs that have rolled and whose flush nobody has looked for yet; of more, the flush comes in its turn."""
LOADED_INDEXES_MAX_BYTES = 64 << 20
"""Indexes of closed segments that are kept in memory after a read."""
DELETED_SUFFIX = ".deleted"
CUT_SUFFIX = ".cut.deleted"
"""Of what a cut has taken from the end of a log. Retention takes from the beginning."""


class SegmentGone(FileNotFoundError):
    """Retention or compaction has taken the segment out of its log: look for the offset in the log again."""


def open_segments_max() -> int:
    """What logs may hold of the descriptors that this process may have: half, the rest is for connections."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return OPEN_SEGMENTS_MAX
    return max(_OPEN_SEGMENTS_MIN, min(OPEN_SEGMENTS_MAX, allowed // 2))


class OpenFiles:
    """Descriptors and loaded indexes of segments, shared by all logs of a broker and bounded.

    The one that was used longest ago goes first, roughly: a use sets a mark, and a marked one gets a second chance.
    Helper threads may open segments too, if these are retained; only the loop's thread takes descriptors away, or one
    could vanish between the moment it is looked up and the call that uses it.
    """

    def __init__(
        self, disk: Disk, max_open: int = OPEN_SEGMENTS_MAX, max_index_bytes: int = LOADED_INDEXES_MAX_BYTES
    ) -> None:
        self.disk = disk
        self.max_open = max_open
        self.max_index_bytes = max_index_bytes
        self.is_crowded = False
        """More are open than should be, because they were retained."""
        self.writeback = WriteBack()
        self.damage = DamageBook()
        self.rolled: deque[Path] = deque(maxlen=ROLLED_MAX)
        """Folders of logs of which a segment was closed for appends: it waits for a flush. Any thread appends."""
        self._open: OrderedDict[Segment, None] = OrderedDict()
        self._indexed: deque[Segment] = deque()
        self._index_bytes = 0
        self._lock = threading.RLock()
        self._owner = threading.get_ident()

    @property
    def open_count(self) -> int:
        """How many segments hold a descriptor."""
        return len(self._open)

    def owned_by_this_thread(self) -> None:
        """From now on this thread is the one that takes descriptors away (the loop's)."""
        self._owner = threading.get_ident()

    def open(self, segment: Segment, *, create: bool = False, path: Path | None = None) -> int:
        """The segment's descriptor for reading and appending; `path` if it has not its name yet. Raises OSError."""
        with self._lock:
            if segment.descriptor >= 0:
                return segment.descriptor
            if segment.is_gone:
                # Its name may belong to the segment that took its place.
                raise SegmentGone(segment.path)
            # O_APPEND: after a cut the next write must land at the new end, not leave a hole.
            flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
            segment.descriptor = self.disk.open(path or segment.file(".log"), flags)
            segment.used = True
            self._open[segment] = None
            if len(self._open) > self.max_open:
                self._make_room(segment)
            return segment.descriptor

    def released(self, segment: Segment) -> None:
        """The last slice of the segment is gone."""
        if segment.close_when_released:
            self.close(segment)
        elif self.is_crowded:
            with self._lock:
                self._make_room(None)

    def close(self, segment: Segment) -> None:
        """Close the segment's descriptor; if a slice of it is on its way, that happens when the slice is released."""
        with self._lock:
            if segment.references:
                segment.close_when_released = True
            elif segment.descriptor >= 0:
                descriptor, segment.descriptor = segment.descriptor, -1
                del self._open[segment]
                self.disk.close(descriptor)

    def condemn(self, segment: Segment) -> None:
        """The segment's files get other names: from now on nobody may come to them by the old ones."""
        with self._lock:
            segment.is_gone = True
        self.close(segment)

    def while_present(self, segment: Segment, work: Callable[[], None]) -> None:
        """Do something with the segment's files by their names. Raises SegmentGone: it is not part of its log."""
        with self._lock:
            if segment.is_gone:
                raise SegmentGone(segment.path)
            work()

    def index_loaded(self, segment: Segment, size_bytes: int) -> None:
        """Count the index of a closed segment, which is in memory; older ones may have to go."""
        with self._lock:
            if segment.counted_index_bytes is not None:
                return
            segment.counted_index_bytes = size_bytes
            self._indexed.append(segment)
            self._index_bytes += size_bytes
            while self._index_bytes > self.max_index_bytes and len(self._indexed) > 1:
                oldest = self._indexed[0]
                self.forget_index(oldest)
                oldest.drop_index()

    def forget_index(self, segment: Segment) -> None:
        """The segment is gone, or its index became its own business."""
        with self._lock:
            if segment.counted_index_bytes is not None:
                self._indexed.remove(segment)
                self._index_bytes -= segment.counted_index_bytes
                segment.counted_index_bytes = None

    def _make_room(self, wanted: Segment | None) -> None:
        """Close descriptors that were not used of late, until no more are open than allowed."""
        self.is_crowded = True
        if threading.get_ident() != self._owner:
            return
        for _ in range(2 * len(self._open)):
            if len(self._open) <= self.max_open:
                self.is_crowded = False
                return
            segment = next(iter(self._open))
            if segment.used or segment.references or segment is wanted:
                segment.used = False
                self._open.move_to_end(segment)
            else:
                del self._open[segment]
                descriptor, segment.descriptor = segment.descriptor, -1
                self.disk.close(descriptor)


def sync_folders(disk: Disk, paths: Iterable[Path]) -> None:
    """Make the renames of these files durable. A folder that is gone is no error. Raises OSError."""
    for folder in dict.fromkeys(path.parent for path in paths):
        try:
            disk.fsync_directory(folder)
        except FileNotFoundError:
            continue


class Reaper:
    """Files that were renamed to `.deleted` and are unlinked later, by whoever has time (a helper thread).

    Until then a reader of the path by another process, such as an uploader, may still have it open.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[int, Path]] = []
        self._lock = threading.Lock()

    def condemn(self, path: Path, due_ms: int, companions: Iterable[Path] = (), suffix: str = DELETED_SUFFIX) -> None:
        """Rename the file or folder of this name away and let it go at `due_ms`. One that is not there is no error.

        Companions keep their names until then: they mean nothing without the segment.
        """
        if not path.name.endswith(DELETED_SUFFIX) and not path.name.endswith("-delete"):
            target = path.with_name(path.name + suffix)
            try:
                self._disk.rename(path, target)
            except FileNotFoundError:
                return
            path = target
        with self._lock:
            self._waiting.append((due_ms, path))
            self._waiting += [(due_ms, companion) for companion in companions]

    def due(self, now_ms: int) -> list[Path]:
        """Take the paths whose time has come; hand them to `unlink`."""
        with self._lock:
            taken = [path for due_ms, path in self._waiting if due_ms <= now_ms]
            self._waiting = [(due_ms, path) for due_ms, path in self._waiting if due_ms > now_ms]
        return taken

    def unlink(self, paths: list[Path]) -> None:
        """Remove files, and folders with all that is in them. Blocks; any thread may do it. Raises OSError."""
        sync_folders(self._disk, [path for path in paths if path.name.endswith(DELETED_SUFFIX)])
        for path in paths:
            if path.name.endswith((DELETED_SUFFIX, "-delete")) or not self._disk.exists(path.with_suffix(".log")):
                remove_tree(self._disk, path)


def remove_tree(disk: Disk, path: Path) -> None:
    """Remove a file, or a folder of files. What is not there is no error."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        # Linux says EISDIR for a folder, macOS EPERM.
        for name in disk.listdir(path):
            remove_tree(disk, path / name)
        disk.rmdir(path)
