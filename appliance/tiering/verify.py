"""Anyone's proof that the tier is whole: the bucket compared with its manifests, no holes, no orphans, checksums kept.

Reads only; may run while brokers write. What a leader has uploaded and not yet listed is counted as in flight, by the
epoch in its name.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from appliance.base.object_store import ObjectNotFound, ObjectStore, RangeNotSatisfiable
from appliance.records.errors import CorruptBatch
from appliance.tiering.layout import CorruptObject, parse_tail
from appliance.tiering.manifest import (
    MAX_OFFSET,
    CorruptManifest,
    HoleItem,
    Item,
    Manifest,
    PageItem,
    SegmentItem,
    parse_manifest,
    parse_page,
)
from appliance.tiering.names import MANIFEST, TIER, manifest_name, parse_folder, parse_name, partition_folder
from appliance.tiering.scan import scan_segment

READ_BYTES = 8 << 20
PASSES_MAX = 5
"""So often a partition is read anew because its manifest changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that must not be. `kind`: hole, overlap, missing, damaged, orphan, manifest, unknown, stranger."""

    kind: str
    name: str
    detail: str


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition's folder."""

    topic_id: uuid.UUID
    partition: int
    topic: str = ""
    version: int = 0
    leader_epoch: int = -1
    start_offset: int = 0
    end_offset: int = 0
    segments: int = 0
    records: int = 0
    size_bytes: int = 0
    garbage: int = 0
    """Objects that wait for their deletion."""
    in_flight: list[str] = field(default_factory=list)
    """Names that the present leader may still list."""
    is_deleted: bool = False
    """The topic is deleted, its objects are being removed."""
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class TierReport:
    """What was found in the tier."""

    partitions: list[PartitionReport] = field(default_factory=list)
    strangers: list[Problem] = field(default_factory=list)
    """Names in the tier's folder that nothing of ours gives."""

    @property
    def problems(self) -> list[Problem]:
        return [*(problem for report in self.partitions for problem in report.problems), *self.strangers]

    @property
    def is_whole(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """What the metadata knows: topics by id, and those that are deleted but may still have objects."""

    present: Mapping[uuid.UUID, str]
    deleted: Mapping[uuid.UUID, str]


def read_manifests(store: ObjectStore) -> Iterator[Manifest]:
    """Every manifest in the store. Raises: ObjectStoreError, CorruptManifest."""
    for row in store.list(TIER):
        if row.name.endswith("/" + MANIFEST):
            yield parse_manifest(store.get(row.name).data)


def verify_tier(store: ObjectStore, *, read_data: bool = True, topics: Collection[str] = ()) -> TierReport:
    """Verify every partition in the store, or those of `topics`.

    With `read_data` every object is read whole, else only its tail. Raises: StoreUnavailable, StoreRefused.
    """
    report = TierReport()
    folders: dict[tuple[uuid.UUID, int], None] = {}
    for row in store.list(TIER):
        place = parse_folder(row.name)
        if place is None:
            report.strangers.append(Problem("stranger", row.name, "not a name of the tier"))
        else:
            folders[place[:2]] = None
    for topic_id, partition in folders:
        found = verify_partition(store, topic_id, partition, read_data=read_data)
        if not topics or found.topic in topics:
            report.partitions.append(found)
    return report


def compare_topics(report: TierReport, known: KnownTopics) -> None:
    """Tell of topics that the metadata, read after the tier, does not know; deleted ones are on their way out."""
    for found in report.partitions:
        if found.topic_id in known.deleted:
            found.is_deleted, found.topic = True, known.deleted[found.topic_id]
            found.problems.clear()
        elif found.topic_id not in known.present:
            found.problems.append(Problem("unknown", found.topic, "the metadata knows no topic of this id"))


def verify_partition(
    store: ObjectStore, topic_id: uuid.UUID, partition: int, *, read_data: bool = True
) -> PartitionReport:
    """Verify one partition (invariants I1, I2, I7). Raises: StoreUnavailable, StoreRefused."""
    name = manifest_name(topic_id, partition)
    for _ in range(PASSES_MAX):
        report = PartitionReport(topic_id, partition)
        etag = _verify_once(store, report, read_data)
        # Retention may have deleted what we were about to read: a finding counts if the manifest stood still.
        if not report.problems or etag is None or store.get_if_changed(name, etag) is None:
            return report
    return report


def _verify_once(store: ObjectStore, report: PartitionReport, read_data: bool) -> str | None:
    """Fill in a report; returns the ETag of the manifest it is about."""
    folder = partition_folder(report.topic_id, report.partition)
    # First the list, then the manifest: what is listed later than it was seen cannot look like an orphan.
    present = {row.name.removeprefix(folder): row.size for row in store.list(folder)}
    try:
        stored = store.get(folder + MANIFEST)
        manifest = parse_manifest(stored.data, check_cover=False)
    except ObjectNotFound:
        _unlisted(report, present, set(), -1)
        return None
    except CorruptManifest as error:
        report.problems.append(Problem("manifest", MANIFEST, str(error)))
        return None
    report.topic, report.version, report.leader_epoch = manifest.topic, manifest.version, manifest.leader_epoch
    report.start_offset, report.end_offset = manifest.start_offset, manifest.end_offset
    report.garbage = sum(entry.name in present for entry in manifest.garbage)
    if (manifest.topic_id, manifest.partition) != (report.topic_id, report.partition):
        report.problems.append(Problem("manifest", MANIFEST, "is of another partition"))
    report.problems += _cover_problems(manifest)
    listed = {entry.name for entry in manifest.garbage}
    cleaned = MAX_OFFSET
    for item in _all_items(store, folder, manifest.items, report):
        if isinstance(item, HoleItem):
            continue
        if item.name in listed:
            report.problems.append(Problem("manifest", item.name, "is listed twice, or is garbage too"))
        listed.add(item.name)
        if isinstance(item, SegmentItem):
            report.segments += 1
            report.records += item.records
            report.size_bytes += item.size
            if item.cleaned > cleaned:
                report.problems.append(Problem("manifest", item.name, "is compacted further than what lies below it"))
            cleaned = min(cleaned, item.cleaned)
            problem = _verify_object(store, manifest, folder, item, read_data)
            if problem is not None:
                report.problems.append(problem)
    _unlisted(report, present, listed, manifest.leader_epoch)
    return stored.etag


def _cover_problems(manifest: Manifest) -> list[Problem]:
    """I1: items adjoin from start to end."""
    problems = []
    position = manifest.start_offset
    for item in manifest.items:
        name = getattr(item, "name", MANIFEST)
        if item.start > position:
            problems.append(Problem("hole", name, f"nothing covers [{position}, {item.start})"))
        elif item.start < position or item.end <= item.start:
            problems.append(Problem("overlap", name, f"[{item.start}, {item.end}) comes after offset {position}"))
        position = max(position, item.end)
    if position != manifest.end_offset:
        kind, low, high = ("hole", position, manifest.end_offset)
        if low > high:
            kind, low, high = ("overlap", high, low)
        problems.append(Problem(kind, MANIFEST, f"[{low}, {high}) at the end {manifest.end_offset}"))
    return problems


def _all_items(store: ObjectStore, folder: str, items: tuple[Item, ...], report: PartitionReport) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, PageItem):
            try:
                inside = parse_page(store.get(folder + item.name).data, item)
            except ObjectNotFound:
                report.problems.append(Problem("missing", item.name, f"lists [{item.start}, {item.end})"))
                continue
            except CorruptManifest as error:
                report.problems.append(Problem("damaged", item.name, str(error)))
                continue
            yield from _all_items(store, folder, inside, report)


