"""Which whole batches of a piece of a segment a reader wants."""

from __future__ import annotations

from typing import NamedTuple

from appliance.records.batch import HEADER_BYTES, MAGIC, parse_header
from appliance.records.errors import CorruptBatch


class BatchRange(NamedTuple):
    """[begin, stop) of the piece are whole wanted batches."""

    begin: int
    stop: int
    next_offset: int
    """Behind the last wanted batch; what was asked for when there is none yet."""
    is_complete: bool
    """Nothing behind `stop` is wanted: a limit is reached. Else the piece ends within the next batch."""


def wanted_batches(data: bytes | memoryview, start: int, end: int, max_bytes: int, *, min_one: bool) -> BatchRange:
    """Walk over the batches at the beginning of `data`.

    Wanted are those with offsets in [start, end), as many as fit into `max_bytes`; with `min_one` at least one.
    Raises: CorruptBatch: no batch stands where one should.
    """
    view = memoryview(data)
    position, begin, next_offset, size_of_all = 0, -1, start, len(view)
    while position + HEADER_BYTES <= size_of_all:
        header = parse_header(view, position)
        size = header.size_in_bytes
        if size < HEADER_BYTES or header.magic != MAGIC:
            raise CorruptBatch(f"no batch at position {position} of the piece: {size} bytes, magic {header.magic}")
        is_wanted = header.next_offset > start
        room = max_bytes if begin < 0 else max_bytes - (position - begin)
        full = is_wanted and size > room and not (min_one and begin < 0)
        if header.base_offset >= end or full:
            return BatchRange(position if begin < 0 else begin, position, next_offset, True)
        if position + size > size_of_all:
            break
        if is_wanted:
            begin = position if begin < 0 else begin
            next_offset = header.next_offset
        position += size
    return BatchRange(position if begin < 0 else begin, position, next_offset, False)
