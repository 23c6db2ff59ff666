"""Tiering on a broker: drives the machine of each led partition, does its requests in helper threads, acts on the log.

Everything here runs on the event loop's thread, in slices of a few partitions, but for the requests themselves. At most
`tiering.upload.max.in.flight` uploads and `REQUESTS_MAX` other requests are under way; the rest waits in line, with a
visible reason. An upload that outlives its deadline is undecided, whatever its thread may still do.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig, TopicConfig
from appliance.base.errors import InvariantBroken
from appliance.base.randomness import Randomness
from appliance.log.errors import LogWriteFailed, OffsetOutOfRange
from appliance.log.partition_log import PartitionLog
from appliance.log.producer_snapshot import CorruptSnapshot
from appliance.tiering.body import BodyStore
from appliance.tiering.copy_rate import CopyRate
from appliance.tiering.events import (
    Effect,
    Event,
    Halted,
    LogFacts,
    LogRecovered,
    MergeObjects,
    ReadFailed,
    Recovered,
    Request,
    RollSegment,
    StartAt,
    TieredTo,
    UploadFailed,
    UploadSegment,
    UploadUndecided,
    failure_of,
)
from appliance.tiering.limits import TieringLimits
from appliance.tiering.lines import Attempt, RequestLine
from appliance.tiering.log_source import log_facts, segment_source, waiting_to_be_tiered
from appliance.tiering.merger import ObjectMerge
from appliance.tiering.policy import TieringLeader
from appliance.tiering.quiet import Quiet, log_rests_ms
from appliance.tiering.recovery import TierEnd, bring_in_line
from appliance.tiering.store_calls import StoreCalls
from appliance.tiering.uploader import SegmentUpload

REQUESTS_MAX = 16
"""Requests to the store, other than uploads, that one broker has under way."""
PARTITIONS_PER_SLICE = 50
"""So many partitions are looked at before the event loop gets its turn again."""
QUIET_PER_SLICE = 2_000
"""So many are passed over, because nothing has changed."""

_log = logging.getLogger(__name__)


class TierablePartition(Protocol):
    """A partition that this broker leads, as tiering needs it."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def partition(self) -> int: ...
    @property
    def config(self) -> TopicConfig: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def recovering(self) -> bool:
        """Whether the manifest must be claimed before anything is served (unclean election, unclean shutdown)."""

    @property
    def log_was_lost(self) -> bool:
        """Whether it was elected uncleanly with an empty log."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def last_stable_offset(self) -> int: ...
    def tiered_to(self, offset: int) -> None:
        """Confirmed: the tier holds everything below `offset`."""

    def raise_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for every reader."""

    def recovered(self) -> None:
        """The log agrees with the tier: the partition may be served."""


