"""How fast record batches become Arrow columns on one core, compiled and with numpy, by CPU seconds; CRCs are checked.

python -m tests.benchmarks.spark_decode
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

from appliance.base.ids import TopicPartition
from appliance.records.builder import build_batch
from appliance.records.compression import Codec
from spark import decode, decode_native, decode_numpy
from spark.decode import DEFAULT_COLUMNS, Chunk, Decoder

BATCH_BYTES = 64_000
TOTAL_BYTES = 32 << 20
ROUNDS = 3
KINDS = (("100 B", 100, Codec.NONE), ("1 KB", 1_000, Codec.NONE), ("100 B in lz4", 100, Codec.LZ4))
COLUMNS = {"all": DEFAULT_COLUMNS, "offset and timestamp": ("offset", "timestamp"), "offset": ("offset",)}


def data(size: int, codec: int) -> tuple[bytes, int]:
    """Batches of records of about `size` bytes, and how many records; random ones unless they are to be packed."""
    chance = random.Random(1)
    batches, offset = [], 0
    while offset * size < TOTAL_BYTES:
        numbers = range(offset, offset + BATCH_BYTES // size)
        offset = numbers.stop
        values = [
            chance.randbytes(size - 8) if codec == Codec.NONE else (b'{"n":%d,"word":"abcdef"}' % n).ljust(size - 8)
            for n in numbers
        ]
        records = [(1_700_000_000_000 + n, b"k%06d" % n, value, ()) for n, value in zip(numbers, values, strict=True)]
        batches.append(build_batch(records, base_offset=numbers.start, codec=codec))
    return b"".join(batches), offset


def million_a_second(chunk: bytes, records: int, columns: tuple[str, ...], read_columns: Callable[..., Any]) -> float:
    """The best of some rounds."""
    best_s = float("inf")
    used, decode.read_columns = decode.read_columns, read_columns
    try:
        for _ in range(ROUNDS):
            began_s = time.process_time()
            decoder = Decoder(columns, TopicPartition("t", 0), "hot", True)
            rows = sum(batch.num_rows for batch in decoder.decode([Chunk(chunk)], 0, records))
            best_s = min(best_s, time.process_time() - began_s)
            assert rows == records, f"{rows} rows of {records} records"
    finally:
        decode.read_columns = used
    return records / best_s / 1e6


def main() -> int:
    ways: dict[str, Callable[..., Any]] = {"numpy": decode_numpy.read_columns}
    if decode_native.is_native():
        ways = {"compiled": decode_native.read_columns, **ways}
    print(f"| million records/s | {' | '.join(COLUMNS)} |")
    print("|---|" + "---|" * len(COLUMNS))
    for name, size, codec in (
        ("100 B", 100, Codec.NONE),
        ("1 KB", 1_000, Codec.NONE),
        ("100 B in lz4", 100, Codec.LZ4),
    ):
        chunk, records = data(size, codec)
        for way, read_columns in ways.items():
            rates = [million_a_second(chunk, records, columns, read_columns) for columns in COLUMNS.values()]
            print(f"| {name}, {way} | {' | '.join(f'{rate:.1f}' for rate in rates)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
