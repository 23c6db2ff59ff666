"""From what the user asked for to the processes that have to run."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.processes import BrokerSettings, ControllerSettings, ServiceSettings
from appliance.broker_actors.data_folder import ApplianceState
from appliance.broker_actors.placement import Node
from appliance.broker_actors.plan_listeners import (
    LOOPBACK,
    addresses_of,
    asked_listeners,
    is_loopback,
    require_room,
    require_safety,
)
from appliance.broker_actors.ports import free_port, listen_problem, require_port
from appliance.broker_actors.runtime import ProcessSpec
from appliance.security.listeners import Listeners
from appliance.tiering.stores import check_url

STANDBY_SINCE_BROKERS = 3


@dataclass(frozen=True, slots=True)
class ApplianceSettings:
    """What the user asked for; defaults as in docs/configuration.md."""

    data_dir: Path
    brokers: int = 1
    controllers: int = 0
    """0: as many as the brokers deserve."""
    host: str = LOOPBACK
    advertised_host: str = ""
    """Empty: `host`, or the node's own address where `host` is a wildcard."""
    port: int = 9092
    http_port: int = 8082
    connect_port: int = 8083
    runtime: str = "ray"
    ray_address: str = ""
    object_store: str = ""
    """Empty: `data_dir/object-store`."""
    insecure: bool = False
    services: tuple[str, ...] = ("all",)
    log_level: str = "info"
    properties: dict[str, str] = field(default_factory=dict)
    """Broker configs, as text."""
    log_dirs: tuple[Path, ...] = ()
    """Where all brokers' logs lie when that is not `data_dir`: several disks."""

    @property
    def listeners(self) -> Listeners:
        """The first broker's; the others' ports count on."""
        return asked_listeners(self.host, self.advertised_host, self.port, self.properties)

    @property
    def broker_ports(self) -> set[int]:
        """The ports that the user named for brokers; none when they are to be free ones."""
        return require_room(self.listeners, self.brokers)

    @property
    def controller_count(self) -> int:
        """One that stands by shortens a controller's death; an appliance that cannot lose a broker needs none."""
        return self.controllers or (2 if self.brokers >= STANDBY_SINCE_BROKERS else 1)

    @property
    def named_ports(self) -> set[int]:
        """Ports that must not be given to anything else."""
        return {*self.broker_ports, self.http_port, self.connect_port} - {0}

    def checked(self) -> ApplianceSettings:
        """The same with paths made absolute.

        Raises:
            UserError: something that cannot be, said in one line.
        """
        BrokerConfig(self.properties)
        listeners, broker_ports = self.listeners, self.broker_ports
        if not self.insecure:
            require_safety(listeners)
            if not is_loopback(self.host) and self.services not in (("none",), ()):
                raise UserError(
                    f"--host {self.host} would open HTTP to a network without TLS and authentication; say --insecure "
                    "if that network is yours alone, or --services none"
                )
        for flag, port in (("--http-port", self.http_port), ("--connect-port", self.connect_port)):
            if port and port in broker_ports:
                raise UserError(f"{flag} {port} is also a broker's port")
        if self.http_port and self.http_port == self.connect_port:
            raise UserError(f"--http-port and --connect-port are both {self.http_port}")
        if self.ray_address and self.runtime != "ray":
            raise UserError("--ray-address needs --runtime ray")
        data_dir = self.data_dir.expanduser().absolute()
        object_store = self.object_store or str(data_dir / "object-store")
        if "://" not in object_store:
            object_store = Path(object_store).expanduser().absolute().as_uri()
        check_url(object_store)
        if self.ray_address and object_store.startswith("file://"):
            raise UserError("--ray-address needs --object-store s3://… or the like: a folder is for one machine")
        log_dirs = tuple(dict.fromkeys(folder.expanduser().absolute() for folder in self.log_dirs))
        return replace(self, data_dir=data_dir, log_dirs=log_dirs, object_store=object_store)


@dataclass(frozen=True, slots=True)
class Targets:
    """The functions that processes run. Tests put others in."""

    controller: str = "appliance.broker_actors.controller:run_controller"
    broker: str = "appliance.broker_actors.broker_process:run_broker"
    services: Mapping[str, str] | None = None
    """By name; None: the installed entry points of the group `appliance.services`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All processes but the services, with their ports."""

    controllers: list[ProcessSpec]
    brokers: list[ProcessSpec]
    bootstrap_servers: str


