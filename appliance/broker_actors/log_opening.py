"""Logs are opened and created in helper threads, some at a time: those that are open serve while others are opened."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable
from typing import Protocol

from appliance.base.background import Background
from appliance.base.config import TopicConfig
from appliance.base.ids import TopicPartition
from appliance.broker_actors.data_directories import DataDirectories
from appliance.controller.image import MetadataImage, PartitionState, TopicState
from appliance.log.errors import LogWriteFailed
from appliance.log.log_manager import LogManager
from appliance.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

OPENERS = 4
"""Helper threads that open logs side by side."""
OPENED_AT_A_TIME = 64
"""So many partitions are taken over before the loop has its turn again."""
OPEN_RETRY_MS = 1_000


class OpeningHost(Protocol):
    """What this needs of `PartitionHost`."""

    broker_id: int
    logs: LogManager
    directories: DataDirectories
    image: MetadataImage
    generation: int

    def topic_config(self, state: TopicState) -> TopicConfig: ...

    def log_opened(self, state: TopicState, partition: int, log: PartitionLog) -> None:
        """Take over an open log, unless the topic has gone meanwhile."""

    def write_failed(self, error: LogWriteFailed) -> None: ...


class LogOpening:
    """All methods are called on the loop's thread."""

    def __init__(self, host: OpeningHost, background: Background) -> None:
        self._host = host
        self._background = background
        self._wanted: set[tuple[uuid.UUID, int]] = set()
        """Whatever waits, is being opened, or could not be and is tried again."""
        self._unopened: deque[tuple[TopicState, PartitionState]] = deque()
        self._behind: dict[TopicPartition, list[tuple[TopicState, PartitionState]]] = {}
        """Of each log that is being opened, what waits for that: a later topic of the same name has the same folder."""
        self._openers = 0
        self.on_opened: Callable[[], None] = lambda: None
        """Called whenever logs were opened."""

    @property
    def is_busy(self) -> bool:
        """Whether logs are being opened or created."""
        return bool(self._wanted)

    def begins(self, topic_id: uuid.UUID, partition: int) -> bool:
        """Whether this log has to be opened, and is not on its way already; from now on it is."""
        key = (topic_id, partition)
        if key in self._wanted:
            return False
        self._wanted.add(key)
        return True

    def open(self, wanted: list[tuple[TopicState, PartitionState]]) -> None:
        """Open those that have begun."""
        self._unopened.extend(wanted)
        at_a_time = max(1, min(OPENED_AT_A_TIME, len(self._unopened) // OPENERS))
        while self._unopened and self._openers < OPENERS:
            self._open_some(at_a_time)

    def _open_some(self, count: int) -> None:
        some: list[tuple[TopicState, PartitionState]] = []
        while self._unopened and len(some) < count:
            each = self._unopened.popleft()
            topic_partition = TopicPartition(each[0].name, each[1].partition)
            if topic_partition in self._behind:
                self._behind[topic_partition].append(each)
            else:
                self._behind[topic_partition] = []
                some.append(each)
        if some:
            self._openers += 1
            self._open_in_a_thread(some)

    def _opener_is_free(self, opened: list[tuple[TopicState, PartitionState]]) -> None:
        self._openers -= 1
        for state, partition in opened:
            self._unopened.extend(self._behind.pop(TopicPartition(state.name, partition.partition)))
        if self._unopened:
            self._open_some(OPENED_AT_A_TIME)

    def _open_in_a_thread(self, wanted: list[tuple[TopicState, PartitionState]]) -> None:
        host = self._host
        configs = {state.topic_id: host.topic_config(state) for state, _ in wanted}

        def work() -> list[PartitionLog | Exception]:
            opened: list[PartitionLog | Exception] = []
            for state, partition in wanted:
                topic_partition = TopicPartition(state.name, partition.partition)
                try:
                    host.directories.check_lost(topic_partition, state.topic_id, partition, host.broker_id)
                    opened.append(host.logs.create(topic_partition, state.topic_id, configs[state.topic_id]))
                except Exception as error:
                    opened.append(error)
            return opened

        def done(opened: list[PartitionLog | Exception] | Exception) -> None:
            logs = [opened] * len(wanted) if isinstance(opened, Exception) else opened
            try:
                for (state, partition), log in zip(wanted, logs, strict=True):
                    if isinstance(log, Exception):
                        self._not_opened(state, partition, log)
                    else:
                        self._wanted.discard((state.topic_id, partition.partition))
                        host.log_opened(state, partition.partition, log)
            finally:
                self._opener_is_free(wanted)
            self.on_opened()

        self._background.run(work, done)

    def _not_opened(self, state: TopicState, partition: PartitionState, error: Exception) -> None:
        """Try again later, for as long as the partition is this broker's."""
        host, key = self._host, (state.topic_id, partition.partition)
        topic_partition = TopicPartition(state.name, partition.partition)
        if host.directories.could_not_open(topic_partition, state.topic_id, error):
            self._wanted.discard(key)
            host.generation += 1
            if host.image.partition_by_id(*key) != partition:
                # What was decided meanwhile may be what this waits for, and comes only once.
                self._open_again(state, partition.partition)
            return
        _log.error("%s cannot be opened and is tried again: %s", topic_partition, error)
        if isinstance(error, LogWriteFailed):
            host.write_failed(error)

        def again() -> None:
            self._wanted.discard(key)
            self._open_again(state, partition.partition)

        self._background.schedule(OPEN_RETRY_MS, again)

    def _open_again(self, state: TopicState, number: int) -> None:
        """As the metadata has it now."""
        present = self._host.image.topics_by_id.get(state.topic_id)
        wanted = self._host.image.partition_by_id(state.topic_id, number)
        if present is None or wanted is None or self._host.broker_id not in wanted.replicas:
            return
        if self.begins(state.topic_id, number):
            self.open([(present, wanted)])
