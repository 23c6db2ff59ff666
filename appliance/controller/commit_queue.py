"""Operations that wait for the log, and how many of them share a commit (rules M2, M7). Pure.

One batch is under way at a time. Its operations are decided one after the other, each on an image that has the records
of those before it; nobody hears of it before all of it stands in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.controller.commits import COMMIT_OVERHEAD_BYTES, MAX_COMMIT_BYTES
from appliance.controller.decisions import Decision, Operation
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import MetadataImage
from appliance.controller.records import Record, encoded_size, position_of
from appliance.wire.schema import Struct

QUEUE_LIMIT = 10_000
COMMITS_PER_SECOND = 10
COMMITS_AT_ONCE = 50
"""A controller that has been idle does not wait: so many commits it has in hand before the rate holds."""
MAX_RECORDS_BYTES = MAX_COMMIT_BYTES - COMMIT_OVERHEAD_BYTES - 8
"""Leaves room for the header of the array of records."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An operation that is not decided yet."""

    operation: Operation
    token: Any
    """Whatever the caller needs to find whom to answer; None when nobody waits."""
    deadline_ms: int
    """When nobody waits for it any more (monotonic); what is decided is finished all the same."""


@dataclass(slots=True)
class Batch:
    """Operations that were decided together."""

    commits: list[list[Record]] = field(default_factory=list)
    """Records of each commit, in order; none when nothing has to be written."""
    decided: list[tuple[Any, Decision | Exception]] = field(default_factory=list)
    """Token and decision, or the exception with which the decision failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation came to."""

    token: Any
    result: Struct | Exception | None


class CommitQueue:
    """First come, first decided. All times are of the monotonic clock."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._batch: Batch | None = None
        self._allowance = float(COMMITS_AT_ONCE)
        self._allowance_at_ms: int | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether a batch is under way."""
        return self._batch is not None

    def submit(self, operation: Operation, token: Any, deadline_ms: int) -> bool:
        """Put an operation into the queue; False when it is full."""
        if len(self._waiting) >= QUEUE_LIMIT:
            return False
        self._waiting.append(Waiting(operation, token, deadline_ms))
        return True

    def delay_ms(self, now_ms: int) -> int | None:
        """In how many milliseconds `next_batch` may be called; None while nothing waits or a batch is under way."""
        if self._batch is not None or not self._waiting:
            return None
        self._refill(now_ms)
        return 0 if self._allowance >= 1 else int((1 - self._allowance) * 1_000 / COMMITS_PER_SECOND) + 1

    def next_batch(self, image: MetadataImage) -> Batch:
        """Decide what waits, as much as one commit holds. The caller commits it, then calls `settled`."""
        batch = Batch()
        delta = MetadataDelta(image)
        number, records, size = image.position + 1, list[Record](), 0
        while self._waiting:
            waiting = self._waiting[0]
            try:
                decision: Decision | Exception = waiting.operation(delta.build())
            except Exception as error:
                decision = error
            made = decision.records if isinstance(decision, Decision) else ()
            made_size = encoded_size(made)
            if records and size + made_size > MAX_RECORDS_BYTES:
                # It is decided anew in the next batch: this image is not the one it will meet then.
                break
            self._waiting.popleft()
            batch.decided.append((waiting.token, decision))
            for record in made:
                delta.apply(record, position_of(number, len(records)))
                records.append(record)
            size += made_size
        batch.commits = split(records)
        self._allowance -= len(batch.commits)
        self._batch = batch
        return batch

    def settled(self, image: MetadataImage) -> list[Answer]:
        """The whole batch stands in the log, and `image` has it: what to answer."""
        batch, self._batch = self._batch, None
        answers: list[Answer] = []
        for token, decision in batch.decided if batch else ():
            try:
                result = decision if isinstance(decision, Exception) else decision.respond(image)
            except Exception as error:
                result = error
            answers.append(Answer(token, result))
        return answers

    def expired(self, now_ms: int) -> list[Any]:
        """Tokens of operations that waited longer than anybody wants; they will not be done."""
        expired = [waiting.token for waiting in self._waiting if waiting.deadline_ms <= now_ms]
        if expired:
            self._waiting = deque(waiting for waiting in self._waiting if waiting.deadline_ms > now_ms)
        return expired

    def _refill(self, now_ms: int) -> None:
        passed_ms = now_ms - (self._allowance_at_ms if self._allowance_at_ms is not None else now_ms)
        self._allowance = min(COMMITS_AT_ONCE, self._allowance + passed_ms * COMMITS_PER_SECOND / 1_000)
        self._allowance_at_ms = now_ms


def split(records: Sequence[Record]) -> list[list[Record]]:
    """Rule M7: records in as many commits as they need; a single event's are split between two records."""
    commits: list[list[Record]] = []
    size = MAX_RECORDS_BYTES + 1
    for record in records:
        record_size = encoded_size([record])
        if size + record_size > MAX_RECORDS_BYTES:
            commits.append([])
            size = 0
        commits[-1].append(record)
        size += record_size
    return commits
