"""Decides what a lake worker does next, and what a ledger becomes by it. Pure.

K1 A plan (range, spec, schema) is in the ledger before a byte of it is written; time and size decide only then.
K2 Whoever carries it out makes the same files under the same names.
K3 Files and next offset are committed in one swap.
K4 Rows that do not parse go to the plan's dead letters; the schema is a fold over the rows from the plan's schema on.
K5 A plan of other code, or one whose records have expired, is given up: its number is never used again.
K6 What has a number up to the last plan's, is not of the open plan and not listed, is dead.
K7 A backfill is a new output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from appliance.base.errors import invariant
from appliance.tiering.lake.ledger import SKIPPED_MAX, LakeFile, Ledger, LedgerPage, Plan, Skipped
from appliance.tiering.lake.names import DATA, parse_file_name
from appliance.tiering.lake.spec import LakeSpec

WRITER_VERSION = 1
"""One more whenever the same plan would be cut into other files."""


class Pending(NamedTuple):
    """Offsets of the tier that may go into the next plan: one segment, or what is left of it."""

    start: int
    end: int
    size: int
    age_ms: int
    """How long its records have been waiting, as far as somebody knows."""


@dataclass(frozen=True, slots=True)
class Tier:
    """What a worker sees of the tier."""

    start: int
    end: int
    pending: tuple[Pending, ...] = ()
    """From the ledger's next offset on, as far as one plan may reach."""


@dataclass(frozen=True, slots=True)
class Written:
    """All files of a plan are in the store."""

    files: tuple[LakeFile, ...]
    schema: str


def gone(ledger: Ledger, tier: Tier) -> bool:
    """Whether records that come next have expired."""
    return tier.start > ledger.next_offset


def skipped(ledger: Ledger, tier: Tier) -> Ledger:
    """The ledger behind what has expired; a plan that began there is given up."""
    invariant(gone(ledger, tier), "nothing has expired")
    ranges = (*ledger.skipped, Skipped(ledger.next_offset, tier.start, "expired"))
    if len(ranges) > SKIPPED_MAX:
        first, second = ranges[:2]
        ranges = (Skipped(first.start, second.end, "expired, and more between"), *ranges[2:])
    return _next(ledger, plan=None, next_offset=tier.start, skipped=ranges)


def given_up(ledger: Ledger) -> Ledger:
    """The ledger without its plan: the next one has another number, and so other names."""
    return _next(ledger, plan=None)


def planned(ledger: Ledger, tier: Tier, spec: LakeSpec) -> Ledger | None:
    """The ledger with a new plan; None while there is not enough, and nothing old enough, to be worth one."""
    invariant(ledger.plan is None, "a plan is open")
    size = end = age_ms = 0
    for one in tier.pending:
        if one.start > ledger.next_offset and not end:
            break
        size, end, age_ms = size + one.size, one.end, max(age_ms, one.age_ms)
        if size >= spec.max_bytes:
            break
    if not end or (size < spec.max_bytes and age_ms < spec.max_age_ms):
        return None
    number = ledger.plan_no + 1
    plan = Plan(number, ledger.next_offset, end, WRITER_VERSION, ledger.schema, spec)
    return _next(ledger, plan=plan, plan_no=number)


def committed(ledger: Ledger, written: Written) -> Ledger:
    """The ledger with the files of its plan, which is done."""
    plan = ledger.plan
    invariant(plan is not None, "no plan is open")
    assert plan is not None
    for file in written.files:
        name = parse_file_name(file.name)
        invariant(name is not None and name.plan == file.plan == plan.no, f"{file.name} is none of plan {plan.no}")
        invariant(plan.start <= file.start and file.end <= plan.end, f"{file.name} holds more than plan {plan.no}")
    rows = {kind: sum(file.rows for file in written.files if (file.kind == DATA) is kind) for kind in (True, False)}
    return _next(
        ledger,
        plan=None,
        next_offset=plan.end,
        files=(*ledger.files, *written.files),
        schema=written.schema,
        rows=ledger.rows + rows[True],
        dead=ledger.dead + rows[False],
    )


def paged(ledger: Ledger, page: LedgerPage) -> Ledger:
    """The ledger with its oldest files in a page."""
    return replace(ledger, files=ledger.files[page.files :], pages=(*ledger.pages, page))


def is_dead(name: str, partition: int, ledger: Ledger, listed: Sequence[str] | set[str]) -> bool:
    """Whether a file's name (relative to the output) will never count (K6).

    Once true it stays true, however old the ledger is, so deleting needs no clock.
    """
    parsed = parse_file_name(name)
    if parsed is None or parsed.partition != partition or parsed.plan > ledger.plan_no:
        return False
    return (ledger.plan is None or parsed.plan != ledger.plan.no) and name not in listed


def _next(ledger: Ledger, **changes: Any) -> Ledger:
    newer = replace(ledger, version=ledger.version + 1, **changes)
    newer.check()
    invariant(newer.next_offset >= ledger.next_offset, "the next offset would go back")
    return newer
