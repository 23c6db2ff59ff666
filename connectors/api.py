"""What a connector implements: Kafka Connect's model in Python.

A connector makes the configs of its tasks; a source task polls records from somewhere, a sink task puts them somewhere.
Everything runs on one thread of the task's own process. A method that raises `RetriableError` is called again after a
pause; anything else fails the task, with its traceback in the connector's status.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from appliance.base.ids import TopicPartition
from appliance.records.reader import Record

Config = Mapping[str, str]
SourcePartition = dict[str, Any]
SourceOffset = dict[str, Any]


class ConnectError(Exception):
    """The task cannot go on."""


class RetriableError(ConnectError):
    """It may work after a pause."""


class ConfigError(ConnectError):
    """A config that is missing or wrong; `errors` names each key and what is wrong with it."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {what}" for key, what in errors.items()))
        self.errors = dict(errors)


@dataclass(slots=True)
class SourceRecord:
    """One record on its way in. `offset` says where to go on after it; both parts are JSON objects."""

    topic: str
    value: Any
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    """Milliseconds since 1970; None = when it is written."""
    partition: int | None = None
    source_partition: SourcePartition = field(default_factory=dict)
    source_offset: SourceOffset = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record on its way out, converted."""

    tp: TopicPartition
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]]
    raw: Record
    """As it lies in the log."""


class OffsetReader(ABC):
    """Where a source task finds what it has committed before."""

    @abstractmethod
    def offset(self, source_partition: SourcePartition) -> SourceOffset | None: ...


class SourceTask(ABC):
    """Moves records in."""

    @abstractmethod
    def start(self, config: Config, offsets: OffsetReader, stopping: threading.Event) -> None:
        """Begin behind the committed offsets. A wait of the task's own ends when `stopping` is set."""

    @abstractmethod
    def poll(self) -> list[SourceRecord]:
        """The next records, in order; empty when there is nothing now (after a short wait)."""

    def stop(self) -> None:  # noqa: B027 (to be overridden by those that hold something)
        """Let go of everything."""


class SinkTask(ABC):
    """Moves records out."""

    @abstractmethod
    def start(self, config: Config) -> None: ...

    def open(self, partitions: Mapping[TopicPartition, int]) -> None:  # noqa: B027 (few need it)
        """The partitions of this task and the offset at which each begins."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take records, in order within each partition. They may still be buffered when this returns."""

    @abstractmethod
    def flush(self, closing: bool) -> Mapping[TopicPartition, int]:
        """What may be committed: the next offset of each partition behind everything that is safe outside.

        `closing`: the task ends; what is buffered may be written out or left to be read again.
        """

    def stop(self) -> None:  # noqa: B027 (to be overridden by those that hold something)
        """Let go of everything."""


class Connector(ABC):
    """Makes tasks. `aliases` are the Java class names that mean the same."""

    aliases: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str]
    """`source` or `sink`."""
    task_class: ClassVar[type[SourceTask] | type[SinkTask]]

    @abstractmethod
    def check(self, config: Config) -> dict[str, str]:
        """What is wrong with a config, all at once: key -> message; empty if nothing is."""

    def task_configs(self, config: Config, max_tasks: int) -> list[dict[str, str]]:
        """The config of each task, at most `max_tasks`."""
        return [dict(config)]
