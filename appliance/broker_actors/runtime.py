"""What a runtime does: it starts processes somewhere, tells what becomes of them, and stops them.

Two runtimes exist: plain child processes (`local.py`) and Ray actors (`ray_runtime.py`). The supervisor knows only
this.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

EXIT_CRASHED = 1
"""The exit code of a process that failed without telling what the user can put right."""
EXIT_NOT_INSTALLED = 127
"""The exit code of a process whose code, or something that it imports, is not installed."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to be run: a blocking function `run(settings, handle)` and what it is told."""

    name: str
    """`broker-1`, `controller-1`, `service-http`: unique, also the Ray actor's name."""
    target: str
    """`package.module:function`, importable where the process runs."""
    settings: Any
    """BrokerSettings | ControllerSettings | ServiceSettings; can be pickled."""
    node: str = ""
    """Where it must run (a Ray node's label); empty: anywhere."""
    slots: int = 0
    """How many broker slots of its node it takes."""


@dataclass(frozen=True, slots=True)
class ProcessReady:
    """A process answers requests at `address`. Comes again after each restart."""

    name: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class ProcessWorking:
    """A process that was told to end has much to do, and gets on with it."""

    name: str


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """A process is no more."""

    name: str
    message: str
    """One line on why; empty when it ended because it was told to."""
    exit_code: int
    being_restarted: bool = False
    """The runtime starts it again by itself; nothing is to be done."""


@dataclass(frozen=True, slots=True)
class RuntimeLost:
    """The runtime itself broke, and all its processes with it."""

    message: str


ProcessEvent = ProcessReady | ProcessWorking | ProcessEnded | RuntimeLost
Post = Callable[[ProcessEvent], None]
"""Takes an event from any thread."""


class Runtime(Protocol):
    """No method waits for a process: what becomes of it comes as an event."""

    name: str
    """`ray` or `local`; services are told."""

    def warm(self, name: str, target: str) -> None:
        """A process of this name will be started soon: it may come up and import its code already."""

    def start(self, spec: ProcessSpec) -> None:
        """Start the process, or start it again after it ended.

        Raises:
            UserError: it cannot be started here.
        """

    def stop(self, name: str) -> None:
        """Tell the process to drain and end. Of one that is not running: nothing."""

    def kill(self, name: str) -> None:
        """End the process and what it started, now. Of one that is not running: nothing."""

    def close(self) -> None:
        """End whatever is left. Afterwards no process of this runtime lives."""


def resolve_target(target: str) -> Callable[[Any, Any], None]:
    """The function that `package.module:function` names.

    Raises:
        ImportError, AttributeError: there is none.
    """
    module, _, function = target.partition(":")
    found = getattr(importlib.import_module(module), function)
    if not callable(found):
        raise AttributeError(f"{target} is not callable")
    return found  # type: ignore[no-any-return]