def plan_cluster(
    settings: ApplianceSettings,
    targets: Targets,
    state: ApplianceState,
    nodes: Sequence[Node],
    placement: Mapping[int, str],
    taken: set[int],
) -> Plan:
    """Ports and settings of controllers and brokers; every port is checked here, where one line can tell.

    Args:
        nodes: the nodes of `placement`; one node at a loopback address is this machine.
        state: what the last start left; the controllers' ports are kept in it.
        taken: ports that are spoken for, `named_ports` at first; those that are chosen here are added.

    Raises:
        UserError(exit_code=3): a port is not usable.
    """
    by_name = {node.name: node for node in nodes}
    here = settings.ray_address == ""
    controllers = _controllers(settings, targets, state, by_name, placement, taken)
    controller_addresses = [f"{spec.settings.host}:{spec.settings.port}" for spec in controllers]
    listeners = settings.listeners
    brokers = []
    addresses = []
    at_address: Counter[str] = Counter()
    for broker_id in range(1, settings.brokers + 1):
        node = by_name[placement[broker_id]]
        # Ports count on from `--port` at each address, so that a firewall rule for one node fits all.
        own = addresses_of(listeners, broker_id, at_address[node.address], node, here=here, taken=taken)
        at_address[node.address] += 1
        data_dir = settings.data_dir / f"broker-{broker_id}"
        log_dirs = [folder / f"broker-{broker_id}" for folder in settings.log_dirs]
        brokers.append(
            ProcessSpec(
                name=f"broker-{broker_id}",
                target=targets.broker,
                settings=BrokerSettings(
                    broker_id=broker_id,
                    host=settings.host,
                    port=own.port,
                    advertised_host=own.bootstrap.rpartition(":")[0].strip("[]"),
                    data_dir=data_dir,
                    controllers=controller_addresses,
                    object_store=settings.object_store,
                    node=node.name,
                    log_dirs=log_dirs,
                    # So that DescribeConfigs tells what really holds.
                    properties={
                        **settings.properties,
                        "broker.id": str(broker_id),
                        "node.id": str(broker_id),
                        "listeners": own.listeners,
                        "advertised.listeners": own.advertised,
                        "log.dirs": ",".join(map(str, log_dirs or [data_dir])),
                        "object.store.url": settings.object_store,
                    },
                ),
                node=node.name,
                slots=1,
            )
        )
        addresses.append(own.bootstrap)
    return Plan(controllers=controllers, brokers=brokers, bootstrap_servers=",".join(addresses))


def _controllers(
    settings: ApplianceSettings,
    targets: Targets,
    state: ApplianceState,
    by_name: Mapping[str, Node],
    placement: Mapping[int, str],
    taken: set[int],
) -> list[ProcessSpec]:
    """Each on another node than the one before, as long as there are nodes with brokers."""
    here = settings.ray_address == ""
    names = list(dict.fromkeys(placement[broker_id] for broker_id in sorted(placement)))
    state.controller_ports += [0] * (settings.controller_count - len(state.controller_ports))
    specs = []
    for at in range(settings.controller_count):
        node = by_name[names[at % len(names)]]
        port = state.controller_ports[at] = _controller_port(state.controller_ports[at], here, taken)
        controller = ControllerSettings(
            controller_id=at + 1,
            host=LOOPBACK if here else node.address,
            port=port,
            object_store=settings.object_store,
            properties=dict(settings.properties),
        )
        specs.append(
            ProcessSpec(name=f"controller-{at + 1}", target=targets.controller, settings=controller, node=node.name)
        )
    return specs


def plan_services(
    settings: ApplianceSettings,
    services: Mapping[str, str],
    bootstrap_servers: str,
    cluster_id: str,
    ports: Mapping[str, int],
    node: str,
) -> list[ProcessSpec]:
    """One process for each service, all on one node."""
    return [
        ProcessSpec(
            name=f"service-{name}",
            target=target,
            settings=ServiceSettings(
                name=name,
                bootstrap_servers=bootstrap_servers,
                cluster_id=cluster_id,
                object_store=settings.object_store,
                data_dir=settings.data_dir / name,
                host=settings.host,
                port=ports[name],
                runtime=settings.runtime,
                properties=dict(settings.properties),
            ),
            node=node,
        )
        for name, target in services.items()
    ]


def service_ports(settings: ApplianceSettings, services: Mapping[str, str], taken: set[int]) -> dict[str, int]:
    """The port of each service: the one asked for, or a free one.

    Raises:
        UserError(exit_code=3): a port is not usable.
    """
    asked = {"http": settings.http_port, "connect": settings.connect_port}
    ports: dict[str, int] = {}
    for name in services:
        port = asked.get(name, 0)
        ports[name] = require_port(settings.host, port, f"service {name}") if port else free_port(settings.host, taken)
    return ports


def chosen_services(settings: ApplianceSettings, targets: Targets) -> dict[str, str]:
    """The services to start, by name: `package.module:function`.

    Raises:
        UserError: a name that is not installed.
    """
    wanted = settings.services
    if wanted in (("none",), ()):
        return {}
    installed = dict(targets.services) if targets.services is not None else _installed_services()
    if wanted == ("all",):
        return dict(sorted(installed.items()))
    unknown = [name for name in wanted if name not in installed]
    if unknown:
        raise UserError(f"no service {unknown[0]} is installed; there are: {', '.join(sorted(installed)) or 'none'}")
    return {name: installed[name] for name in sorted(wanted)}


def _installed_services() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group="appliance.services")}


def this_machine(slots: int) -> Node:
    """The only node of an appliance on one machine."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in socket.gethostname())
    return Node(name=name.strip("-_.")[:63] or "localhost", address=LOOPBACK, slots=slots)


def _controller_port(port: int, here: bool, taken: set[int]) -> int:
    """The port of the last start where it is still free, so that whatever knows it finds the controller again."""
    if not port or port in taken or (here and listen_problem(LOOPBACK, port)):
        port = free_port(LOOPBACK, taken)
    taken.add(port)
    return port
