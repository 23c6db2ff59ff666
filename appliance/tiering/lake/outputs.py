"""Which output of a topic counts, what an output holds, and the sweep of its dead files.

`current.json` is changed by compare-and-swap; without one the first output counts. A backfill is a new output: it is
made from the tier's first record on, and the old one stays as it is until `drop_output`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from appliance.base.ids import uuid_from_text, uuid_to_text
from appliance.base.object_store import ObjectNotFound, ObjectStore
from appliance.tiering.document import CorruptDocument, encode_document, parse_document
from appliance.tiering.lake.ledger import CorruptLedger, LakeFile, Ledger, parse_ledger, parse_page
from appliance.tiering.lake.names import DATA, DEAD, LAKE, Output, current_name, ledger_name, parse_file_name
from appliance.tiering.lake.policy import is_dead

FORMAT = "appliance lake output"
FORMAT_VERSION = 1
_CURRENT = re.compile(r"lake/([A-Za-z0-9_-]{22})/current\.json")
_LEDGER = re.compile(r"(\d{5,10})/ledger\.json")


@dataclass(frozen=True, slots=True)
class Current:
    """The output that counts."""

    output: Output
    etag: str | None


def current_output(store: ObjectStore, topic_id: uuid.UUID) -> Current:
    """Raises: ObjectStoreError, CorruptLedger."""
    try:
        stored = store.get(current_name(topic_id))
    except ObjectNotFound:
        return Current(Output(topic_id, 0), None)
    try:
        values = parse_document(stored.data, FORMAT, FORMAT_VERSION)
        return Current(Output(topic_id, int(values["generation"])), stored.etag)
    except (CorruptDocument, KeyError, TypeError, ValueError) as error:
        raise CorruptLedger(f"{current_name(topic_id)}: {error}") from error


def begin_output(store: ObjectStore, topic_id: uuid.UUID) -> Output:
    """Let a new output count, which is then made from the beginning.

    Raises: ObjectStoreError (ObjectExists and ETagMismatch: somebody else did the same), CorruptLedger.
    """
    present = current_output(store, topic_id)
    output = Output(topic_id, present.output.generation + 1)
    head = {"topic_id": uuid_to_text(topic_id), "generation": output.generation}
    data = encode_document({"format": FORMAT, "format_version": FORMAT_VERSION, **head}, [])
    if present.etag is None:
        store.create(current_name(topic_id), data)
    else:
        store.swap(current_name(topic_id), data, present.etag)
    return output


def read_ledger(store: ObjectStore, output: Output, partition: int) -> Ledger | None:
    """Raises: ObjectStoreError, CorruptLedger."""
    try:
        return parse_ledger(store.get(ledger_name(output, partition)).data)
    except ObjectNotFound:
        return None


def read_ledgers(store: ObjectStore, output: Output) -> Iterator[Ledger]:
    """The ledgers of all partitions. Raises: ObjectStoreError, CorruptLedger."""
    for row in store.list(output.folder):
        match = _LEDGER.fullmatch(row.name.removeprefix(output.folder))
        if match is not None:
            ledger = read_ledger(store, output, int(match.group(1)))
            if ledger is not None:
                yield ledger


def outputs_of(store: ObjectStore) -> list[Output]:
    """Outputs that count and have a ledger or were begun. Raises: ObjectStoreError, CorruptLedger."""
    topics: dict[uuid.UUID, None] = {}
    for row in store.list(LAKE):
        match = _CURRENT.fullmatch(row.name) or re.match(r"lake/([A-Za-z0-9_-]{22})-\d", row.name)
        if match is not None:
            try:
                topics[uuid_from_text(match.group(1))] = None
            except ValueError:
                continue
    return [current_output(store, topic_id).output for topic_id in topics]


def files_of(store: ObjectStore, output: Output, ledger: Ledger) -> Iterator[LakeFile]:
    """All files that count, in the order of their plans. Raises: ObjectStoreError, CorruptLedger."""
    folder = ledger_name(output, ledger.partition).removesuffix("ledger.json")
    for page in ledger.pages:
        yield from parse_page(store.get(folder + page.name).data, page)
    yield from ledger.files


def files_in(store: ObjectStore, output: Output) -> dict[int, dict[str, int]]:
    """Names (relative) and sizes of all files in the store, by partition. Raises: ObjectStoreError."""
    found: dict[int, dict[str, int]] = {}
    for kind in (DATA, DEAD):
        for row in store.list(f"{output.folder}{kind}/"):
            name = row.name.removeprefix(output.folder)
            parsed = parse_file_name(name)
            if parsed is not None:
                found.setdefault(parsed.partition, {})[name] = row.size
    return found


def sweep(store: ObjectStore, output: Output) -> int:
    """Delete what is dead (K6); returns how many.

    Raises: ObjectStoreError, CorruptLedger.
    """
    count = 0
    for partition, names in sorted(files_in(store, output).items()):
        ledger = read_ledger(store, output, partition)
        if ledger is None:
            continue
        listed = {file.name for file in files_of(store, output, ledger)}
        for name in sorted(names):
            if is_dead(name, partition, ledger, listed):
                store.delete(output.folder + name)
                count += 1
    return count


def drop_output(store: ObjectStore, output: Output) -> int:
    """Delete an output that does not count any more, its ledgers last; returns how many objects.

    Raises: ObjectStoreError, CorruptLedger; ValueError: it is the one that counts.
    """
    if current_output(store, output.topic_id).output == output:
        raise ValueError(f"{output} is the output that counts")
    rows = [row.name for row in store.list(output.folder)]
    for name in sorted(rows, key=lambda name: name.endswith("/ledger.json")):
        store.delete(name)
    return len(rows)
