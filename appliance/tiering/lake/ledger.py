"""The ledger: one small object per partition that says which file holds the rows of which offsets.

```
{
"format":"appliance lake ledger","format_version":1,"output":…,"topic":…,"topic_id":…,"partition":…,
"version":…        one more at each write
"next_offset":…    rows of all offsets below are in the files, or skipped
"plan_no":…        of the last plan; numbers are never given again
"schema":…         of the columns so far
"rows":…,"dead":…  rows and dead letters so far
"plan":…           null, or what is being done: no, start, end, writer, schema, spec
"files":[          one a line, in the order of their plans
[kind,plan,name,start,end,rows,size,crc32c]
],
"pages":[          older files, 256 in an object of its own
[name,size,crc32c,files,rows]
],
"skipped":[        ranges that were gone before their rows were made
[start,end,reason]
],
"crc32c":…
}
```
`kind` is `data` or `dead` (rows that do not parse). `start` and `end` are the first offset in the file and that behind
its last. Names are relative to the output's folder, a page's to the partition's.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from crc32c import crc32c

from appliance.base.errors import invariant
from appliance.base.ids import uuid_from_text, uuid_to_text
from appliance.tiering.document import CorruptDocument, encode_document, parse_document
from appliance.tiering.lake.names import DATA, DEAD, page_name
from appliance.tiering.lake.spec import LakeSpec, parse_spec

FORMAT = "appliance lake ledger"
PAGE_FORMAT = "appliance lake page"
FORMAT_VERSION = 1
FILES_MAX = 512
"""Above so many files the oldest 256 are moved to a page."""
PAGE_FILES = 256
SKIPPED_MAX = 1_000


class CorruptLedger(ValueError):
    """A ledger or page that cannot be believed."""


class LakeFile(NamedTuple):
    """A file that counts."""

    kind: str
    plan: int
    name: str
    start: int
    end: int
    rows: int
    size: int
    crc32c: int


class LedgerPage(NamedTuple):
    """An object that lists older files."""

    name: str
    size: int
    crc32c: int
    files: int
    rows: int


class Skipped(NamedTuple):
    """Offsets whose records were gone before their rows were made."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, fixed before the first byte is written: whoever carries it out makes the same files."""

    no: int
    start: int
    end: int
    writer: int
    """Version of the code; another one may cut files elsewhere."""
    schema: str
    spec: LakeSpec


@dataclass(frozen=True, slots=True)
class Ledger:
    """One version of a partition's ledger."""

    output: str
    topic: str
    topic_id: uuid.UUID
    partition: int
    version: int = 0
    next_offset: int = 0
    plan_no: int = 0
    schema: str = ""
    rows: int = 0
    dead: int = 0
    plan: Plan | None = None
    files: tuple[LakeFile, ...] = ()
    pages: tuple[LedgerPage, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def file_count(self) -> int:
        return len(self.files) + sum(page.files for page in self.pages)

    def check(self) -> None:
        """Raises: InvariantBroken."""
        invariant(self.plan is None or self.plan.no == self.plan_no, "the open plan is not the last one")
        invariant(self.plan is None or self.plan.start == self.next_offset, "the plan does not begin where files end")
        invariant(len(self.skipped) <= SKIPPED_MAX, f"{len(self.skipped)} ranges were skipped")


def encode_ledger(ledger: Ledger) -> bytes:
    """The bytes of a ledger's object."""
    plan = ledger.plan
    head: dict[str, object] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "output": ledger.output,
        "topic": ledger.topic,
        "topic_id": uuid_to_text(ledger.topic_id),
        "partition": ledger.partition,
        "version": ledger.version,
        "next_offset": ledger.next_offset,
        "plan_no": ledger.plan_no,
        "schema": ledger.schema,
        "rows": ledger.rows,
        "dead": ledger.dead,
        "plan": None
        if plan is None
        else {
            "no": plan.no,
            "start": plan.start,
            "end": plan.end,
            "writer": plan.writer,
            "schema": plan.schema,
            "spec": plan.spec.encoded(),
        },
    }
    return encode_document(head, [("files", ledger.files), ("pages", ledger.pages), ("skipped", ledger.skipped)])


def parse_ledger(data: bytes) -> Ledger:
    """Read a ledger. Raises: CorruptLedger."""
    try:
        values = parse_document(data, FORMAT, FORMAT_VERSION)
        plan = values["plan"]
        return Ledger(
            output=str(values["output"]),
            topic=str(values["topic"]),
            topic_id=uuid_from_text(values["topic_id"]),
            partition=int(values["partition"]),
            version=int(values["version"]),
            next_offset=int(values["next_offset"]),
            plan_no=int(values["plan_no"]),
            schema=str(values["schema"]),
            rows=int(values["rows"]),
            dead=int(values["dead"]),
            plan=None if plan is None else _plan(plan),
            files=tuple(_file(row) for row in values["files"]),
            pages=tuple(LedgerPage(str(row[0]), *map(int, row[1:])) for row in values["pages"]),
            skipped=tuple(Skipped(int(row[0]), int(row[1]), str(row[2])) for row in values["skipped"]),
        )
    except (CorruptDocument, KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptLedger(f"ledger damaged: {error}") from error


def encode_page(ledger: Ledger, files: Sequence[LakeFile]) -> bytes:
    """The bytes of a page; the same for everybody who moves the same files."""
    head = {"format": PAGE_FORMAT, "format_version": FORMAT_VERSION, "output": ledger.output}
    return encode_document({**head, "partition": ledger.partition}, [("files", files)])


def page_of(ledger: Ledger) -> tuple[LedgerPage, bytes] | None:
    """The page that the oldest files are to be moved to, when there are too many; its name is always the same."""
    if len(ledger.files) <= FILES_MAX:
        return None
    moved = ledger.files[:PAGE_FILES]
    data = encode_page(ledger, moved)
    rows = sum(file.rows for file in moved)
    return LedgerPage(page_name(len(ledger.pages)), len(data), crc32c(data), len(moved), rows), data


def parse_page(data: bytes, page: LedgerPage) -> tuple[LakeFile, ...]:
    """The files of a page. Raises: CorruptLedger: damaged, or not the one that the ledger lists."""
    if len(data) != page.size or crc32c(data) != page.crc32c:
        raise CorruptLedger(f"{page.name}: not the page that the ledger lists")
    try:
        return tuple(_file(row) for row in parse_document(data, PAGE_FORMAT, FORMAT_VERSION)["files"])
    except (CorruptDocument, KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptLedger(f"{page.name}: page damaged: {error}") from error


def _plan(values: dict[str, Any]) -> Plan:
    number, start, end, writer = (int(values[name]) for name in ("no", "start", "end", "writer"))
    return Plan(number, start, end, writer, str(values["schema"]), parse_spec(values["spec"]))


def _file(row: Sequence[Any]) -> LakeFile:
    kind, plan, name, *numbers = row
    if kind not in (DATA, DEAD):
        raise CorruptLedger(f"file of an unknown kind: {kind!r}")
    return LakeFile(kind, int(plan), str(name), *map(int, numbers))