def _verify_object(
    store: ObjectStore, manifest: Manifest, folder: str, item: SegmentItem, read_data: bool
) -> Problem | None:
    try:
        stored = store.get(folder + item.name, start=-item.tail)
        if stored.size != item.size:
            return Problem("damaged", item.name, f"has {stored.size} bytes, {item.size} are listed")
        footer = parse_tail(stored.data, stored.size).footer
        if (footer.topic_id, footer.partition) != (manifest.topic_id, manifest.partition):
            return Problem("damaged", item.name, "is of another partition")
        if footer.start > item.start or footer.end < item.end:
            covered = f"[{footer.start}, {footer.end})"
            return Problem("damaged", item.name, f"covers {covered}, listed for [{item.start}, {item.end})")
        if footer.data_crc32c != item.data_crc32c or footer.data_length != item.data_length:
            return Problem("damaged", item.name, "its footer and the manifest tell of other data")
        if read_data:
            scan = scan_segment(
                _Buffered(store, folder + item.name, footer.data_length).read_at,
                footer.data_length,
                footer.start,
                listed_from=item.start,
                index_interval_bytes=READ_BYTES,
                open_transactions={},
            )
            if scan.data_crc32c != footer.data_crc32c or scan.records != footer.records:
                return Problem("damaged", item.name, "its data is not what the footer says")
    except ObjectNotFound:
        return Problem("missing", item.name, f"holds [{item.start}, {item.end})")
    except (CorruptObject, CorruptBatch, RangeNotSatisfiable) as error:
        return Problem("damaged", item.name, str(error))
    return None


def _unlisted(report: PartitionReport, present: dict[str, int], listed: set[str], leader_epoch: int) -> None:
    for text in sorted(present.keys() - listed - {MANIFEST}):
        name = parse_name(text)
        if name is None:
            report.problems.append(Problem("stranger", text, "not a name of the tier"))
        elif name.epoch >= leader_epoch:
            report.in_flight.append(text)
        else:
            report.problems.append(Problem("orphan", text, f"of leader epoch {name.epoch}, never listed"))


class _Buffered:
    """Small reads in order, served from large ranged GETs."""

    def __init__(self, store: ObjectStore, name: str, length: int) -> None:
        self._store = store
        self._name = name
        self._length = length
        self._start = 0
        self._data = b""

    def read_at(self, position: int, length: int) -> bytes:
        if not self._start <= position <= position + length <= self._start + len(self._data):
            wanted = min(max(length, READ_BYTES), self._length - position)
            self._data = self._store.get(self._name, start=position, length=wanted).data
            self._start = position
        return self._data[position - self._start : position - self._start + length]
