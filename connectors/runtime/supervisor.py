"""Which connectors there are and that their tasks run: configs in a compacted topic, tasks started and watched.

Configs lie in `connect-configs` (key `connector-<name>`, value `{"properties": {...}}`, as Kafka Connect writes them),
so everything comes back after a restart and any consumer can read it. A task whose process died is started again after
a growing pause; a task that failed by its own error stays FAILED until somebody restarts it, as in Kafka Connect.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.client.client import Client
from appliance.client.security import own_properties, service_security
from connectors.api import ConfigError
from connectors.plugins import connector_class
from connectors.runtime.launchers import Launcher, TaskHandle
from connectors.runtime.source_loop import until_done
from connectors.runtime.tasks import FAILED, PAUSED, RESTARTING, TaskReport, TaskSpec
from connectors.runtime.topics import CompactedTopic

log = logging.getLogger(__name__)

CONFIG_TOPIC = "connect-configs"
OFFSET_TOPIC = "connect-offsets"
WATCH_INTERVAL_S = 0.5
RESTART_PAUSE_S = 1.0
RESTART_PAUSE_MAX_S = 60.0
HEALTHY_AFTER_S = 60.0
"""A task that has run so long starts again with the shortest pause."""
MAX_TASKS = 100


class NoSuchConnector(Exception):
    """There is no connector of that name."""


class ConnectorExists(Exception):
    """There is one of that name already."""


@dataclass(slots=True)
class RunningTask:
    spec: TaskSpec
    handle: TaskHandle | None
    started_s: float
    pause_s: float = RESTART_PAUSE_S
    start_again_s: float = 0.0
    last: TaskReport = field(default_factory=lambda: TaskReport(RESTARTING))


@dataclass(slots=True)
class RunningConnector:
    name: str
    config: dict[str, str]
    kind: str
    paused: bool = False
    generation: int = 0
    tasks: list[RunningTask] = field(default_factory=list)


class Supervisor:
    """Thread-safe: REST calls come from one thread, `watch` runs on another."""

    def __init__(
        self,
        bootstrap_servers: str,
        object_store: str,
        launcher: Launcher,
        stopping: threading.Event,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._listener_configs = own_properties(properties or {})
        self._bootstrap_servers = bootstrap_servers
        self._object_store = object_store
        self._launcher = launcher
        self._stopping = stopping
        security = service_security(self._listener_configs)
        self._client = Client(bootstrap_servers, client_id="appliance-connect", security=security)
        self._lock = threading.RLock()
        self._connectors: dict[str, RunningConnector] = {}
        self._configs: CompactedTopic | None = None

    def load(self) -> bool:
        """Start what was configured before; waits for brokers. False if told to stop meanwhile."""
        configs = until_done(self._stopping, lambda: CompactedTopic(self._client, CONFIG_TOPIC, 1))
        if configs is None:
            return False
        self._configs = configs
        stored = until_done(self._stopping, configs.load)
        for key, value in sorted((stored or {}).items()):
            kind, _, name = key.decode().partition("-")
            content = json.loads(value)
            if kind != "connector":
                continue
            with self._lock:
                connector = self._made(name, content["properties"])
                connector.paused = content.get("paused", False)
                self._connectors[name] = connector
                self._start_tasks(connector)
        return True

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._connectors)

    def get(self, name: str) -> RunningConnector:
        """Raises: NoSuchConnector."""
        with self._lock:
            found = self._connectors.get(name)
            if found is None:
                raise NoSuchConnector(name)
            return found

    def create(self, name: str, config: Mapping[str, str]) -> RunningConnector:
        """Check a config, keep it and start its tasks. Raises: ConnectorExists, ConfigError, KafkaError."""
        with self._lock:
            if name in self._connectors:
                raise ConnectorExists(name)
            connector = self._made(name, {**config, "name": name})
            self._keep(connector)
            self._connectors[name] = connector
            self._start_tasks(connector)
            return connector

    def put(self, name: str, config: Mapping[str, str]) -> tuple[RunningConnector, bool]:
        """Create or change a connector; the second value tells whether it is new. Raises: ConfigError, KafkaError."""
        with self._lock:
            old = self._connectors.get(name)
            if old is None:
                return self.create(name, config), True
            changed = self._made(name, {**config, "name": name})
            changed.paused, changed.generation = old.paused, old.generation
            self._keep(changed)
            self._stop_tasks(old)
            self._connectors[name] = changed
            self._start_tasks(changed)
            return changed, False

    def delete(self, name: str) -> None:
        """Stop and forget a connector; its offsets stay. Raises: NoSuchConnector, KafkaError."""
        with self._lock:
            connector = self.get(name)
            assert self._configs is not None
            self._configs.put(f"connector-{name}".encode(), None)
            self._stop_tasks(connector)
            del self._connectors[name]

    def restart(self, name: str) -> None:
        """Start all tasks of a connector anew. Raises: NoSuchConnector."""
        with self._lock:
            connector = self.get(name)
            self._stop_tasks(connector)
            self._start_tasks(connector)

    def pause(self, name: str, paused: bool) -> None:
        """Stop the tasks of a connector, or let them go on. Raises: NoSuchConnector, KafkaError."""
        with self._lock:
            connector = self.get(name)
            if connector.paused != paused:
                connector.paused = paused
                self._keep(connector)
                self._stop_tasks(connector)
                self._start_tasks(connector)

    def reports(self, name: str) -> list[TaskReport]:
        """How each task is. Raises: NoSuchConnector."""
        with self._lock:
            return [task.last for task in self.get(name).tasks]

    def watch(self) -> None:
        """Look after the tasks until told to stop; then end them all."""
        while not self._stopping.wait(WATCH_INTERVAL_S):
            with self._lock:
                connectors = list(self._connectors.values())
            for connector in connectors:
                with self._lock:
                    for task in connector.tasks:
                        self._look_at(task)
        with self._lock:
            for connector in self._connectors.values():
                self._stop_tasks(connector)
        self._client.close()

    def _look_at(self, task: RunningTask) -> None:
        now_s = time.monotonic()
        if task.handle is None:
            if now_s >= task.start_again_s and task.last.state == RESTARTING:
                task.handle, task.started_s = self._launcher.start(task.spec), now_s
            return
        alive = task.handle.is_alive()
        report = task.handle.report()
        if report.state == FAILED:
            if task.last.state != FAILED:
                task.handle.stop()
            task.last, task.handle = report, None
        elif alive:
            task.last = report
        else:
            if now_s - task.started_s >= HEALTHY_AFTER_S:
                task.pause_s = RESTART_PAUSE_S
            log.warning(
                "the process of task %s-%d ended; starting it again in %g s",
                task.spec.connector,
                task.spec.task_id,
                task.pause_s,
            )
            task.handle.stop()
            task.handle, task.start_again_s = None, now_s + task.pause_s
            task.last = TaskReport(RESTARTING, records=report.records, tiered_records=report.tiered_records)
            task.pause_s = min(2 * task.pause_s, RESTART_PAUSE_MAX_S)

    def _made(self, name: str, config: Mapping[str, str]) -> RunningConnector:
        class_name = config.get("connector.class")
        if not class_name:
            raise ConfigError({"connector.class": "is missing"})
        kind = connector_class(class_name)
        errors = kind().check(config)
        tasks_max = config.get("tasks.max", "1")
        if not tasks_max.isdigit() or not 1 <= int(tasks_max) <= MAX_TASKS:
            errors["tasks.max"] = f"is a whole number from 1 to {MAX_TASKS}, not {tasks_max}"
        if kind.kind == "sink" and not config.get("topics"):
            errors["topics"] = "is missing"
        if errors:
            raise ConfigError(errors)
        return RunningConnector(name, dict(config), kind.kind)

    def _keep(self, connector: RunningConnector) -> None:
        assert self._configs is not None
        content: dict[str, object] = {"properties": connector.config}
        if connector.paused:
            content["paused"] = True
        self._configs.put(f"connector-{connector.name}".encode(), json.dumps(content).encode())

    def _start_tasks(self, connector: RunningConnector) -> None:
        connector.generation += 1
        made = connector_class(connector.config["connector.class"])()
        configs = made.task_configs(connector.config, int(connector.config.get("tasks.max", "1")))
        connector.tasks = []
        for number, config in enumerate(configs):
            spec = TaskSpec(
                connector.name,
                number,
                len(configs),
                connector.generation,
                config,
                self._bootstrap_servers,
                self._object_store,
                OFFSET_TOPIC,
                self._listener_configs,
            )
            handle = None if connector.paused else self._launcher.start(spec)
            last = TaskReport(PAUSED) if connector.paused else TaskReport(RESTARTING)
            connector.tasks.append(RunningTask(spec, handle, time.monotonic(), last=last))

    def _stop_tasks(self, connector: RunningConnector) -> None:
        stops = [threading.Thread(target=task.handle.stop) for task in connector.tasks if task.handle is not None]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()
        connector.tasks = []
