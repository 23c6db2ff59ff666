"""Anyone's proof that a lake output is whole: files that count are there and undamaged, each record in exactly one.

Reads only; may run while workers write.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import crc32c

from appliance.base.object_store import ObjectNotFound, ObjectStore
from appliance.tiering.lake.ledger import CorruptLedger, LakeFile, Ledger
from appliance.tiering.lake.names import DATA, Output
from appliance.tiering.lake.outputs import files_in, files_of, read_ledger, read_ledgers
from appliance.tiering.lake.policy import is_dead
from appliance.tiering.lake.rows import committed_records
from appliance.tiering.reader import TierDataLoss, TierNotCovering, TierReader

PROBLEMS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LakeProblem:
    """What is wrong: `missing`, `damaged`, `orphan`, `twice`, `hole` or `stranger`."""

    kind: str
    name: str
    detail: str


@dataclass(slots=True)
class LakeReport:
    """One partition of an output."""

    topic: str
    partition: int
    output: str
    next_offset: int
    tiered_end: int
    rows: int
    dead: int
    files: int
    skipped: list[tuple[int, int, str]]
    in_flight: int = 0
    problems: list[LakeProblem] = field(default_factory=list)

    def add(self, kind: str, name: str, detail: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(LakeProblem(kind, name, detail))


def verify_output(store: ObjectStore, output: Output, *, read_data: bool = True) -> list[LakeReport]:
    """Compare an output with its ledgers and, with `read_data`, every row with the tier as far as that still reaches.

    Raises: ObjectStoreError, CorruptLedger, CorruptManifest.
    """
    in_store = files_in(store, output)
    reports = []
    for first in sorted(read_ledgers(store, output), key=lambda ledger: ledger.partition):
        # Names first, then the ledger: what is listed later must not look like an orphan.
        ledger = read_ledger(store, output, first.partition) or first
        reports.append(_verify(store, output, ledger, in_store.pop(ledger.partition, {}), read_data))
    for partition, names in sorted(in_store.items()):
        report = LakeReport("", partition, str(output), 0, 0, 0, 0, 0, [])
        for name in sorted(names):
            report.add("stranger", name, "its partition has no ledger")
        reports.append(report)
    return reports


def _verify(store: ObjectStore, output: Output, ledger: Ledger, names: dict[str, int], read_data: bool) -> LakeReport:
    reader = TierReader(store)
    manifest = reader.manifest(output.topic_id, ledger.partition)
    report = LakeReport(
        ledger.topic,
        ledger.partition,
        str(output),
        ledger.next_offset,
        manifest.end_offset if manifest is not None else 0,
        ledger.rows,
        ledger.dead,
        ledger.file_count,
        [(one.start, one.end, one.reason) for one in ledger.skipped],
    )
    try:
        files = list(files_of(store, output, ledger))
    except (CorruptLedger, ObjectNotFound) as error:
        report.add("damaged", f"{output}/{ledger.partition:05}", str(error))
        return report
    listed = {file.name for file in files}
    if len(listed) != len(files):
        report.add("twice", f"{output}/{ledger.partition:05}", "a file is listed twice")
    for name in sorted(names.keys() - listed):
        if is_dead(name, ledger.partition, ledger, listed):
            report.add("orphan", name, "no ledger lists it, and none will")
        else:
            report.in_flight += 1
    for file in files:
        size = names.get(file.name)
        # One that is not in the list may have been written and listed since.
        if size is None and not _is_there(store, output, file):
            report.add("missing", file.name, "the ledger lists it")
        elif size is not None and size != file.size:
            report.add("damaged", file.name, f"has {size} bytes, the ledger says {file.size}")
    if sum(file.rows for file in files if file.kind == DATA) != ledger.rows:
        report.add("damaged", f"{output}/{ledger.partition:05}", "the ledger's rows are not the sum of its files'")
    if read_data and not report.problems:
        _verify_rows(store, output, ledger, files, reader, manifest.start_offset if manifest else 0, report)
    return report


def _is_there(store: ObjectStore, output: Output, file: LakeFile) -> bool:
    try:
        return store.get(output.folder + file.name, start=-1).size == file.size
    except ObjectNotFound:
        return False


def _verify_rows(
    store: ObjectStore,
    output: Output,
    ledger: Ledger,
    files: list[LakeFile],
    reader: TierReader,
    tier_start: int,
    report: LakeReport,
) -> None:
    position = 0
    for plan, among in itertools.groupby(files, key=lambda file: file.plan):
        offsets: list[int] = []
        for file in among:
            found = _offsets(store, output, file, report)
            if found is None:
                return
            offsets += found
        offsets.sort()
        if any(left == right for left, right in itertools.pairwise(offsets)) or offsets[0] < position:
            report.add("twice", f"plan {plan}", f"a record between {offsets[0]} and {offsets[-1]} is in two files")
            return
        _compare(reader, ledger, position, offsets[-1] + 1, offsets, tier_start, report)
        position = offsets[-1] + 1
    _compare(reader, ledger, position, ledger.next_offset, [], tier_start, report)


def _offsets(store: ObjectStore, output: Output, file: LakeFile, report: LakeReport) -> list[int] | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from appliance.tiering.lake.writer import OFFSET

    data = store.get(output.folder + file.name).data
    if crc32c.crc32c(data) != file.crc32c:
        report.add("damaged", file.name, "its checksum differs from the ledger's")
        return None
    found: list[int] = pq.read_table(pa.BufferReader(data), columns=[OFFSET], partitioning=None).column(0).to_pylist()
    if len(found) != file.rows or not found or found[0] != file.start or found[-1] + 1 != file.end:
        report.add("damaged", file.name, "its rows are not those that the ledger says")
        return None
    return found


def _compare(
    reader: TierReader, ledger: Ledger, start: int, end: int, offsets: list[int], tier_start: int, report: LakeReport
) -> None:
    """Offsets in files against those of committed records in [start, end), as far as the tier still has them."""
    for low, high in _kept(ledger, max(start, tier_start), end):
        try:
            wanted = _visible(reader, ledger, low, high)
        except (TierDataLoss, TierNotCovering):
            continue
        in_files = [offset for offset in offsets if low <= offset < high]
        if in_files != wanted:
            missing = sorted(set(wanted) - set(in_files))
            detail = f"records from {missing[0]} on are in no file" if missing else "rows that are no records"
            report.add("hole", f"offsets {low} to {high - 1}", detail)


def _visible(reader: TierReader, ledger: Ledger, start: int, end: int) -> list[int]:
    found: list[int] = []
    for piece in committed_records(reader, ledger.topic_id, ledger.partition, start, end):
        found += piece.offsets
    return found


def _kept(ledger: Ledger, start: int, end: int) -> Iterator[tuple[int, int]]:
    """[start, end) without the ranges that were skipped."""
    position = start
    for low, high, _ in ledger.skipped:
        if low > position:
            yield position, min(low, end)
        position = max(position, high)
        if position >= end:
            return
    if position < end:
        yield position, end
