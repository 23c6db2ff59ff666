"""What a process of the appliance is told, and how it talks to whoever started it.

Brokers, controllers and services are plain blocking functions `run(settings, handle)`. The same function runs in a
process of `--runtime local`, in a Ray actor, and on a thread in a test; it knows nothing of which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class ProcessHandle:
    """The line between a running process and whoever started it."""

    def __init__(
        self,
        on_ready: Callable[[str], None] = lambda address: None,
        runtime_problem: Callable[[], str] = lambda: "",
        on_working: Callable[[], None] = lambda: None,
    ) -> None:
        self.stopping = threading.Event()
        """Set when the process should drain and return."""
        self.runtime_problem = runtime_problem
        """What is wrong with that which would start this process again; empty while nothing is. Does not block."""
        self._on_ready = on_ready
        self._on_working = on_working

    def ready(self, address: str) -> None:
        """Report the address that is served (`host:port` or a URL); called once, when requests are answered."""
        self._on_ready(address)

    def working(self) -> None:
        """Report, while draining takes long, that it goes on: whoever waits gives it more time. Any thread."""
        self._on_working()


@dataclass(slots=True)
class ControllerSettings:
    """What a controller is told. Can be pickled."""

    controller_id: int
    host: str
    port: int
    """0 takes a free one."""
    object_store: str
    """URL for `appliance.tiering.stores.open_store`; the metadata log lies there."""
    properties: dict[str, str] = field(default_factory=dict)
    """Entries of the configuration file and of flags, in the form of server.properties."""


@dataclass(slots=True)
class BrokerSettings:
    """What a broker is told. Can be pickled."""

    broker_id: int
    host: str
    port: int
    """0 takes a free one."""
    advertised_host: str
    data_dir: Path
    """`DIR/broker-<id>`; held by a file lock. Logs lie here unless `log_dirs` names other directories."""
    controllers: list[str]
    """`host:port` of each controller."""
    object_store: str
    node: str = ""
    """The Ray node (or host) it is placed on; its `broker.rack` unless the properties say otherwise."""
    properties: dict[str, str] = field(default_factory=dict)
    log_dirs: list[Path] = field(default_factory=list)
    """Where the logs lie, several disks for instance; empty: in `data_dir`."""


@dataclass(slots=True)
class ServiceSettings:
    """What a service is told. Can be pickled.

    A service is an entry point of the group `appliance.services`: HTTP gateways, connector workers and whatever else a
    package brings. `appliance up` starts one of each that is installed.
    """

    name: str
    """The entry point's name, for instance `http` or `connect`."""
    bootstrap_servers: str
    """`host:port` pairs with commas between, as Kafka clients take them."""
    cluster_id: str
    object_store: str
    data_dir: Path
    """A folder of the service's own: `DIR/<name>/`."""
    host: str
    port: int
    """0 takes a free one."""
    runtime: str
    """`ray` or `local`: how the service should start workers of its own."""
    properties: dict[str, str] = field(default_factory=dict)


Service = Callable[[ServiceSettings, ProcessHandle], None]
