"""The beginning of a segment in a file of its own, where the old file must stay whole for those who still read it.

A slice that is on its way to a client is a place in a file. Cutting that file, and appending to it again, would send
other records in its stead; so the kept part is copied, and takes the name. The old file lives on without one, until the
last slice lets it go.
"""

from __future__ import annotations

import os

from appliance.base.disk import Disk
from appliance.log.checkpoints import write_fully
from appliance.log.open_files import OpenFiles
from appliance.log.segment import Segment

TEMPORARY_SUFFIX = ".tmp"
_COPY_BYTES = 1 << 20


def replaced(segment: Segment, size_bytes: int, files: OpenFiles) -> Segment:
    """A segment with the first `size_bytes` of this one, whose place it takes on the disk. Blocks.

    The copy is durable before it takes the name: what was flushed stays flushed.

    Raises:
        OSError: nothing has changed.
    """
    disk = files.disk
    temporary = segment.path.with_name(segment.path.name + TEMPORARY_SUFFIX)
    target = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        _copy(disk, segment.open(), target, size_bytes)
        disk.fsync(target)
    finally:
        disk.close(target)
    index, time_index, aborted = segment.index, segment.time_index, segment.aborted
    disk.rename(temporary, segment.path)
    disk.fsync_directory(segment.directory)
    copy = Segment(segment.directory, segment.base_offset, files, segment.index_interval_bytes)
    segment.forget()
    copy.become_active(index, time_index, aborted)
    copy.stored_aborted = segment.stored_aborted
    copy.is_damaged = segment.is_damaged
    copy.first_append_ms = segment.first_append_ms
    copy.first_batch_timestamp = segment.first_batch_timestamp
    copy.knows_its_times = segment.knows_its_times
    copy.next_offset = segment.next_offset
    copy.size_bytes = size_bytes
    return copy


def _copy(disk: Disk, source: int, target: int, size_bytes: int) -> None:
    position = 0
    while position < size_bytes:
        piece = disk.pread(source, min(_COPY_BYTES, size_bytes - position), position)
        if not piece:
            raise OSError(f"the file ends at {position}, below {size_bytes}")
        write_fully(disk, target, piece, position)
        position += len(piece)
