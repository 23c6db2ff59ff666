"""`appliance up`: the whole appliance in the foreground, until SIGINT or SIGTERM."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from appliance.base.errors import invariant

if TYPE_CHECKING:
    from appliance.broker_actors.placement import Node
    from appliance.broker_actors.plan import ApplianceSettings, Targets
    from appliance.broker_actors.readiness import ReadyCheck
    from appliance.broker_actors.runtime import ProcessEvent, Runtime
    from appliance.client.security import ClientSecurity

_log = logging.getLogger(__name__)


def up(
    brokers: Annotated[int | None, typer.Option(help="How many brokers [default: 1].")] = None,
    controllers: Annotated[
        int | None, typer.Option(help="How many controllers [default: 2 for 3 brokers and more, else 1].")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="The folder of everything that is kept [default: appliance-data].")
    ] = None,
    log_dirs: Annotated[
        str | None,
        typer.Option(help="Folders for the logs, one for each disk, with commas between [default: the data folder]."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="The first broker's port, the others count on; 0 takes free ones [default: 9092]."),
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="The port of HTTP ingest; 0 takes a free one [default: 8082].")
    ] = None,
    connect_port: Annotated[
        int | None, typer.Option(help="The port of the connectors' REST API; 0 takes a free one [default: 8083].")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on [default: 127.0.0.1].")] = None,
    advertised_host: Annotated[
        str | None, typer.Option(help="The host that clients are told [default: the host].")
    ] = None,
    object_store: Annotated[
        str | None,
        typer.Option(
            help="A folder, s3://bucket/prefix (needs appliance[s3]), gs://… (appliance[gcs]), abfs://… "
            "(appliance[azure]) or another URL of fsspec [default: object-store in the data folder]."
        ),
    ] = None,
    runtime: Annotated[str | None, typer.Option(help="What starts the processes: ray or local [default: ray].")] = None,
    ray_address: Annotated[str | None, typer.Option(help="An existing Ray cluster to place the brokers on.")] = None,
    services: Annotated[
        str | None, typer.Option(help="Services beside the brokers: all, none or names [default: all].")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A file in the form of Kafka's server.properties.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen without TLS on a network, too.")] = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [default: info].")] = None,
) -> None:
    """Start an appliance: brokers, controller, HTTP ingest and connectors. Ends with SIGINT or SIGTERM.

    Prints one line `READY {json}` on standard output once everything serves; logs go to standard error.
    """
    flags = {
        "brokers": brokers,
        "controllers": controllers,
        "data.dir": data_dir,
        "log.dirs": log_dirs,
        "port": port,
        "http.port": http_port,
        "connect.port": connect_port,
        "host": host,
        "advertised.host": advertised_host,
        "object.store.url": object_store,
        "runtime": runtime,
        "ray.address": ray_address,
        "services": services,
        "insecure": "true" if insecure else None,
        "log.level": log_level,
    }
    texts = {name: None if value is None else str(value) for name, value in flags.items()}
    raise typer.Exit(run_up(texts, os.environ, config))


def run_up(
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    config: Path | None,
    *,
    targets: Targets | None = None,
    ready_check: ReadyCheck | None = None,
) -> int:
    """Resolve the settings and run the appliance; returns the exit code. Tests put in other targets.

    Raises:
        UserError: it could not be started; one line, with its exit code.
    """
    from appliance.broker_actors.logs import log_to_standard_error
    from appliance.broker_actors.readiness import wait_for_metadata
    from appliance.broker_actors.supervisor import Supervisor
    from appliance.cli.up_options import resolve

    settings, warnings = resolve(flags, environment, config)
    log_to_standard_error("supervisor", settings.log_level)
    for warning in warnings:
        _log.warning("%s", warning)
    runtime_of, nodes = _runtime(settings)
    output = _claim_standard_output()
    return Supervisor(
        settings,
        runtime_of,
        nodes=nodes,
        targets=targets,
        ready_check=ready_check or partial(wait_for_metadata, secured=lambda: _security(settings)),
        output=output,
    ).run()


def _security(settings: ApplianceSettings) -> ClientSecurity:
    """What the appliance's own connections to its brokers need."""
    from appliance.base.config import BrokerConfig
    from appliance.client.security import inter_broker_security

    return inter_broker_security(BrokerConfig(settings.properties), settings.listeners)


def _claim_standard_output() -> IO[str]:
    """Standard output for the READY line alone; whatever else is printed goes to standard error."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return output


def _runtime(
    settings: ApplianceSettings,
) -> tuple[Callable[[Callable[[ProcessEvent], None], int], Runtime], Callable[[Runtime], Sequence[Node]] | None]:
    if settings.runtime == "local":
        from appliance.broker_actors.local import LocalRuntime

        return lambda post, lock: LocalRuntime(post, settings.log_level, (lock,)), None
    from appliance.broker_actors.plan import this_machine
    from appliance.broker_actors.ray_runtime import RayRuntime

    def nodes(runtime: Runtime) -> Sequence[Node]:
        invariant(isinstance(runtime, RayRuntime), "nodes are asked of Ray")
        return cast(RayRuntime, runtime).nodes()

    def make(post: Callable[[ProcessEvent], None], lock: int) -> Runtime:
        return RayRuntime(post, settings.log_level, (lock,), this_machine(settings.brokers), settings.ray_address)

    return make, nodes if settings.ray_address else None
