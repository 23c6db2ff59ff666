"""Bytes from hell for batches and log files: an answer or CorruptBatch, soon, and without taking much memory."""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.disk import SystemDisk
from appliance.log.indexes import CorruptIndex, OffsetIndex, TimeIndex, aborted_from_bytes
from appliance.log.producer_snapshot import CorruptSnapshot, snapshot_from_bytes
from appliance.log.scan import walk_batches, walk_headers
from appliance.records.batch import CRC_START, check_batch, parse_header, split_batches
from appliance.records.builder import build_batch
from appliance.records.compression import Codec, decompress
from appliance.records.control import read_marker
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records
from tests.support.logs import fill, open_log, read_all

MEMORY_MAX_BYTES = 16 << 20
LONGEST_S = 3.0


def good_batch(source: random.Random, codec: int) -> bytearray:
    records = [
        (
            source.randint(-1, 2**40),
            source.randbytes(source.randint(0, 9)) or None,
            source.randbytes(30),
            (("h", b"x"),),
        )
        for _ in range(source.randint(1, 20))
    ]
    return bytearray(build_batch(records, codec=codec))


def mutated(batch: bytearray, source: random.Random) -> bytearray:
    changed = bytearray(batch)
    for _ in range(source.randint(1, 4)):
        kind = source.random()
        at = source.randrange(len(changed))
        if kind < 0.5:
            changed[at] ^= 1 << source.randrange(8)
        elif kind < 0.7:
            end = min(len(changed), at + 4)
            changed[at:end] = source.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"])[
                : end - at
            ]
        elif kind < 0.85:
            del changed[at:]
        else:
            changed[at:at] = source.randbytes(source.randint(1, 5))
        if not changed:
            changed.append(0)
    return changed


def with_valid_frame(batch: bytearray) -> bytearray:
    """Length and crc made right again: a hostile producer can do that."""
    if len(batch) >= 61:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def try_everything(data: bytes | bytearray) -> None:
    readers: list[Callable[[], object]] = [
        lambda: check_batch(data),
        lambda: list(split_batches(data)),
        lambda: list(read_records(data, max_bytes=1 << 20)),
        lambda: read_marker(data),
        lambda: parse_header(data),
    ]
    for reader in readers:
        try:
            reader()
        except CorruptBatch:
            pass


@pytest.mark.parametrize("codec", Codec)
def test_damaged_batches_are_read_or_refused(codec: Codec) -> None:
    source = random.Random(1_000 + codec)
    tracemalloc.start()
    begin = time.monotonic()
    for _ in range(400):
        batch = mutated(good_batch(source, codec), source)
        try_everything(batch)
        try_everything(with_valid_frame(batch))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY_MAX_BYTES
    assert time.monotonic() - begin < 10 * LONGEST_S


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try_everything(data)
    try_everything(with_valid_frame(bytearray(data)))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 8))
def test_any_block_is_unpacked_or_refused(data: bytes, codec: int) -> None:
    try:
        assert len(decompress(codec, data, max_bytes=1 << 20)) <= 1 << 20
    except CorruptBatch:
        pass


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_index_or_snapshot_is_read_or_refused(data: bytes) -> None:
    for read, refusal in (
        (lambda: OffsetIndex.from_bytes(data, 1_000), CorruptIndex),
        (lambda: TimeIndex.from_bytes(data), CorruptIndex),
        (lambda: aborted_from_bytes(data), CorruptIndex),
        (lambda: snapshot_from_bytes(data), CorruptSnapshot),
    ):
        try:
            read()
        except refusal:
            pass


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_any_file_is_walked_or_refused(data: bytes) -> None:
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, data)
        for walk in (walk_headers, walk_batches):
            try:
                list(walk(SystemDisk(), descriptor, 0, len(data), 0))
            except CorruptBatch:
                pass
    finally:
        os.close(descriptor)


def test_a_folder_with_any_damage_opens_and_takes_records(tmp_path: Path) -> None:
    source = random.Random(7)
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        log = open_log(folder)
        values = fill(log, 20)
        log.close(clean=source.random() < 0.5)
        victims = [path for path in log.directory.iterdir() if path.name != "partition.metadata"]
        for path in source.sample(victims, source.randint(1, len(victims))):
            if path.stat().st_size:
                path.write_bytes(mutated(bytearray(path.read_bytes()), source))
        again = open_log(folder, recovery_point=source.choice([0, 5, 20]), clean=source.random() < 0.3)
        end = again.log_end_offset
        fill(again, 3)
        assert [record.offset for record in read_all(again, end)] == [end, end + 1, end + 2]
        try:
            assert [record.value for record in read_all(again)][: len(values)] == values[: min(end, 20)] or end != 20
        except CorruptBatch:
            pass
        again.close(clean=False)
