"""Apache Kafka's tool reads our files: segments, indexes and snapshots of producers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.compat import AGAINST_KAFKA, CODECS, Server, produce, samples
from tests.support.java_tools import tool

pytestmark = pytest.mark.java

BATCHES = 400
RECORDS_OF_A_BATCH = 10


@pytest.fixture(scope="module")
def files(server: Server) -> list[Path]:
    """A partition with several segments, all codecs, idempotent producers, and close entries in its indexes."""
    topic = server.new_topic(segment_bytes="1048576", index_interval_bytes="4096", retention_ms="-1")
    for codec in CODECS:
        produce(server, topic, samples(), compression_type=codec, enable_idempotence=True)
        values = [b"%d" % number * 40 for number in range(BATCHES * RECORDS_OF_A_BATCH)]
        produce(server, topic, values, compression_type=codec, batch_num_messages=RECORDS_OF_A_BATCH)
    return sorted(server.partition_folder(topic).glob("0*"))


def of_kind(files: list[Path], *suffixes: str) -> str:
    return ",".join(str(path) for path in files if path.suffix in suffixes)


def test_segments_indexes_and_snapshots_are_read_without_complaint(files: list[Path]) -> None:
    expected = len(CODECS) * (len(samples()) + BATCHES * RECORDS_OF_A_BATCH)
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) >= 4, "segments were rolled"
    told = tool(
        "DumpLogSegments", "--files", of_kind(files, ".log", ".index", ".timeindex", ".snapshot"), "--deep-iteration"
    )
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+).* isvalid: (\w+)", told, re.MULTILINE)
    assert [int(base) for base, *_ in batches] == [0, *(int(last) + 1 for _, last, *_ in batches[:-1])]
    assert sum(int(count) for *_, count, _ in batches) == expected
    assert {valid for *_, valid in batches} == {"true"}
    assert {codec.lower() for codec in re.findall(r" compresscodec: (\w+) ", told)} == set(CODECS)
    entries = re.findall(r"^offset: \d+ position: \d+", told, re.MULTILINE)
    assert len(entries) > len(logs)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", told, re.MULTILINE)) >= len(logs)
    assert re.search(r"^producerId: \d+ producerEpoch: 0 .* lastSequence: 15 ", told, re.MULTILINE)
    assert complaints(told) == []


def complaints(told: str) -> list[str]:
    """What the tool found wrong.

    It finds fault with the first record of every segment but the first of a log ("-1 is followed by"), Kafka's own
    segments included.
    """
    words = r"mismatch|non-consecutive|not match|out of order|invalid|corrupt|could not|error|-?\d+ is followed by"
    lines = [line for line in told.splitlines() if re.search(words, line, re.IGNORECASE)]
    quirk = [line for line in lines if re.match(r"\s+-1 is followed by", line)]
    own = [line for line in lines if line.startswith("Non-consecutive offsets in")]
    return [line for line in lines if line not in quirk and not (line in own and len(own) == len(quirk))]


def test_indexes_pass_their_sanity_check(files: list[Path]) -> None:
    if AGAINST_KAFKA:  # the indexes of its active segment have room for more, which the tool takes for entries
        files = [path for path in files if path.stem != files[-1].stem]
    indexes = of_kind(files, ".index", ".timeindex")
    told = tool("DumpLogSegments", "--files", indexes, "--index-sanity-check")
    checked = set(re.findall(r"(\d+\.\w+) (?:passed sanity check|is empty)\.", told))
    assert checked == {path.name for path in files if path.suffix in (".index", ".timeindex")}
    assert complaints(told) == []
