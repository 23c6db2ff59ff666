"""Whole brokers and controllers inside the test's process: the real `run_controller` and `run_broker` on threads.

    with running_cluster(tmp_path, brokers=3) as cluster:
        cluster.bootstrap_servers

For tests that kill processes, see `tests.support.broker_process`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.processes import BrokerSettings, ControllerSettings, ProcessHandle
from appliance.broker_actors.broker_process import run_broker
from appliance.broker_actors.controller import run_controller
from tests.support.ports import free_port

READY_TIMEOUT_S = 20
STOP_TIMEOUT_S = 20

QUICK = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.dir.min.free.bytes": "1",
}
"""Configs that spare tests some waiting."""


class RunningPart:
    """A blocking `run(settings, handle)` on a thread."""

    def __init__(self, run: Callable[[Any, ProcessHandle], None], settings: Any, name: str) -> None:
        self.address = ""
        self.error: BaseException | None = None
        self._changed = threading.Event()
        self._handle = ProcessHandle(self._on_ready)
        self._run = run
        self._settings = settings
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def wait_until_ready(self) -> None:
        assert self._changed.wait(READY_TIMEOUT_S), f"{self._thread.name} is not ready after {READY_TIMEOUT_S} s"
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Drain, end, and raise what it failed with."""
        self._handle.stopping.set()
        self._thread.join(STOP_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self._thread.name} did not end within {STOP_TIMEOUT_S} s"
        if self.error is not None:
            raise self.error

    def _on_ready(self, address: str) -> None:
        self.address = address
        self._changed.set()

    def _serve(self) -> None:
        try:
            self._run(self._settings, self._handle)
        except BaseException as error:
            self.error = error
        finally:
            self._changed.set()


@dataclass
class RunningCluster:
    """One controller and some brokers over a directory as object store."""

    folder: Path
    properties: dict[str, str]
    controller: RunningPart
    brokers: dict[int, RunningPart] = field(default_factory=dict)
    log_dirs: tuple[Path, ...] = ()
    """Folders for logs, in each of which every broker has its own; empty: in its data folder."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def object_store(self) -> str:
        return (self.folder / "object-store").as_uri()

    def data_dir(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}"

    def broker_settings(self, broker_id: int, port: int = 0) -> BrokerSettings:
        return BrokerSettings(
            broker_id=broker_id,
            host="127.0.0.1",
            port=port or free_port(),
            advertised_host="127.0.0.1",
            data_dir=self.data_dir(broker_id),
            controllers=[self.controller.address],
            object_store=self.object_store,
            node=f"node-{broker_id}",
            properties=self.properties,
            log_dirs=[folder / f"broker-{broker_id}" for folder in self.log_dirs],
        )

    def start_broker(self, broker_id: int, port: int = 0) -> RunningPart:
        broker = RunningPart(run_broker, self.broker_settings(broker_id, port), f"broker-{broker_id}")
        self.brokers[broker_id] = broker
        return broker

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()
        self.controller.stop()


def start_controller(
    folder: Path, properties: Mapping[str, str], controller_id: int = 100, port: int = 0
) -> RunningPart:
    store = folder / "object-store"
    store.mkdir(parents=True, exist_ok=True)
    settings = ControllerSettings(controller_id, "127.0.0.1", port or free_port(), store.as_uri(), dict(properties))
    controller = RunningPart(run_controller, settings, f"controller-{controller_id}")
    controller.wait_until_ready()
    return controller


@contextmanager
def running_cluster(
    folder: Path,
    brokers: int = 1,
    properties: Mapping[str, str] | None = None,
    log_dirs: Sequence[Path] = (),
) -> Iterator[RunningCluster]:
    """A controller and brokers 1…n, ready; ended in order afterwards."""
    everything = {**QUICK, **(properties or {})}
    cluster = RunningCluster(folder, everything, start_controller(folder, everything), log_dirs=tuple(log_dirs))
    try:
        for broker_id in range(1, brokers + 1):
            cluster.start_broker(broker_id)
        for broker in cluster.brokers.values():
            broker.wait_until_ready()
        yield cluster
    finally:
        cluster.stop()
