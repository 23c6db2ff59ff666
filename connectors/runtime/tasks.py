"""What a task is told, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

RUNNING = "RUNNING"
FAILED = "FAILED"
PAUSED = "PAUSED"
UNASSIGNED = "UNASSIGNED"
RESTARTING = "RESTARTING"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task; becomes JSON on its way to its process."""

    connector: str
    task_id: int
    task_count: int
    generation: int
    """One higher at each start of the connector's tasks; in logs and client ids."""
    config: dict[str, str]
    bootstrap_servers: str
    object_store: str
    offset_topic: str
    listener_configs: dict[str, str] = field(default_factory=dict, repr=False)
    """Of the appliance's configs those that say how its own services reach the brokers."""

    @property
    def client_id(self) -> str:
        return f"connector-{self.connector}-{self.task_id}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: dict[str, Any]) -> TaskSpec:
        return cls(**values)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """How a task is: its state, the traceback of its failure, and how many records it has moved."""

    state: str
    trace: str = ""
    records: int = 0
    tiered_records: int = 0
    """Of a sink: how many of them came straight from the object store."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: dict[str, Any]) -> TaskReport:
        return cls(**values)


Report = Callable[[TaskReport], None]
