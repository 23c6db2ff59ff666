"""The process that talks to Ray: `python -m appliance.broker_actors.ray_driver ray-driver`.

A process of its own, so that Ray's processes lie outside the terminal's group, so that a crash inside Ray's native code
does not take the supervisor along, and so that only this process pays for importing Ray.

The parent sends `{"begin": pickled RaySettings}`, then `{"start": pickled ProcessSpec}`, `{"stop": name}`,
`{"kill": name}`, `{"nodes": true}`, `{"close": true}`. This process reports `{"up": true}`, `{"event": pickled
ProcessEvent}` and `{"nodes": pickled list of Node}`; pickles are in base64.
"""

from __future__ import annotations

import base64
import pickle
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.errors import UserError
from appliance.broker_actors.logs import log_to_standard_error
from appliance.broker_actors.parent_line import ParentLine, end_soon
from appliance.broker_actors.placement import Node
from appliance.broker_actors.ray_actors import ActorState
from appliance.broker_actors.ray_cluster import RayCluster
from appliance.broker_actors.runtime import (
    EXIT_CRASHED,
    ProcessEnded,
    ProcessEvent,
    ProcessReady,
    ProcessSpec,
    RuntimeLost,
)

WATCH_TIMEOUT_S = 10.0
"""A watched actor answers after this long also when nothing changed."""
ROUND_S = 0.05
"""How long a command may wait for the loop."""
AWAY_PAUSE_S = 0.2
"""Between two looks for an actor that Ray is bringing back."""
DRAIN_ORPHANS_S = 3.0


@dataclass(frozen=True, slots=True)
class RaySettings:
    """What the driver is told first. Can be pickled."""

    address: str
    node: Node
    folder: Path
    log_level: str


@dataclass(slots=True)
class _Watched:
    """One actor as the driver sees it."""

    name: str
    state: ActorState | None = None
    reference: Any = None
    away: bool = False
    look_again_s: float = 0.0


@dataclass(slots=True)
class Driver:
    """The loop between the parent's commands and Ray's answers."""

    cluster: RayCluster
    line: ParentLine
    watched: dict[str, _Watched] = field(default_factory=dict)

    def run(self, commands: queue.SimpleQueue[Mapping[str, Any] | None]) -> None:
        """Until the parent says close or is gone."""
        while True:
            while not commands.empty():
                command = commands.get()
                if command is None:
                    self._parent_is_gone()
                    return
                if "close" in command:
                    return
                self._obey(command)
            self._look()

    def _obey(self, command: Mapping[str, Any]) -> None:
        if "start" in command:
            spec: ProcessSpec = unpacked(command["start"])
            try:
                self.cluster.create(spec)
            except UserError as error:
                self._report(ProcessEnded(spec.name, str(error), error.exit_code))
                return
            self.watched[spec.name] = _Watched(spec.name)
        elif "stop" in command:
            self.cluster.drain(command["stop"])
        elif "kill" in command:
            name = command["kill"]
            self.cluster.kill(name)
            if self.watched.pop(name, None) is not None:
                self._report(ProcessEnded(name, "", 0))
        elif "nodes" in command:
            self.line.report(nodes=packed(self.cluster.nodes()))

    def _look(self) -> None:
        now_s = time.monotonic()
        for watched in self.watched.values():
            if watched.reference is None and now_s >= watched.look_again_s:
                watched.reference = self.cluster.watch(watched.name, watched.state, WATCH_TIMEOUT_S)
        by_reference = {
            watched.reference: watched for watched in self.watched.values() if watched.reference is not None
        }
        for reference in self.cluster.finished(list(by_reference), ROUND_S):
            watched = by_reference[reference]
            watched.reference = None
            self._take(watched, self.cluster.state(reference))

    def _take(self, watched: _Watched, found: ActorState | str | None) -> None:
        name, known = watched.name, watched.state
        if isinstance(found, str):
            self._forget(name)
            self._report(ProcessEnded(name, f"{name}: {found}", EXIT_CRASHED))
        elif found is None:
            watched.look_again_s = time.monotonic() + AWAY_PAUSE_S
            if not watched.away and known is not None:
                watched.away = True
                self._report(ProcessEnded(name, f"{name} is gone", EXIT_CRASHED, being_restarted=True))
        else:
            if known is not None and found.pid != known.pid and not watched.away:
                self._report(ProcessEnded(name, f"{name} is gone", EXIT_CRASHED, being_restarted=True))
            watched.away = False
            watched.state = found
            if found.ended:
                self._forget(name)
                self._report(ProcessEnded(name, found.failure, found.exit_code))
            elif found.address and (known is None or found != known):
                self._report(ProcessReady(name, found.address, found.pid))

    def _forget(self, name: str) -> None:
        """The function has ended, so its actor is of no more use; a new start makes a new one."""
        self.watched.pop(name, None)
        self.cluster.kill(name)

    def _report(self, event: ProcessEvent) -> None:
        self.line.report(event=packed(event))

    def _parent_is_gone(self) -> None:
        if not self.cluster.is_own:
            return  # brokers on a cluster live on, and the next `appliance up` finds them
        end_soon()
        for name in self.watched:
            self.cluster.drain(name)
        deadline_s = time.monotonic() + DRAIN_ORPHANS_S
        while self.watched and time.monotonic() < deadline_s:
            self._look()


def packed(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def unpacked(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = ParentLine()
    first = line.read()
    if first is None:
        return 0
    settings: RaySettings = unpacked(first["begin"])
    log_to_standard_error("ray-driver", settings.log_level)
    commands: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, commands), name="parent-line", daemon=True).start()
    try:
        cluster = RayCluster(settings.address, settings.node, settings.folder, settings.log_level)
    except UserError as error:
        line.report(event=packed(RuntimeLost(str(error))))
        return error.exit_code
    # Ray has put its own in their place.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    line.report(up=True)
    try:
        Driver(cluster, line).run(commands)
    finally:
        cluster.close()
        # The parent does this too, if it still lives.
        shutil.rmtree(settings.folder, ignore_errors=True)
    return 0


def _listen(line: ParentLine, commands: queue.SimpleQueue[Mapping[str, Any] | None]) -> None:
    while (command := line.read()) is not None:
        commands.put(command)
    commands.put(None)


if __name__ == "__main__":
    sys.exit(main())
