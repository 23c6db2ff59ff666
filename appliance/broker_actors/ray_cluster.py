"""Every call to Ray, and nothing else: what `ray_driver.py` needs of it, in our words.

Placement is by node label and a resource that counts brokers, not by node id: after a restart of a node its id is
another, and an actor bound to the old one would be dead for good.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.base.errors import UserError
from appliance.broker_actors.placement import Node
from appliance.broker_actors.ray_actors import ActorState, ProcessActor
from appliance.broker_actors.runtime import EXIT_CRASHED, ProcessSpec

NAMESPACE = "appliance"
NODE_LABEL = "appliance-node"
SLOT_RESOURCE = "broker_slot"
OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""The smallest that Ray takes; nothing of ours goes through it."""
ACTOR_THREADS = 8
"""Calls that an actor answers at once: one `watch` is always under way."""
NAME_FREE_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


class RayCluster:
    """A connection to Ray: to a cluster of its own on this machine, or to one that exists.

    Args:
        address: of an existing cluster; empty starts one that ends with this process.
        node: this machine, for a cluster of its own.
        folder: for Ray's sessions and the token; its path must be short, because sockets lie in it.
        log_level: of the actors.

    Raises:
        UserError: Ray cannot be started or reached.
    """

    def __init__(self, address: str, node: Node, folder: Path, log_level: str) -> None:
        self.is_own = not address
        self._log_level = log_level
        _set_environment(self.is_own, folder)
        # Only now: Ray reads its environment when it is imported.
        import ray

        self._ray: Any = ray
        common: dict[str, Any] = {
            "namespace": NAMESPACE,
            "logging_level": "warning",
            "log_to_driver": True,
        }
        try:
            if address:
                ray.init(address=address, **common)
            else:
                ray.init(
                    address="local",
                    num_cpus=max(2, os.cpu_count() or 1),
                    resources={SLOT_RESOURCE: node.slots},
                    labels={NODE_LABEL: node.name},
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(folder),
                    _node_ip_address=node.address,
                    **common,
                )
        except Exception as error:
            place = f"at {address}" if address else "on this machine"
            raise UserError(f"Ray {place}: {_one_line(error)}", EXIT_CRASHED) from error
        self._actor_class = ray.remote(ProcessActor)
        self._actors: dict[str, Any] = {}

    def nodes(self) -> list[Node]:
        """The living nodes that take brokers."""
        return [
            Node(
                name=node["Labels"][NODE_LABEL],
                address=node["NodeManagerAddress"],
                slots=int(node["Resources"].get(SLOT_RESOURCE, 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"] and NODE_LABEL in node.get("Labels", {})
        ]

    def create(self, spec: ProcessSpec) -> None:
        """Make the actor, or take over the one of this name that runs the very same already.

        Raises:
            UserError: the name stays taken.
        """
        if self._take_over(spec):
            return
        self._actors[spec.name] = self._actor_class.options(
            name=spec.name,
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=ACTOR_THREADS,
            num_cpus=0,
            resources={SLOT_RESOURCE: spec.slots} if spec.slots else None,
            label_selector={NODE_LABEL: spec.node} if spec.node else None,
        ).remote(spec, self._log_level, self._ray.get_runtime_context().gcs_address)

    def watch(self, name: str, known: ActorState | None, timeout_s: float) -> Any:
        """Ask for the actor's next state; a reference for `finished`."""
        pid, version = (known.pid, known.version) if known is not None else (0, 0)
        return self._actors[name].watch.remote(pid, version, timeout_s)

    def finished(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those of the references that have an answer or an error; waits for the first."""
        if not references:
            time.sleep(timeout_s)
            return []
        done, _ = self._ray.wait(list(references), num_returns=1, timeout=timeout_s)
        return list(done)

    def state(self, reference: Any) -> ActorState | str | None:
        """The state; None when the actor is away and Ray brings it back; a line when it is gone for good."""
        errors = self._ray.exceptions
        try:
            state: ActorState = self._ray.get(reference)
            return state
        except errors.ActorUnavailableError:
            return None
        except errors.ActorDiedError as error:
            return _one_line(error)
        except errors.RayError as error:
            _log.warning("%s", _one_line(error))
            return None

    def drain(self, name: str) -> None:
        if name in self._actors:
            self._actors[name].drain.remote()

    def kill(self, name: str) -> None:
        """End the actor for good."""
        actor = self._actors.pop(name, None)
        if actor is not None:
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Leave; a cluster of its own ends."""
        self._ray.shutdown()

    def _take_over(self, spec: ProcessSpec) -> bool:
        """Whether an actor of this name runs this already. One that runs something else is ended."""
        deadline = time.monotonic() + NAME_FREE_TIMEOUT_S
        while True:
            try:
                actor = self._ray.get_actor(spec.name, namespace=NAMESPACE)
            except ValueError:
                return False
            try:
                if self._ray.get(actor.spec.remote(), timeout=2) == spec:
                    self._actors[spec.name] = actor
                    return True
                self._ray.kill(actor, no_restart=True)
            except self._ray.exceptions.RayError:
                pass  # it is just ending, or starting; look again
            if time.monotonic() > deadline:
                raise UserError(f"another actor named {spec.name} does not end", EXIT_CRASHED)
            time.sleep(0.1)


def _set_environment(is_own: bool, folder: Path) -> None:
    environment = os.environ
    # Else every worker would be started by `uv run` where that started us.
    environment["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    environment["RAY_USAGE_STATS_ENABLED"] = "0"
    environment["RAY_AUTH_MODE"] = "token"
    # Every line of every process is wanted, plain.
    environment["RAY_DEDUP_LOGS"] = "0"
    environment["RAY_COLOR_PREFIX"] = "0"
    if is_own:
        environment.pop("RAY_ADDRESS", None)
        environment["RAY_AUTH_TOKEN_PATH"] = str(_write_token(folder))
        # Named after the systems where it is the default: Ray takes the loopback address, and listens only there.
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        # Actors bring their own workers; none has to wait in reserve.
        environment["RAY_enable_worker_prestart"] = "0"
        environment["RAY_prestart_worker_first_driver"] = "0"


def _write_token(folder: Path) -> Path:
    path = folder / "token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
