"""Cleaned segments take the place of old ones, so that a crash at any moment leaves the one or the other.

```
1. x.index.cleaned, x.timeindex.cleaned, x.txnindex.cleaned, and last x.log.cleaned   become   ….swap
2. the files of the old segments                                                      become   ….deleted
3. x.index.swap, x.timeindex.swap, x.txnindex.swap, and last x.log.swap               become   x.index … x.log
```
After each step the folder is flushed: within one, a power cut may keep some renames and lose others. All four new files
are always there, so that one without `.swap` beside an `x.log.swap` has its name already.

From the moment on that there is an `x.log.swap` the new segment counts; a start then goes on with steps 2 and 3. It
stands for all old segments from its base offset to its last batch's end, as in Apache Kafka.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from appliance.base.disk import Disk
from appliance.log.open_files import remove_tree
from appliance.log.scan import walk_headers
from appliance.records.errors import CorruptBatch

logger = logging.getLogger(__name__)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
LOG_SUFFIX = ".log"
SEGMENT_SUFFIXES = (".index", ".timeindex", ".txnindex", LOG_SUFFIX)
"""In the order in which they are renamed: the log is the last."""
_OFFSET_DIGITS = 20


class CleanedSegment(NamedTuple):
    """A segment whose files are complete, as `….cleaned`."""

    base_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    sources: tuple[int, ...]
    """Base offsets of the segments that it stands for."""


def commit_swap(disk: Disk, directory: Path, base_offset: int) -> None:
    """Step 1. Raises OSError: then the new files can be removed, and the old segments still count."""
    _rename_all(disk, directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)


def finish_swap(disk: Disk, directory: Path, base_offset: int) -> None:
    """Step 3. Raises OSError."""
    _rename_all(disk, directory, base_offset, SWAP_SUFFIX, "")


def _rename_all(disk: Disk, directory: Path, base_offset: int, suffix: str, new_suffix: str) -> None:
    for path in _paths(directory, base_offset):
        try:
            disk.rename(path.with_name(path.name + suffix), path.with_name(path.name + new_suffix))
        except FileNotFoundError:
            if path.name.endswith(LOG_SUFFIX):
                raise


def _paths(directory: Path, base_offset: int) -> list[Path]:
    stem = f"{base_offset:0{_OFFSET_DIGITS}d}"
    return [directory / f"{stem}{kind}" for kind in SEGMENT_SUFFIXES]


def discard(disk: Disk, directory: Path, base_offset: int) -> None:
    """Remove the files of a cleaned segment that is not in force. Raises OSError."""
    for path in reversed(_paths(directory, base_offset)):
        remove_tree(disk, path.with_name(path.name + SWAP_SUFFIX))
        remove_tree(disk, path.with_name(path.name + CLEANED_SUFFIX))


def finish_swaps(disk: Disk, directory: Path, names: list[str], offset_in: Callable[[str], int | None]) -> bool:
    """At a start: bring to its end what a crash has interrupted. Returns whether names in the folder have changed.

    Raises:
        OSError: the disk refuses.
    """
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if not swaps:
        return False
    present = set(names)
    splitting = [
        offset
        for name in names
        if name.endswith(LOG_SUFFIX + CLEANED_SUFFIX) and (offset := offset_in(name)) is not None
    ]
    for name in sorted(swaps):
        offset = offset_in(name)
        log_name = f"{offset or 0:0{_OFFSET_DIGITS}d}{LOG_SUFFIX}"
        if offset is None or (splitting and offset >= min(splitting)):
            # Apache Kafka splits a segment from the back: before the first part is there the old one counts.
            disk.unlink(directory / name)
        elif log_name + SWAP_SUFFIX in present:
            continue
        elif log_name in present:
            # Apache Kafka renames the log first in step 3.
            disk.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
        else:
            disk.unlink(directory / name)
    for name in sorted(swaps):
        offset = offset_in(name)
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and offset is not None and disk.exists(directory / name):
            logger.warning("%s: the cleaned segment at %d takes its place", directory.name, offset)
            for path in _paths(directory, offset):
                # Step 1 was not kept whole.
                cleaned = path.with_name(path.name + CLEANED_SUFFIX)
                if disk.exists(cleaned):
                    disk.rename(cleaned, path.with_name(path.name + SWAP_SUFFIX))
            _remove_replaced(disk, directory, offset, disk.listdir(directory), offset_in)
            disk.fsync_directory(directory)
            finish_swap(disk, directory, offset)
    disk.fsync_directory(directory)
    return True


def _remove_replaced(
    disk: Disk, directory: Path, base_offset: int, names: list[str], offset_in: Callable[[str], int | None]
) -> None:
    """Step 2 at a start: the old segments between the base offset and the end of the new one."""
    stem = f"{base_offset:0{_OFFSET_DIGITS}d}"
    end_offset = _end_offset(disk, directory / f"{stem}{LOG_SUFFIX}{SWAP_SUFFIX}", base_offset)
    for name in names:
        offset = offset_in(name)
        # Those of the base offset itself are new already, or step 3 replaces them.
        if offset is not None and name.endswith(SEGMENT_SUFFIXES) and base_offset < offset < end_offset:
            disk.unlink(directory / name)


def _end_offset(disk: Disk, path: Path, base_offset: int) -> int:
    descriptor = disk.open(path, os.O_RDONLY)
    end_offset = base_offset + 1
    try:
        for _, header in walk_headers(disk, descriptor, 0, disk.size(descriptor), base_offset):
            end_offset = max(end_offset, header.next_offset)
    except CorruptBatch as error:
        logger.error("%s: %s", path, error)
    finally:
        disk.close(descriptor)
    return end_offset
