"""Damaged segments are mended with what the tier or another replica has; the loop only decides.

One segment at a time. A segment that nobody can mend now has another turn later, after a pause that grows.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode, KafkaError
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.partition_host import PartitionHost
from appliance.client.connection import Connection
from appliance.client.security import ClientSecurity
from appliance.controller.image import BrokerState, MetadataImage
from appliance.log.damage import DamagedRange
from appliance.log.errors import LogWriteFailed
from appliance.log.log_manager import LogManager, parse_folder_name
from appliance.log.repair import NotRepaired, ReadElsewhere, SegmentRepair
from appliance.log.segment import Segment
from appliance.log.segment_swap import CleanedSegment
from appliance.records.errors import CorruptBatch
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_log = logging.getLogger(__name__)

LOOK_INTERVAL_MS = 1_000
PAUSE_MS, PAUSE_MAX_MS = 5_000, 300_000
"""Before a segment that could not be mended has another turn: doubled each time."""
READ_BYTES = 1 << 20
CALL_TIMEOUT_MS = 10_000
READ_WAIT_MS = 500

Place = tuple[Path, int]
"""A segment: its folder and its base offset."""


class RemoteLog(Protocol):
    """The tier, as far as it is read here."""

    def read(self, topic_id: uuid.UUID, partition: int, offset: int, max_bytes: int, max_offset: int) -> bytes:
        """Blocks. Raises KafkaError."""


@dataclass(slots=True)
class _Pause:
    due_ms: int
    length_ms: int


class LogRepair:
    """Runs on the loop's timers. `start` once, `close` before the logs close."""

    def __init__(
        self,
        partitions: PartitionHost,
        logs: LogManager,
        image: Callable[[], MetadataImage],
        remote: RemoteLog,
        clock: Clock,
        background: Background,
        security: ClientSecurity,
        repaired: Callable[[HostedPartition], None],
    ) -> None:
        """`security`: what other brokers ask for; `repaired`: told of each partition of which a segment was mended."""
        self._partitions = partitions
        self._logs = logs
        self._image = image
        self._remote = remote
        self._clock = clock
        self._background = background
        self._security = security
        self._repaired = repaired
        self._pauses: dict[Place, _Pause] = {}
        self._is_busy = False
        self._closed = False
        self.repaired_segments = 0

    def start(self) -> None:
        self._background.schedule(LOOK_INTERVAL_MS, self._look)

    def close(self) -> None:
        self._closed = True

    def _look(self) -> None:
        if self._closed:
            return
        self._background.schedule(LOOK_INTERVAL_MS, self._look)
        book = self._logs.files.damage
        if self._is_busy or book.is_empty:
            return
        known = book.known()
        for place in [place for place in self._pauses if place not in known]:
            del self._pauses[place]
        now_ms = self._clock.monotonic_ms()
        for place, ranges in known.items():
            pause = self._pauses.get(place)
            if pause is None or pause.due_ms <= now_ms:
                hosted, segment = self._find(place)
                if hosted is not None and segment is not None and self._begin(hosted, segment, ranges):
                    return

    def _find(self, place: Place) -> tuple[HostedPartition | None, Segment | None]:
        folder, base_offset = place
        at = parse_folder_name(folder.name)
        hosted = self._partitions.get(*at) if at is not None else None
        if hosted is None or hosted.log.directory != folder:
            return None, None
        # The newest takes appends: a start that found damage in it has begun another one.
        segments = hosted.log.segments[:-1]
        return hosted, next((segment for segment in segments if segment.base_offset == base_offset), None)

    def _begin(self, hosted: HostedPartition, segment: Segment, ranges: tuple[DamagedRange, ...]) -> bool:
        """Whether a helper thread is at work."""
        # Above the high watermark another leader may have decided otherwise.
        if hosted.offline or hosted.cutting or hosted.recovering or ranges[-1].end_offset > hosted.high_watermark:
            return False
        sources = self._sources(hosted, ranges[-1].end_offset)
        if not sources:
            self._pause(segment, hosted, "no other replica is there, and the tier does not have it")
            return False
        self._is_busy = True
        segment.retain()
        dense = not hosted.config.is_compacted and hosted.log.cleaned_offset <= segment.base_offset

        def mend() -> tuple[CleanedSegment, str]:
            reasons: list[str] = []
            for name, read, close in sources:
                try:
                    return SegmentRepair(segment.disk, segment, ranges, read, dense=dense).run(), name
                except (NotRepaired, CorruptBatch, KafkaError, OSError) as error:
                    reasons.append(f"{name}: {error}")
                finally:
                    close()
            raise NotRepaired("; ".join(reasons))

        def mended(result: tuple[CleanedSegment, str] | Exception) -> None:
            segment.release()
            if self._closed:
                # The next start removes what was written.
                return
            if isinstance(result, Exception):
                self._is_busy = False
                self._pause(segment, hosted, str(result))
            else:
                self._put_in_place(hosted, segment, *result)

        self._background.run(mend, mended)
        return True

    def _sources(self, hosted: HostedPartition, end_offset: int) -> list[tuple[str, ReadElsewhere, Callable[[], None]]]:
        found: list[tuple[str, ReadElsewhere, Callable[[], None]]] = []
        topic_id, partition = hosted.topic_id, hosted.partition
        # Compaction may have gone further in the tier than here: an old value must not stand without its tombstone.
        is_alike = hosted.config.remote_storage_enable and not hosted.config.is_compacted
        if is_alike and end_offset <= hosted.tiered_end:

            def from_tier(offset: int, end: int) -> bytes:
                return self._remote.read(topic_id, partition, offset, READ_BYTES, end)

            found.append(("the tier", from_tier, lambda: None))
        image = self._image()
        state = image.partition_by_id(topic_id, partition)
        if state is not None:
            others = sorted(state.replicas, key=lambda replica: (replica != state.leader, replica not in state.isr))
            for replica in others:
                broker = image.brokers.get(replica)
                if replica != hosted.broker_id and broker is not None and not broker.fenced:
                    reader = _ReplicaReader(broker, self._security, hosted)
                    found.append((f"broker {replica}", reader.read, reader.close))
        return found

    def _put_in_place(self, hosted: HostedPartition, old: Segment, cleaned: CleanedSegment, source: str) -> None:
        log = hosted.log
        replacement = log.replacement(cleaned, [old])

        def is_here() -> bool:
            present = self._partitions.get_by_id(hosted.topic_id, hosted.partition)
            return present is hosted and hosted.log is log and not hosted.offline and not hosted.cutting

        def ended() -> None:
            self._is_busy = False

        def prepared(result: Exception | None) -> None:
            if self._closed:
                # The next start brings it to its end.
                return
            if result is None and is_here() and log.replace(replacement):
                self._background.run(lambda: replacement.finish(self._clock.now_ms()), finished)
                return
            self._background.run(replacement.discard, lambda _: ended())
            if is_here():
                self._pause(old, hosted, str(result or "the log has changed meanwhile"))

        def finished(result: Exception | None) -> None:
            ended()
            if isinstance(result, Exception):
                error = result if isinstance(result, OSError) else OSError(str(result))
                what = f"mending a segment of {log.directory}"
                self._partitions.write_failed(LogWriteFailed(what, error, log.directory, cut_back=False))
                return
            log.replaced(replacement)
            self._pauses.pop((old.directory, old.base_offset), None)
            self.repaired_segments += 1
            _log.warning("%s: its damaged batches were taken from %s: it is whole again", old.path, source)
            self._repaired(hosted)

        self._background.run(replacement.prepare, prepared)

    def _pause(self, segment: Segment, hosted: HostedPartition, reason: str) -> None:
        place = (segment.directory, segment.base_offset)
        earlier = self._pauses.get(place)
        length_ms = min(earlier.length_ms * 2, PAUSE_MAX_MS) if earlier is not None else PAUSE_MS
        self._pauses[place] = _Pause(self._clock.monotonic_ms() + length_ms, length_ms)
        _log.warning(
            "%s of %s stays damaged, the next try is in %d s: %s",
            segment.path.name,
            hosted.topic_partition,
            length_ms // 1_000,
            reason,
        )


class _ReplicaReader:
    """Reads committed batches of one partition from another replica, as any reader does. For one helper thread."""

    def __init__(self, broker: BrokerState, security: ClientSecurity, hosted: HostedPartition) -> None:
        self._at = (broker.host, broker.port)
        self._security = security
        self._topic_id = hosted.topic_id
        self._topic = hosted.topic
        self._partition = hosted.partition
        self._connection: Connection | None = None

    def read(self, offset: int, end: int) -> bytes:
        """Raises: KafkaError: the answer's. OSError: no answer."""
        if self._connection is None:
            self._connection = Connection(
                *self._at, client_id="log-repair", timeout_ms=CALL_TIMEOUT_MS, security=self._security
            )
        wanted = FetchPartition(partition=self._partition, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        topic = FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=[wanted])
        answer = self._connection.call(
            FetchRequest(max_wait_ms=READ_WAIT_MS, min_bytes=1, max_bytes=READ_BYTES, topics=[topic])
        )
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        part = answer.responses[0].partitions[0]
        if part.error_code:
            raise KafkaError(ErrorCode(part.error_code))
        return bytes(part.records or b"")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
