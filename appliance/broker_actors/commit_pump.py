"""From decisions to the metadata log and back: batches, snapshots and proofs of an active controller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.broker_actors.metadata_store import MetadataStore
from appliance.controller.commit_queue import Answer, Batch, CommitQueue
from appliance.controller.commits import Commit
from appliance.controller.decisions import Operation
from appliance.controller.metadata_log import MetadataLog
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

OWN_OPERATION_TIMEOUT_MS = 1 << 40
"""What the controller decides by itself waits for the store for as long as it takes."""

Done = Callable[[Struct | Exception | None], None]
"""Gets the answer of an operation once its records stand in the log, or why there is none."""


class CommitPump:
    """One batch at a time goes through the log. All methods are called on the loop's thread.

    Args:
        on_commit: a commit was settled; the log's position has it (rule M4).
        on_failure: the log cannot go on (replaced, damaged): nothing more is answered.
    """

    def __init__(
        self,
        log: MetadataLog,
        steps: MetadataStore,
        background: Background,
        clock: Clock,
        config: BrokerConfig,
        *,
        on_commit: Callable[[Commit], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._steps = steps
        self._background = background
        self._clock = clock
        self._proof_interval_ms: int = config.get("controller.proof.interval.ms")
        self._snapshot_interval: int = config.get("metadata.snapshot.interval.commits")
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._queue = CommitQueue()
        self._begun = False
        self._batch_scheduled = False
        self._proving = False
        self._trimming = False

    def __len__(self) -> int:
        """Operations that wait."""
        return len(self._queue)

    def begin(self) -> None:
        """The epoch is claimed: commits may be made."""
        self._begun = True
        self._background.schedule(self._proof_interval_ms, self._prove)
        self._pump()

    def submit(self, operation: Operation, done: Done, timeout_ms: int) -> None:
        """Decide and commit, then call `done`; REQUEST_TIMED_OUT if it had to wait for too long to be decided."""
        if not self._queue.submit(operation, done, self._clock.monotonic_ms() + timeout_ms):
            done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many operations wait for the metadata log"))
            return
        self._pump()

    def expire(self) -> None:
        """Give up what has waited for longer than anybody wants; called now and then."""
        for done in self._queue.expired(self._clock.monotonic_ms()):
            reason = f": the object store gives no answer: {self._log.trouble}" if self._log.trouble else ""
            done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata log did not take it in time{reason}"))

    def _pump(self) -> None:
        delay_ms = self._queue.delay_ms(self._clock.monotonic_ms())
        if self._begun and not self._batch_scheduled and delay_ms is not None:
            # Also without delay by way of the loop: what arrives in the same tick shares the commit.
            self._batch_scheduled = True
            self._background.schedule(delay_ms, self._begin_batch)

    def _begin_batch(self) -> None:
        self._batch_scheduled = False
        delay_ms = self._queue.delay_ms(self._clock.monotonic_ms())
        if delay_ms == 0:
            self._commit(self._queue.next_batch(self._log.image), 0)
        else:
            self._pump()

    def _commit(self, batch: Batch, at: int) -> None:
        """Commit what is left of the batch, one commit after the other; then answer."""
        if at == len(batch.commits):
            self._tell(self._queue.settled(self._log.image))
            self._pump()
            return

        def done(result: Commit | Exception) -> None:
            if isinstance(result, Exception):
                self._on_failure(result)
                return
            self._on_commit(result)
            self._trim()
            self._commit(batch, at + 1)

        self._steps.run(self._log.commit(batch.commits[at], self._clock.now_ms()), done)

    @staticmethod
    def _tell(answers: Iterable[Answer]) -> None:
        for answer in answers:
            if isinstance(answer.result, Exception) and not isinstance(answer.result, KafkaError):
                _log.error("a decision failed", exc_info=answer.result)
            try:
                answer.token(answer.result)
            except Exception:
                _log.exception("an answer could not be given")

    def _trim(self) -> None:
        if self._trimming or self._log.commits_since_snapshot() < self._snapshot_interval:
            return
        self._trimming = True

        def done(result: Exception | None) -> None:
            self._trimming = False
            if isinstance(result, Exception):
                self._on_failure(result)

        self._steps.run(self._log.snapshot_and_trim(self._clock.now_ms()), done)

    def _prove(self) -> None:
        """Rule C2. A commit is a proof, too."""
        self._background.schedule(self._proof_interval_ms, self._prove)
        if self._proving or self._queue.busy:
            return
        self._proving = True

        def done(result: Exception | None) -> None:
            self._proving = False
            if isinstance(result, Exception):
                self._on_failure(result)

        self._steps.run(self._log.prove(), done)
