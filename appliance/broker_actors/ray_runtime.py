"""The Ray runtime, seen from the supervisor: a child process, the driver, does everything that touches Ray."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from appliance.base.errors import UserError
from appliance.broker_actors.child_line import ChildLine
from appliance.broker_actors.placement import Node
from appliance.broker_actors.runtime import EXIT_CRASHED, Post, ProcessSpec, RuntimeLost

CLOSE_TIMEOUT_S = 4.0
"""How long Ray may take to end before it is killed."""
KILL_TIMEOUT_S = 1.0
NODES_TIMEOUT_S = 60.0
SHORT_FOLDER = "/tmp"
"""Paths of Unix sockets end at 107 bytes; Ray puts some 60 of its own behind the folder."""


class RayRuntime:
    """Places processes as actors on Ray.

    Args:
        post: takes what becomes of the processes.
        log_level: for the actors and the driver.
        inherit: descriptors that the driver keeps open.
        node: this machine, for a cluster that ends with the appliance.
        address: of an existing cluster; empty for one of its own.
    """

    name = "ray"

    def __init__(self, post: Post, log_level: str, inherit: tuple[int, ...], node: Node, address: str = "") -> None:
        from appliance.broker_actors.ray_driver import RaySettings, packed

        self._post = post
        self._pack = packed
        self._nodes: queue.SimpleQueue[list[Node]] = queue.SimpleQueue()
        self._is_up = threading.Event()
        self._closing = False
        # Ray's sessions lie here and are of no use afterwards. Not TMPDIR: that may be long.
        self._folder = Path(tempfile.mkdtemp(prefix=f"appliance-{os.getpid()}-", dir=SHORT_FOLDER))
        self._driver = ChildLine(
            "appliance.broker_actors.ray_driver",
            "ray-driver",
            self._on_message,
            self._on_end,
            inherit=inherit,
        )
        settings = RaySettings(address=address, node=node, folder=self._folder, log_level=log_level)
        self._driver.send(begin=packed(settings))

    def warm(self, name: str, target: str) -> None:
        """An actor has to be made with its settings, so that Ray alone can make it again: nothing to do yet."""

    def start(self, spec: ProcessSpec) -> None:
        self._driver.send(start=self._pack(spec))

    def stop(self, name: str) -> None:
        self._driver.send(stop=name)

    def kill(self, name: str) -> None:
        self._driver.send(kill=name)

    def nodes(self) -> list[Node]:
        """The nodes of an existing cluster that take brokers.

        Raises:
            UserError: Ray does not answer.
        """
        self._driver.send(nodes=True)
        try:
            return self._nodes.get(timeout=NODES_TIMEOUT_S)
        except queue.Empty:
            raise UserError("Ray does not answer", EXIT_CRASHED) from None

    def close(self) -> None:
        self._closing = True
        if self._is_up.is_set():
            self._driver.send(close=True)
            self._driver.join(CLOSE_TIMEOUT_S)
        # Ray's processes are in the driver's group; actors' workers end with their raylet.
        self._driver.kill()
        self._driver.join(KILL_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _on_message(self, message: dict[str, Any]) -> None:
        from appliance.broker_actors.ray_driver import unpacked

        if "event" in message:
            self._post(unpacked(message["event"]))
        elif "nodes" in message:
            self._nodes.put(unpacked(message["nodes"]))
        else:
            self._is_up.set()

    def _on_end(self, status: int) -> None:
        if not self._closing:
            self._post(RuntimeLost(f"the process that drives Ray has ended ({status}); see the log above"))
