"""A partition with a real log under a tiering manager, with time and helper threads in the test's hand."""

from __future__ import annotations

import heapq
import itertools
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig, TopicConfig, topic_config
from appliance.base.disk import SystemDisk
from appliance.base.ids import TopicPartition
from appliance.base.randomness import SeededRandomness
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import parse_header
from appliance.records.builder import build_batch
from appliance.tiering.body import BodyStore
from appliance.tiering.manager import TieringManager
from tests.support.tier_objects import TOPIC, TOPIC_ID

START_MS = 1_700_000_000_000


class ManualClock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.elapsed_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualBackground:
    """Helper threads that work when they are told to, on the caller's thread."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._numbers = itertools.count()

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self.clock.elapsed_ms + delay_ms, next(self._numbers), timer))
        return timer

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def work(self) -> int:
        """Do all jobs, and those that follow from them; returns how many."""
        count = 0
        while self.jobs:
            work, done = self.jobs.pop(0)
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)
            count += 1
        return count

    def pass_time(self, ms: int) -> None:
        """Let time go by; timers that are due are called in order."""
        end_ms = self.clock.elapsed_ms + ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.clock.elapsed_ms = max(self.clock.elapsed_ms, due_ms)
            if timer.callback is not None:
                timer.callback()
        self.clock.elapsed_ms = end_ms


class Hosted:
    """A partition as a broker hosts it, as far as tiering is concerned."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        leader_epoch: int = 1,
        recovering: bool = False,
        topic_id: uuid.UUID = TOPIC_ID,
        partition: int = 0,
        **configs: object,
    ) -> None:
        self.topic = TOPIC
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.recovering = recovering
        self.clock = clock
        self.config = topic_configs(**configs)
        self.log = PartitionLog(
            directory / f"{TOPIC}-{partition}",
            TopicPartition(TOPIC, partition),
            topic_id,
            self.config,
            clock,
            SystemDisk(),
        )
        self.tiered_end = 0

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.producer_state.first_unstable_offset(self.log.log_end_offset)
        return self.log.log_end_offset if unstable is None else unstable

    def tiered_to(self, offset: int) -> None:
        self.tiered_end = max(self.tiered_end, offset)

    def raise_log_start(self, offset: int) -> None:
        self.log.raise_log_start(offset)

    def recovered(self) -> None:
        self.recovering = False

    log_was_lost = False

    def configure(self, **configs: object) -> None:
        self.config = topic_configs(**configs)
        self.log.update_config(self.config)

    def append(self, values: Sequence[bytes], *, timestamp: int | None = None, **producer: Any) -> int:
        """One batch; returns its base offset. A value's record n has the time `timestamp` + n."""
        now_ms = self.clock.now_ms()
        start_ms = now_ms if timestamp is None else timestamp
        records = [(start_ms + n, None, value, ()) for n, value in enumerate(values)]
        return self.append_batch(build_batch(records, **producer))

    def append_batch(self, batch: bytes) -> int:
        view = memoryview(bytearray(batch))
        offset = self.log.stage(view, parse_header(view), self.leader_epoch, self.clock.now_ms())
        self.log.write_staged()
        return offset

    def append_segment(self, batches: int = 3, records: int = 4, **more: Any) -> None:
        """Some batches, then a roll."""
        for _ in range(batches):
            first = self.log.log_end_offset
            self.append([b"value %d" % (first + n) for n in range(records)], **more)
        self.log.roll(self.clock.now_ms())


def topic_configs(**configs: object) -> TopicConfig:
    """Topic configs from arguments named like the keys, with underscores."""
    defaults: dict[str, object] = {"file.delete.delay.ms": 0}
    texts = {**defaults, **{name.replace("_", "."): value for name, value in configs.items()}}
    return topic_config(
        {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in texts.items()},
        BrokerConfig({}),
    )


def manager_of(store: BodyStore, background: ManualBackground, clock: ManualClock, **configs: object) -> TieringManager:
    """A manager with its defaults, but for the configs named here (with underscores)."""
    properties = {"restore.offset.gap": "0"}
    properties |= {name.replace("_", "."): str(value) for name, value in configs.items()}
    return TieringManager(store, background, clock, SeededRandomness(1), BrokerConfig(properties))