@dataclass(frozen=True, slots=True)
class PartitionTieringStatus:
    """What `status` shows of one partition."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    state: str
    leader_epoch: int
    start_offset: int
    tiered_end: int
    waiting_segments: int
    """Closed segments that are not in the tier yet."""
    waiting_bytes: int
    reason: str
    """Why nothing goes on although something waits; empty when all is well."""


class TieringManager:
    """The tiering of all partitions that one broker leads."""

    def __init__(
        self, store: BodyStore, background: Background, clock: Clock, randomness: Randomness, config: BrokerConfig
    ) -> None:
        """`background` should be of tiering's own: uploads hold its threads for many seconds."""
        self._store = store
        self._background = background
        self._clock = clock
        self._randomness = randomness
        self._limits = TieringLimits(
            upload_timeout_ms=config.get("tiering.upload.timeout.ms"),
            upload_min_bytes_per_second=config.get("tiering.upload.min.bytes.per.second"),
            backoff_ms=config.get("tiering.retry.backoff.ms"),
            backoff_max_ms=config.get("tiering.retry.backoff.max.ms"),
            delete_delay_ms=config.get("tiering.delete.delay.ms"),
            sweep_interval_ms=config.get("tiering.sweep.interval.ms"),
            retention_interval_ms=config.get("log.retention.check.interval.ms"),
            merge_min_age_ms=config.get("tiering.merge.min.age.ms"),
        )
        self._restore_gap: int = config.get("restore.offset.gap")
        self._led: dict[tuple[uuid.UUID, int], _Led] = {}
        self._pass: deque[_Led] = deque()
        self._uploads = RequestLine[_Led](config.get("tiering.upload.max.in.flight"))
        self._requests = RequestLine[_Led](REQUESTS_MAX)
        self._rate = CopyRate()
        self._rate_timer: Timer | None = None
        self._closed = False

    # -------------------------------------------------------------------------------------------------- leadership

    def partition_leading(self, hosted: TierablePartition) -> None:
        """This broker leads the partition, in the epoch that `hosted` says."""
        key = (hosted.topic_id, hosted.partition)
        known = self._led.get(key)
        if known is not None and known.machine.leader_epoch == hosted.leader_epoch and known.hosted is hosted:
            return
        self.partition_stopped(*key)
        recovering = hosted.recovering and hosted.config.remote_storage_enable
        machine = TieringLeader(
            hosted.topic,
            hosted.topic_id,
            hosted.partition,
            ",".join(hosted.config.cleanup_policy),
            hosted.leader_epoch,
            self._limits,
            self._randomness,
            recovering=recovering,
        )
        led = _Led(hosted, machine, self._store)
        self._led[key] = led
        if recovering:
            self._drive(led)

    def partition_stopped(self, topic_id: uuid.UUID, partition: int) -> None:
        """This broker does not lead the partition any more; what is still under way is not waited for."""
        led = self._led.pop((topic_id, partition), None)
        if led is not None:
            led.end()

    def raise_start(self, topic_id: uuid.UUID, partition: int, offset: int) -> bool:
        """Raise the start in the manifest, and then, when that is confirmed, in the log (T2, T3).

        False: the partition has nothing to do with the tier; its log is all there is.
        """
        led = self._led.get((topic_id, partition))
        if led is None or not led.is_in_tier:
            return False
        led.wanted_start = max(led.wanted_start, offset)
        self._drive(led)
        return True

    def close(self) -> None:
        """Stop all, for the end of the process."""
        self._closed = True
        if self._rate_timer is not None:
            self._rate_timer.cancel()
        for topic_id, partition in list(self._led):
            self.partition_stopped(topic_id, partition)
        self._pass.clear()

    # ----------------------------------------------------------------------------------------------------- driving

    def tick(self) -> None:
        """Look at every partition soon, some at a time; called each `tiering.task.interval.ms`."""
        if not self._pass:
            self._pass.extend(self._led.values())
            self._go_on()

    def _go_on(self) -> None:
        now_ms = self._clock.monotonic_ms()
        looks = PARTITIONS_PER_SLICE
        for _ in range(min(QUIET_PER_SLICE, len(self._pass))):
            led = self._pass.popleft()
            if led.quiet is not None and led.quiet.lasts(led.hosted, now_ms):
                continue
            if not looks:
                self._pass.appendleft(led)
                break
            looks -= 1
            try:
                self._drive(led)
            except Exception as error:
                # One partition's trouble must not end the round for all others.
                _log.exception("%s: tiering failed", led)
                self._halt(led, f"{type(error).__name__}: {error}")
        if self._pass:
            self._background.schedule(1, self._go_on)

    def _drive(self, led: _Led) -> None:
        """Let the machine decide, and do what it says."""
        led.quiet = None
        if led.ended or self._closed or not led.may_act:
            return
        try:
            facts = log_facts(led.hosted, self._clock.now_ms(), led.wanted_start)
            effects = led.machine.tick(facts, self._clock.monotonic_ms())
            self._act(led, effects)
            self._delete_local(led, facts)
            if not effects:
                self._rest(led, facts)
        except InvariantBroken as error:
            self._halt(led, str(error))
        except (OSError, LogWriteFailed) as error:
            _log.warning("%s: tiering cannot use the log: %s", led, error)

    def _rest(self, led: _Led, facts: LogFacts) -> None:
        now_ms = self._clock.monotonic_ms()
        until_ms = min(led.machine.rests_until_ms(now_ms), now_ms + log_rests_ms(led.hosted, facts))
        if until_ms > now_ms:
            led.quiet = Quiet(led.hosted, until_ms)

    def _act(self, led: _Led, effects: list[Effect]) -> None:
        hosted = led.hosted
        for effect in effects:
            if led.ended:
                return
            match effect:
                case RollSegment():
                    if not hosted.log.has_staged:
                        hosted.log.roll(self._clock.now_ms())
                case TieredTo(offset):
                    hosted.tiered_to(offset)
                case StartAt(offset):
                    if offset > hosted.log.log_start_offset:
                        try:
                            hosted.raise_log_start(offset)
                        except OffsetOutOfRange as error:
                            self._halt(led, f"the tier's start lies above the log: {error}")
                case Recovered():
                    hosted.recovered()
                case Halted(reason, is_fault):
                    _log.log(logging.ERROR if is_fault else logging.INFO, "%s: tiering halts: %s", led, reason)
                case UploadSegment() | MergeObjects():
                    self._enter(self._uploads, led, effect)
                case _:
                    self._enter(self._requests, led, effect)

    def _delete_local(self, led: _Led, facts: LogFacts) -> None:
        """D1: whole segments below the confirmed tiered end that are over local retention, or below the log's start."""
        machine, log = led.machine, led.hosted.log
        if not machine.is_seeded or not log.config.remote_storage_enable or log.has_staged:
            return
        limit = max(log.local_retention_deletable(facts.wall_ms, machine.tiered_end), log.log_start_offset)
        if limit > log.segments[0].base_offset:
            log.delete_local_segments_below(limit)

    def _halt(self, led: _Led, reason: str) -> None:
        _log.error("%s: tiering halts: %s", led, reason)
        led.machine.stop(reason)

    # ---------------------------------------------------------------------------------------------------- requests

    def _enter(self, line: RequestLine[_Led], led: _Led, request: Request) -> None:
        led.queued = True
        line.waiting.append((led, request))
        self._serve(line)

    def limit_rate(self, max_bytes_per_second: int) -> None:
        """`remote.log.manager.copy.max.bytes.per.second`, which may change at any time."""
        if self._rate.limit(max_bytes_per_second) and self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None
            self._serve(self._uploads)

    def _serve(self, line: RequestLine[_Led]) -> None:
        while line.waiting and line.under_way < line.limit:
            if line is self._uploads and self._waits_for_rate():
                return
            led, request = line.waiting.popleft()
            led.queued = False
            if led.ended:
                continue
            line.under_way += 1
            self._start(line, led, request)

    def _waits_for_rate(self) -> bool:
        wait_ms = self._rate.wait_ms(self._clock.monotonic_ms())
        if wait_ms and self._rate_timer is None:

            def go_on() -> None:
                self._rate_timer = None
                self._serve(self._uploads)

            self._rate_timer = self._background.schedule(wait_ms, go_on)
        return wait_ms > 0

    def _start(self, line: RequestLine[_Led], led: _Led, request: Request) -> None:
        attempt = Attempt()

        def answered(event: Event) -> None:
            """The first answer counts: the thread's, or the deadline's."""
            if attempt.answered:
                return
            attempt.answered = True
            if attempt.timer is not None:
                attempt.timer.cancel()
            line.learn(event)
            self._answered(led, event)

        def done(result: Event | TierEnd | Exception) -> None:
            line.under_way -= 1
            if isinstance(result, TierEnd):
                result = self._bring_in_line(led, result)
            elif isinstance(result, Exception):
                _log.warning("%s: %s failed", led, type(request).__name__, exc_info=result)
                result = failure_of(request, f"{type(result).__name__}: {result}")
            answered(result)
            self._serve(line)

        if isinstance(request, UploadSegment | MergeObjects):
            upload = self._upload_of(led, request)
            if upload is None:
                line.under_way -= 1
                return
            self._rate.begun(upload.size_bytes, self._clock.monotonic_ms())
            timeout_ms = request.timeout_ms

            def late() -> None:
                attempt.cancelled.set()
                answered(UploadUndecided(f"no answer within {timeout_ms} ms"))

            attempt.timer = self._background.schedule(timeout_ms, late)
            led.attempt = attempt
            self._background.run(lambda: upload.attempt(attempt.cancelled), done)
        else:
            self._background.run(lambda: led.calls.perform(request), done)

    def _upload_of(self, led: _Led, request: UploadSegment | MergeObjects) -> SegmentUpload | ObjectMerge | None:
        """The upload under this name, prepared now or when it was first tried."""
        if led.upload is None or led.upload[0] != request:
            now_ms = self._clock.now_ms()
            if isinstance(request, MergeObjects):
                interval = led.hosted.config.index_interval_bytes
                merge = ObjectMerge(led.calls, request, led.hosted.log.directory, interval, now_ms)
                led.upload = (request, merge)
                return merge
            try:
                source = segment_source(led.hosted, request, led.machine.tiered_end, now_ms)
            except (OSError, ValueError) as error:
                self._answered(led, UploadFailed(str(error)))
                return None
            scanned = led.upload[1].ahead if led.upload is not None else None
            led.upload = (request, SegmentUpload(led.calls, request, source, scanned))
        return led.upload[1]

    def _bring_in_line(self, led: _Led, tier: TierEnd) -> Event:
        """R2, R3: on the thread that owns the log; nobody is served yet."""
        if led.ended or not led.may_act:
            return ReadFailed("the leadership has ended")
        try:
            log = led.hosted.log
            is_lost = led.hosted.log_was_lost or log.log_end_offset == 0 < tier.end_offset
            gap = self._restore_gap if is_lost else 0
            kept = bring_in_line(log, tier, led.machine.leader_epoch, self._clock.now_ms(), gap)
        except (OSError, LogWriteFailed, CorruptSnapshot) as error:
            return ReadFailed(f"bringing the log in line with the tier: {error}")
        outcome = "log kept" if kept else f"log begun anew at the tiered end {tier.end_offset}"
        _log.info("%s: recovered, %s", led, outcome)
        return LogRecovered()

    def _answered(self, led: _Led, event: Event) -> None:
        led.quiet = None
        if led.ended or not led.may_act:
            return
        try:
            self._act(led, led.machine.handle(event, self._clock.monotonic_ms()))
        except InvariantBroken as error:
            self._halt(led, str(error))
            return
        finally:
            led.let_go()
        if led.machine.is_idle:
            self._drive(led)

    # ------------------------------------------------------------------------------------------------------ status

    @property
    def uploads_under_way(self) -> int:
        return self._uploads.under_way

    def status(self) -> list[PartitionTieringStatus]:
        """One row for each partition led, by topic and partition."""
        turn = "its turn at the store"
        if self._rate_timer is not None:
            turn += ": remote.log.manager.copy.max.bytes.per.second is used up"
        rows = [led.status(turn) for led in self._led.values()]
        return sorted(rows, key=lambda row: (row.topic, row.partition))


