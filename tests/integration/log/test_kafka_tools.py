"""Apache Kafka's own tool reads our files, each kind of them, and has nothing to complain about."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from appliance.log.partition_log import PartitionLog
from appliance.records.compression import Codec
from appliance.records.control import ABORT, COMMIT, build_marker
from tests.support.java_tools import QUICK_START
from tests.support.kafka_jars import java_command
from tests.support.logs import START_MS, append, config_of, open_log, stage

pytestmark = pytest.mark.java

DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = r"mismatch|corrupt|exception|error|out of order|invalid bytes|not found"
RECORDS_PER_BATCH = 3


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    """Every codec, idempotent producers, committed and aborted transactions, several epochs and segments."""
    log = open_log(tmp_path_factory.mktemp("data"), config_of(segment_bytes=6_000, index_interval_bytes=500))
    sequences = {1: 0, 2: 0}
    for number in range(150):
        values = [b"%03d-%d " % (number, n) * 10 for n in range(RECORDS_PER_BATCH)]
        options = {"codec": number % len(Codec), "timestamp": START_MS + number * 100}
        if number % 3:
            producer = number % 3
            options |= {"producer_id": producer, "producer_epoch": 4, "base_sequence": sequences[producer]}
            sequences[producer] += RECORDS_PER_BATCH
        append(log, *values, leader_epoch=number // 40, transactional=number % 3 == 2, **options)
        if number % 10 == 9:
            kind = ABORT if number % 20 == 9 else COMMIT
            marker = build_marker(kind, 7, producer_id=2, producer_epoch=4, now_ms=START_MS + number * 100)
            stage(log, bytearray(marker), leader_epoch=number // 40)
            log.write_staged()
    assert len(log.segments) > 3 and log.aborted_transactions(0, log.log_end_offset)
    log.close()
    return log


def dump(*paths: Path, options: tuple[str, ...] = ()) -> str:
    files = ",".join(str(path) for path in sorted(paths))
    command = java_command(DUMP_TOOL, "--files", files, *options, options=QUICK_START)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert not re.search(COMPLAINTS, text, re.I), text
    return text


def files(log: PartitionLog, suffix: str) -> list[Path]:
    found = sorted(log.directory.glob(f"*{suffix}"))
    assert found
    return found


def test_log_segments_are_read_with_every_record(log: PartitionLog) -> None:
    text = dump(*files(log, ".log"), options=("--deep-iteration", "--print-data-log"))
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.M)]
    assert offsets == list(range(log.log_end_offset))
    assert text.count("isvalid: true") == 150 + 15
    assert text.count("isvalid: false") == 0
    assert text.count("endTxnMarker: ABORT") == 8 and text.count("endTxnMarker: COMMIT") == 7
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in text
    assert "149-2 149-2" in text
    assert {int(found) for found in re.findall(r"partitionLeaderEpoch: (\d+)", text)} == {0, 1, 2, 3}


def test_offset_indexes_agree_with_the_log(log: PartitionLog) -> None:
    text = dump(*files(log, ".index"))
    assert len(re.findall(r"offset: \d+ position: \d+", text)) == sum(len(segment.index) for segment in log.segments)
    dump(*files(log, ".index"), options=("--index-sanity-check",))


def verified(log: PartitionLog) -> list[int]:
    """Let the tool look into every file of a closed log, in each of its ways; returns the offsets it has read."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    # Of segments that were deleted, an index may stay until its time has come.
    bases = {path.stem for path in log.directory.glob("*.log")}
    found = [path for kind in kinds for path in log.directory.glob(f"*{kind}")]
    everything = [path for path in found if path.stem in bases or path.suffix == ".snapshot"]
    text = dump(*everything, options=("--deep-iteration", "--print-data-log"))
    assert "isvalid: false" not in text
    indexes = [path for path in everything if path.suffix in (".index", ".timeindex")]
    for options in (("--index-sanity-check",), ("--verify-index-only",)):
        dump(*indexes, options=options)
    return [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.M)]


def busy_log(folder: Path, batches: int = 120) -> PartitionLog:
    """As `log`, in every codec and with transactions; still open."""
    log = open_log(folder, config_of(segment_bytes=6_000, index_interval_bytes=500))
    for number in range(batches):
        values = [b"%03d-%d " % (number, n) * 10 for n in range(RECORDS_PER_BATCH)]
        producer = {"producer_id": 2, "producer_epoch": 4, "base_sequence": RECORDS_PER_BATCH * number}
        append(log, *values, codec=number % len(Codec), timestamp=START_MS + number, transactional=True, **producer)
        if number % 10 == 9:
            kind = ABORT if number % 20 == 9 else COMMIT
            stage(log, bytearray(build_marker(kind, 7, producer_id=2, producer_epoch=4, now_ms=START_MS + number)))
            log.write_staged()
    assert len(log.segments) > 3
    return log


@pytest.mark.parametrize("cut", [150, 171])
def test_what_is_left_of_a_cut_log_has_no_fault(tmp_path: Path, cut: int) -> None:
    log = busy_log(tmp_path)
    if cut % 2:
        log.flush()
    slice_on_its_way = log.read(cut - 1, 1_000, log.log_end_offset)
    assert slice_on_its_way is not None
    slice_on_its_way.retain()
    log.truncate_to(cut)
    slice_on_its_way.release()
    end = log.log_end_offset
    for number in range(60):
        append(log, b"behind the cut %d" % number * 5, codec=number % len(Codec), leader_epoch=9)
    log.close()
    assert end <= cut
    assert verified(log)[-60:] == list(range(end, end + 60))


@pytest.mark.parametrize("torn_bytes", [0, 100])
def test_what_recovery_leaves_has_no_fault(tmp_path: Path, torn_bytes: int) -> None:
    log = busy_log(tmp_path)
    end = log.log_end_offset
    log.close(clean=False)
    # As after a crash: no index was stored, the last write is torn.
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        for path in log.directory.glob(f"*{suffix}"):
            path.unlink()
    newest = max(log.directory.glob("*.log"))
    if torn_bytes:
        newest.write_bytes(newest.read_bytes()[:-torn_bytes])
    log = open_log(tmp_path, log.config, recovery_point=0)
    assert (log.log_end_offset == end) == (not torn_bytes)
    append(log, b"after the crash", leader_epoch=9)
    last = log.log_end_offset - 1
    log.close()
    assert verified(log)[-1] == last


def test_what_retention_and_deletion_leave_has_no_fault(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    log.raise_log_start(155)
    log.delete_local_segments_below(155)
    append(log, b"more")
    log.close()
    assert verified(log)[-1] == log.log_end_offset - 1


def test_time_indexes_agree_with_the_log(log: PartitionLog) -> None:
    text = dump(*files(log, ".timeindex"))
    assert f"timestamp: {START_MS + 149 * 100 + 2}" in text


def test_transaction_indexes_list_the_aborted(log: PartitionLog) -> None:
    text = dump(*files(log, ".txnindex"))
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert [tuple(map(int, entry)) for entry in found] == [
        tuple(entry) for entry in log.aborted_transactions(0, log.log_end_offset)
    ]


def test_producer_snapshots_are_read(log: PartitionLog) -> None:
    text = dump(*files(log, ".snapshot")[-1:])
    found = {
        int(producer): (int(epoch), int(sequence))
        for producer, epoch, sequence in re.findall(
            r"producerId: (\d+) producerEpoch: (\d+).*?lastSequence: (\d+)", text, re.S
        )
    }
    entries = log.producer_state.entries
    assert found == {producer: (entry.epoch, entry.last_sequence) for producer, entry in entries.items()}
