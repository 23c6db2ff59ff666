"""One round of a lake worker as a pure generator: requests out, answers in. Its shell is `worker.py`.

Nothing is remembered from round to round: the ledger as it is read is the truth, and every write is a swap against it.
So a worker may be killed anywhere, and two may work at once: the slower one's swap is refused, and what it has put into
the store is either the same file under the same name, or dead.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from appliance.tiering.lake import policy
from appliance.tiering.lake.ledger import Ledger, LedgerPage, page_of
from appliance.tiering.lake.policy import WRITER_VERSION, Tier, Written
from appliance.tiering.lake.spec import LakeSpec

STEPS_MAX = 64
"""How many swaps one round makes; the next round goes on."""


@dataclass(frozen=True, slots=True)
class LoadLedger:
    """Answer: `LoadedLedger`."""


@dataclass(frozen=True, slots=True)
class LoadedLedger:
    ledger: Ledger
    etag: str | None
    """None: there is none yet; the first write creates it."""


@dataclass(frozen=True, slots=True)
class LoadTier:
    """Answer: `Tier`, whose pending begins at `next_offset`."""

    next_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class StoreLedger:
    """Create or swap. Answer: whether it is known to have happened; else the ledger is read again."""

    ledger: Ledger
    etag: str | None


@dataclass(frozen=True, slots=True)
class StorePage:
    """Create, or find the same bytes. Answer: True."""

    page: LedgerPage
    data: bytes


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """Carry out the open plan. Answer: `Written`, or a `Failed`."""

    ledger: Ledger


class Failed(Enum):
    """Why a plan's files are not all there."""

    EXPIRED = "expired"
    """Retention was faster; the tier is to be looked at again."""
    CLASH = "clash"
    """Something else lies under one of the names."""


Request = LoadLedger | LoadTier | StoreLedger | StorePage | WriteFiles
Round = Generator[Request, Any, "Ledger"]


def lake_round(spec: LakeSpec | None) -> Round:
    """Make files of what waits, plan by plan; returns the ledger as it was at the end.

    Args:
        spec: for new plans; None: only what was begun is finished.
    """
    ledger: Ledger | None = None
    for _ in range(STEPS_MAX):
        loaded = yield LoadLedger()
        ledger = loaded.ledger
        assert ledger is not None
        tier: Tier = yield LoadTier(ledger.next_offset, spec.max_bytes if spec else 0)
        newer = yield from _step(ledger, tier, spec)
        if newer is None:
            return ledger
        page = page_of(newer)
        if page is not None:
            yield StorePage(*page)
            newer = policy.paged(newer, page[0])
        yield StoreLedger(newer, loaded.etag)
    assert ledger is not None
    return ledger


def _step(ledger: Ledger, tier: Tier, spec: LakeSpec | None) -> Generator[Request, Any, Ledger | None]:
    """The ledger's next version; None when there is nothing to do."""
    if policy.gone(ledger, tier):
        return policy.skipped(ledger, tier)
    if ledger.plan is None:
        return policy.planned(ledger, tier, spec) if spec is not None else None
    if ledger.plan.writer != WRITER_VERSION:
        return policy.given_up(ledger)
    written: Written | Failed = yield WriteFiles(ledger)
    if isinstance(written, Written):
        return policy.committed(ledger, written)
    if written is Failed.EXPIRED:
        again: Tier = yield LoadTier(ledger.next_offset, 0)
        return policy.skipped(ledger, again) if policy.gone(ledger, again) else policy.given_up(ledger)
    return policy.given_up(ledger)
