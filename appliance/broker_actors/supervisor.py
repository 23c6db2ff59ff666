"""`appliance up`: starts controllers, brokers and services, says READY, restarts what ends, and drains at the end.

One thread decides; events come to it through a queue: what became of a process, a signal, a time that has come.
Order of starting: controllers and brokers at once (brokers try until their controller answers), then services. Order of
stopping: services, brokers, controllers; then whatever is left is killed.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.broker_actors.data_folder import DataFolder
from appliance.broker_actors.placement import Node, place_brokers
from appliance.broker_actors.plan import (
    ApplianceSettings,
    Plan,
    Targets,
    chosen_services,
    plan_cluster,
    plan_services,
    service_ports,
    this_machine,
)
from appliance.broker_actors.readiness import ReadyCheck, wait_for_metadata
from appliance.broker_actors.restarts import RestartPolicy
from appliance.broker_actors.runtime import (
    EXIT_CRASHED,
    EXIT_NOT_INSTALLED,
    ProcessEnded,
    ProcessEvent,
    ProcessReady,
    ProcessSpec,
    ProcessWorking,
    Runtime,
    RuntimeLost,
)

STOP_TIMEOUT_MS = 20_000
"""From the first signal to the end of the last process, unless a broker tells that it has many logs to close."""
SERVICES_STOP_MS = 5_000
BROKERS_STOP_MS = 9_000
"""Counted anew whenever one of them tells that it gets on."""
BROKERS_STOP_MAX_MS = 120_000
CONTROLLERS_STOP_MS = 2_000
"""The rest of STOP_TIMEOUT_MS is for killing, and for Ray to go."""
READY_VERSION = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Signalled:
    """Somebody asked the appliance to end."""

    number: int


Event = ProcessEvent | Signalled


class Stopping(Exception):
    """A signal came before READY."""


class Supervisor:
    """Runs one appliance.

    Args:
        settings: what the user asked for, checked.
        runtime_of: makes the runtime; gets the function that takes its events and the descriptor of the folder's lock.
        nodes: where brokers may go, from the runtime; None is this machine.
        targets: what the processes run.
        ready_check: how to find out that the brokers serve.
        output: where the READY line goes.
    """

    def __init__(
        self,
        settings: ApplianceSettings,
        runtime_of: Callable[[Callable[[ProcessEvent], None], int], Runtime],
        *,
        nodes: Callable[[Runtime], Sequence[Node]] | None = None,
        targets: Targets | None = None,
        ready_check: ReadyCheck = wait_for_metadata,
        output: IO[str],
    ) -> None:
        self._settings = settings
        self._runtime_of = runtime_of
        self._nodes = nodes
        self._targets = targets or Targets()
        self._ready_check = ready_check
        self._output = output
        # A SimpleQueue may be written to from a signal handler that interrupts its own reader.
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._config = BrokerConfig(settings.properties)
        self._restarts = RestartPolicy(
            self._config.get("service.restart.backoff.ms"), self._config.get("service.restart.backoff.max.ms")
        )
        self._specs: dict[str, ProcessSpec] = {}
        self._running: set[str] = set()
        self._addresses: dict[str, str] = {}
        self._left_out: set[str] = set()
        self._due_ms: dict[str, int] = {}
        self._runtime: Runtime | None = None

    def run(self) -> int:
        """Blocks until the appliance has ended; returns the exit code.

        Raises:
            UserError: it could not be started.
        """
        obeyed = [number for number in STOP_SIGNALS if number != signal.SIGHUP or not _ignored(number)]
        earlier = {number: signal.signal(number, self._on_signal) for number in obeyed}
        folder = None
        try:
            folder = DataFolder(self._settings.data_dir)
            self._runtime = self._runtime_of(self._events.put, folder.lock_descriptor)
            self._start(self._runtime, folder)
            return self._watch(self._runtime)
        except Stopping:
            self._stop_all()
            return 0
        finally:
            if self._runtime is not None:
                self._runtime.close()
            if folder is not None:
                folder.close()
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self._events.put(Signalled(number))

    # Starting.

    def _start(self, runtime: Runtime, folder: DataFolder) -> None:
        settings = self._settings
        deadline_ms = _now_ms() + self._config.get("up.ready.timeout.ms")
        services = chosen_services(settings, self._targets)
        nodes = self._nodes(runtime) if self._nodes else [this_machine(settings.brokers)]
        here = settings.ray_address == ""
        broker_ids = range(1, settings.brokers + 1)
        # On one machine there is nothing to remember, and its name may change.
        earlier = {} if here else {int(key): node for key, node in folder.state.placement.items()}
        placement = place_brokers(broker_ids, nodes, earlier)
        taken = settings.named_ports
        plan = plan_cluster(settings, self._targets, folder.state, nodes, placement, taken)
        ports = service_ports(settings, services, taken)
        folder.state.placement = {str(broker_id): node for broker_id, node in placement.items()}
        folder.save()

        active, *standbys = plan.controllers
        for spec in [active, *plan.brokers]:
            self._begin(runtime, spec)
        for name, target in services.items():
            runtime.warm(f"service-{name}", target)
        cluster_id = self._wait_for_brokers(plan, deadline_ms)
        services = {name: target for name, target in services.items() if f"service-{name}" not in self._left_out}
        for spec in plan_services(
            settings, services, plan.bootstrap_servers, cluster_id, ports, plan.controllers[0].node
        ):
            self._begin(runtime, spec)
        self._wait_until_ready({f"service-{name}" for name in services}, deadline_ms)
        # Nobody waits for those: they serve only when another one has died.
        for spec in standbys:
            self._begin(runtime, spec)
        self._say_ready(plan, cluster_id)

    def _begin(self, runtime: Runtime, spec: ProcessSpec) -> None:
        self._specs[spec.name] = spec
        self._running.add(spec.name)
        runtime.start(spec)

    def _wait_for_brokers(self, plan: Plan, deadline_ms: int) -> str:
        self._wait_until_ready({spec.name for spec in [plan.controllers[0], *plan.brokers]}, deadline_ms)
        # On a thread, so that a signal is obeyed while a broker is slow to answer.
        result: list[str | Exception] = []
        addresses = plan.bootstrap_servers.split(",")

        def check() -> None:
            try:
                result.append(self._ready_check(addresses, max(0, deadline_ms - _now_ms())))
            except Exception as error:
                result.append(error)

        checking = threading.Thread(target=check, name="ready-check", daemon=True)
        checking.start()
        while checking.is_alive():
            checking.join(0.005)
            self._take_events_before_ready()
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    def _wait_until_ready(self, names: set[str], deadline_ms: int) -> None:
        while missing := names - self._addresses.keys() - self._left_out:
            left_ms = deadline_ms - _now_ms()
            if left_ms <= 0:
                raise UserError(f"not ready in time (up.ready.timeout.ms): {', '.join(sorted(missing))}", EXIT_CRASHED)
            try:
                self._take_before_ready(self._events.get(timeout=left_ms / 1000))
            except queue.Empty:
                continue

    def _take_events_before_ready(self) -> None:
        while True:
            try:
                self._take_before_ready(self._events.get_nowait())
            except queue.Empty:
                return

    def _take_before_ready(self, event: Event) -> None:
        match event:
            case Signalled():
                raise Stopping
            case ProcessReady(name, address, pid):
                self._addresses[name] = address
                self._restarts.ready(name, _now_ms())
                _log.info("%s serves at %s (pid %d)", name, address, pid)
            case ProcessEnded(_, message, _, being_restarted=True):
                _log.warning("%s; Ray starts it again", message)
            case ProcessEnded(name, message, exit_code, _) if name.startswith("service-") and (
                exit_code == EXIT_NOT_INSTALLED
            ):
                # A small install has no extras; the brokers are no worse for it.
                self._left_out.add(name)
                self._running.discard(name)
                _log.warning("%s is left out: %s", name, message)
            case ProcessEnded(name, message, exit_code, _):
                raise UserError(message or f"{name} ended before it was ready", exit_code or EXIT_CRASHED)
            case ProcessWorking():
                pass
            case RuntimeLost(message):
                raise UserError(message, EXIT_CRASHED)

    def _say_ready(self, plan: Plan, cluster_id: str) -> None:
        ready: dict[str, Any] = {
            "version": READY_VERSION,
            "cluster_id": cluster_id,
            "bootstrap_servers": plan.bootstrap_servers,
            "http": None,
            "connect": None,
            **{
                name.removeprefix("service-"): address
                for name, address in sorted(self._addresses.items())
                if name.startswith("service-")
            },
            "object_store": self._settings.object_store,
            "pid": os.getpid(),
        }
        self._output.write(f"READY {json.dumps(ready)}\n")
        self._output.flush()

    # Watching.

    def _watch(self, runtime: Runtime) -> int:
        while True:
            timeout = None
            if self._due_ms:
                timeout = max(0.0, (min(self._due_ms.values()) - _now_ms()) / 1000)
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                self._restart_due(runtime)
                continue
            match event:
                case Signalled(number):
                    _log.info("%s: draining", signal.Signals(number).name)
                    self._stop_all()
                    return 0
                case ProcessReady(name, address, pid):
                    self._restarts.ready(name, _now_ms())
                    _log.info("%s serves at %s again (pid %d)", name, address, pid)
                case ProcessEnded(name, message, _, being_restarted):
                    self._note_end(name, message, being_restarted)
                case ProcessWorking():
                    continue
                case RuntimeLost(message):
                    _log.error("%s", message)
                    return EXIT_CRASHED

    def _note_end(self, name: str, message: str, being_restarted: bool) -> None:
        reason = message or f"{name} ended"
        if being_restarted:
            _log.warning("%s; Ray starts it again", reason)
            return
        self._running.discard(name)
        now_ms = _now_ms()
        self._due_ms[name] = self._restarts.ended(name, now_ms)
        _log.warning("%s; starting it again in %d ms", reason, self._due_ms[name] - now_ms)

    def _restart_due(self, runtime: Runtime) -> None:
        for name in sorted(name for name, due_ms in self._due_ms.items() if due_ms <= _now_ms()):
            del self._due_ms[name]
            try:
                self._begin(runtime, self._specs[name])
            except UserError as error:
                self._note_end(name, str(error), being_restarted=False)

    # Stopping.

    def _stop_all(self) -> None:
        """Drain group after group; a second signal kills at once."""
        runtime = self._runtime
        if runtime is None:
            return
        for prefix, timeout_ms in (
            ("service-", SERVICES_STOP_MS),
            ("broker-", BROKERS_STOP_MS),
            ("controller-", CONTROLLERS_STOP_MS),
        ):
            names = {name for name in self._running if name.startswith(prefix)}
            for name in sorted(names):
                runtime.stop(name)
            if not self._wait_until_ended(names, timeout_ms):
                return  # `close` kills the rest

    def _wait_until_ended(self, names: set[str], timeout_ms: int) -> bool:
        """False when a second signal or the loss of the runtime cut the waiting short."""
        deadline_ms = _now_ms() + timeout_ms
        last_ms = _now_ms() + BROKERS_STOP_MAX_MS
        while names & self._running:
            try:
                event = self._events.get(timeout=max(0, deadline_ms - _now_ms()) / 1000)
            except queue.Empty:
                for name in sorted(names & self._running):
                    _log.warning("%s did not end within %d ms; killing it", name, timeout_ms)
                    if self._runtime is not None:
                        self._runtime.kill(name)
                return True
            match event:
                case ProcessEnded(name, message, _, being_restarted):
                    if not being_restarted:
                        self._running.discard(name)
                    if message:
                        _log.warning("%s", message)
                case Signalled():
                    _log.warning("second signal: killing what is left")
                    return False
                case RuntimeLost(message):
                    _log.error("%s", message)
                    return False
                case ProcessWorking(name):
                    if name in names:
                        deadline_ms = max(deadline_ms, min(last_ms, _now_ms() + timeout_ms))
                case ProcessReady():
                    continue
        return True


def _ignored(number: signal.Signals) -> bool:
    """Whoever started us may have said so, as nohup does."""
    return signal.getsignal(number) is signal.SIG_IGN


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