class _Led:
    """A partition that this broker leads, in one leader epoch."""

    def __init__(self, hosted: TierablePartition, machine: TieringLeader, store: BodyStore) -> None:
        self.hosted = hosted
        self.machine = machine
        self._store = store
        self.upload: tuple[UploadSegment | MergeObjects, SegmentUpload | ObjectMerge] | None = None
        self.attempt: Attempt | None = None
        self.wanted_start = 0
        """What DeleteRecords asked for; the log itself begins there when the manifest does."""
        self.quiet: Quiet | None = None
        """Nothing is to be done while it lasts."""
        self.queued = False
        self.ended = False

    def __str__(self) -> str:
        return f"{self.hosted.topic}-{self.hosted.partition} (leader epoch {self.machine.leader_epoch})"

    @property
    def calls(self) -> StoreCalls:
        """Made for each request: most partitions have none for a long time."""
        return StoreCalls(self._store, self.hosted.topic_id, self.hosted.partition)

    @property
    def is_in_tier(self) -> bool:
        """Whether the object store holds records of the partition, or will."""
        config, log = self.hosted.config, self.hosted.log
        tiered = config.remote_storage_enable
        return tiered or self.machine.manifest.version > 0 or log.log_start_offset < log.local_log_start_offset

    @property
    def may_act(self) -> bool:
        """Whether the leadership that the machine was made for still stands."""
        return self.hosted.leader_epoch == self.machine.leader_epoch

    def let_go(self) -> None:
        """What a merge has gathered takes room on the disk: it ends when nobody sends it again."""
        sent = self.upload
        if sent is not None and isinstance(sent[1], ObjectMerge) and self.machine.retried is not sent[0]:
            self.upload = None

    def end(self) -> None:
        self.ended = True
        if self.attempt is not None:
            self.attempt.cancelled.set()

    def status(self, turn: str) -> PartitionTieringStatus:
        """`turn` is what waits in line for."""
        machine = self.machine
        segments, size = waiting_to_be_tiered(self.hosted, machine.tiered_end if machine.is_seeded else 0)
        return PartitionTieringStatus(
            self.hosted.topic,
            self.hosted.topic_id,
            self.hosted.partition,
            machine.state.value,
            machine.leader_epoch,
            machine.manifest.start_offset,
            machine.tiered_end,
            segments,
            size,
            machine.reason or (f"waits for {turn}" if self.queued else ""),
        )
