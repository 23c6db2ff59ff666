"""What the state of the data directories means for the partitions in them.

A full directory refuses writes for its own partitions, and reads go on. One that failed takes its partitions offline.
A partition whose log cannot be found while a directory is missing is not begun anew: it answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from appliance.base.errors import ErrorCode
from appliance.base.ids import TopicPartition
from appliance.controller.image import MetadataImage, PartitionState
from appliance.controller.offline_replicas import others_have_it
from appliance.log.errors import LogUnavailable, LogWriteFailed
from appliance.log.log_manager import LogManager
from appliance.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class InDirectory(Protocol):
    """What is looked at here of a partition."""

    log: PartitionLog
    write_refusal: str

    def go_offline(self, reason: str) -> None: ...

    def reconsider(self) -> None: ...


class DataDirectories:
    """All methods are called on the loop's thread."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._refusals = self._look()
        self._unavailable: dict[tuple[uuid.UUID, int], str] = {}

    def _look(self) -> dict[Path, str]:
        return {directory.path: directory.refusal for directory in self._logs.directories}

    def refusal_of(self, log: PartitionLog) -> str:
        """Why nothing is written to the log now (a full disk); empty while it may be."""
        if len(self._refusals) == 1:
            return next(iter(self._refusals.values()))
        return self._refusals[log.directory.parent]

    def write_failed(self, error: LogWriteFailed, partitions: Iterable[InDirectory]) -> None:
        """A log could not be written or flushed: its directory takes no writes while it is full, else nothing of what
        lies there is believed any more.
        """
        directory = self._logs.write_failed(error)
        if not directory.is_usable:
            for hosted in list(partitions):
                if hosted.log.directory.parent == directory.path:
                    hosted.go_offline(f"the data directory failed: {directory.reason}")
        self.look_again(partitions)

    def look_again(self, partitions: Iterable[InDirectory]) -> None:
        """Find out which directories take writes now, and tell their partitions."""
        refusals = self._look()
        if refusals != self._refusals:
            self._refusals = refusals
            for hosted in list(partitions):
                hosted.write_refusal = refusals[hosted.log.directory.parent]
                hosted.reconsider()

    # Partitions without a log

    def expect(self, image: MetadataImage, broker_id: int) -> None:
        """Tell the logs, once they are loaded, which ones the metadata says are here."""
        self._logs.expect(
            (TopicPartition(topic.name, partition.partition), topic.topic_id)
            for topic in image.topics_by_id.values()
            for partition in topic.partitions
            if broker_id in partition.replicas
        )

    @property
    def lost(self) -> list[tuple[uuid.UUID, int]]:
        """Partitions that were this broker's before it started and have no log here, by topic id and number."""
        logs = self._logs
        return [(topic_id, at.partition) for at, topic_id in logs.not_found.items() if at not in logs.logs]

    def check_lost(self, topic_partition: TopicPartition, topic_id: uuid.UUID, state: PartitionState, me: int) -> None:
        """Before a log is opened: one that is gone is begun anew only when nobody takes it for one that is in sync, or
        that may be elected.

        Any thread. Raises LogUnavailable.
        """
        logs = self._logs
        is_gone = logs.not_found.get(topic_partition) == topic_id and topic_partition not in logs.logs
        if is_gone and me in (*state.isr, *state.elr) and others_have_it(state, me):
            raise LogUnavailable(f"the log of {topic_partition} is gone, and this broker has to leave its ISR first")

    def could_not_open(self, topic_partition: TopicPartition, topic_id: uuid.UUID, error: Exception) -> bool:
        """Whether trying again is of no use, because the log may lie in a directory that cannot be used."""
        if not isinstance(error, LogUnavailable):
            return False
        key = (topic_id, topic_partition.partition)
        if key not in self._unavailable:
            _log.error("%s is out of service: %s", topic_partition, error)
        self._unavailable[key] = str(error)
        return True

    def opened(self, topic_id: uuid.UUID, partition: int) -> None:
        self._unavailable.pop((topic_id, partition), None)

    @property
    def unavailable(self) -> dict[tuple[uuid.UUID, int], str]:
        """Partitions that could not be opened, by topic id and number, and why."""
        return self._unavailable

    def unavailable_in(self, image: MetadataImage) -> list[tuple[TopicPartition, str]]:
        """The same by name, as far as the topics are still there."""
        return [
            (TopicPartition(topic.name, partition), reason)
            for (topic_id, partition), reason in self._unavailable.items()
            if (topic := image.topics_by_id.get(topic_id)) is not None
        ]

    def absence_of(self, topic_id: uuid.UUID, partition: int) -> ErrorCode:
        """The error for clients who ask for a partition of this cluster that is not open here."""
        if (topic_id, partition) in self._unavailable:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
