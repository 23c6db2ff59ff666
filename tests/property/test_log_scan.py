"""The tight loop that checks the end of a log after a crash finds what a plain walk finds, whatever the bytes are."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.log import scan
from appliance.records.batch import stamp
from appliance.records.errors import CorruptBatch
from tests.support.fault_disk import FaultDisk
from tests.support.logs import batch_of

PATH = Path("/log")


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 3), st.integers(-1, 2)), min_size=1, max_size=12),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    cut=st.floats(0, 1),
    read_bytes=st.integers(100, 6_000),
)
def test_both_stop_at_the_same_batch(
    sizes: list[tuple[int, int, int]], damage: list[tuple[float, int]], cut: float, read_bytes: int
) -> None:
    content, offset = bytearray(), 7
    for size, count, producer in sizes:
        batch = batch_of(*[b"v" * size] * count, producer_id=producer, base_sequence=0, producer_epoch=0)
        stamp(batch, offset, 1)
        content += batch
        offset += count
    for place, value in damage:
        content[int(place * (len(content) - 1))] = value
    del content[int(cut * len(content)) + 1 :]
    disk = FaultDisk()
    descriptor = disk.open(PATH, os.O_RDWR | os.O_CREAT)
    disk.pwrite(descriptor, content, 0)
    expected, position, found = 7, 0, []
    plain_error = checked_error = False
    try:
        for at, header, batch in scan.walk_batches(disk, descriptor, 0, len(content), 7, read_bytes):
            # Of the leader epochs, which no crc covers either, only the other one takes notice.
            if header.partition_leader_epoch != 1:
                return
            found.append(header)
            position, expected = at + len(batch), header.next_offset
    except CorruptBatch:
        plain_error = True
    tail = scan.Tail(7, 200, 7, -1, 7)
    try:
        with mock.patch.object(scan, "TAIL_READ_BYTES", read_bytes):
            scan.check_tail(disk, descriptor, tail, len(content))
    except CorruptBatch:
        checked_error = True
    assert (tail.position, tail.next_offset, checked_error) == (position, expected, plain_error)
    assert tail.max_timestamp == max((header.max_timestamp for header in found), default=-1)
    assert set(tail.producers) == {header.producer_id for header in found if header.producer_id >= 0}
