"""Controllers as processes that can be killed, and brokers that are nothing but a line to them."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from appliance.base.clock import SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.processes import ControllerSettings, ProcessHandle
from appliance.broker_actors.controller import run_controller
from appliance.broker_actors.controller_channel import BrokerIdentity, ControllerChannel
from appliance.client.connection import Connection
from appliance.controller.image import MetadataImage
from appliance.controller.records import Listener
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from appliance.wire.messages.internal_metadata import ControllerStatusRequest, ControllerStatusResponse
from appliance.wire.schema import Request, Struct
from tests.support.ports import free_port

Response = TypeVar("Response", bound=Struct)

_PROGRAM = """
import json, logging, sys, threading
from appliance.base.errors import UserError
from appliance.base.processes import ControllerSettings, ProcessHandle
from appliance.broker_actors.controller import run_controller
logging.basicConfig(level=logging.INFO)
handle = ProcessHandle(lambda address: print(address, flush=True))
def end_with_parent():
    sys.stdin.read()
    handle.stopping.set()
threading.Thread(target=end_with_parent, daemon=True).start()
try:
    run_controller(ControllerSettings(**json.loads(sys.argv[1])), handle)
except UserError as error:
    print(f"failed: {error}", flush=True)
    sys.exit(error.exit_code)
"""


class _Address:
    """How a controller is asked."""

    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status(self) -> ControllerStatusResponse:
        return self.call(ControllerStatusRequest())

    def call(self, request: Request[Response], timeout_ms: int = 10_000) -> Response:
        with Connection("127.0.0.1", self.port, timeout_ms=timeout_ms) as connection:
            return connection.call(request)

    def answers(self) -> bool:
        """Whether it listens and has read the log."""
        try:
            return self.status().controller_epoch > 0
        except OSError:
            return False


class ControllerThread(_Address):
    """`run_controller` on a thread: quick to start, ends in order only."""

    def __init__(
        self, object_store: str, *, controller_id: int = 1, port: int | None = None, **properties: str
    ) -> None:
        """Keys of properties are given with underscores for dots."""
        self.port = port or free_port()
        self.error: BaseException | None = None
        self._changed = threading.Event()
        self._handle = ProcessHandle(lambda address: self._changed.set())
        self._settings = ControllerSettings(
            controller_id,
            "127.0.0.1",
            self.port,
            object_store,
            {key.replace("_", "."): value for key, value in properties.items()},
        )
        self._thread = threading.Thread(target=self._run, name=f"controller-{controller_id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            run_controller(self._settings, self._handle)
        except BaseException as error:
            self.error = error
        finally:
            self._changed.set()

    def wait_until_active(self) -> None:
        assert self._changed.wait(20), "the controller is not active"
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self._handle.stopping.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


class ControllerProcess(_Address):
    """`run_controller` in a process of its own, which can be killed and paused."""

    def __init__(
        self,
        object_store: str,
        *,
        controller_id: int = 1,
        port: int | None = None,
        environment: dict[str, str] | None = None,
        **properties: str,
    ) -> None:
        """Keys of properties are given with underscores for dots."""
        self.controller_id = controller_id
        self.port = port or free_port()
        settings = {
            "controller_id": controller_id,
            "host": "127.0.0.1",
            "port": self.port,
            "object_store": object_store,
            "properties": {key.replace("_", "."): value for key, value in properties.items()},
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def line(self, timeout_s: float = 20) -> str:
        """The next line it prints: its address when it is active, or why it failed."""
        output = self._process.stdout
        assert output is not None
        assert select.select([output], [], [], timeout_s)[0], f"controller {self.controller_id} says nothing"
        return output.readline().strip()

    def wait_until_active(self, timeout_s: float = 20) -> None:
        assert self.line(timeout_s) == self.address

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def exit_code(self, timeout_s: float = 20) -> int:
        return self._process.wait(timeout_s)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.kill()
        self._process.wait(10)


class LineOfABroker:
    """A broker that holds a listener and a `ControllerChannel`, and nothing else. Its loop is a thread."""

    def __init__(
        self,
        broker_id: int,
        controllers: list[str],
        data_dir: Path,
        *,
        rack: str | None = None,
        applies: bool = True,
        **properties: str,
    ) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.broker_id = broker_id
        self.image = MetadataImage()
        self.images: list[MetadataImage] = []
        self.failure: UserError | None = None
        self.may_stop = threading.Event()
        self.stalled = False
        """While set, the loop does not tick."""
        self.applies = applies
        """While not, images come and are never in force."""
        self._clock = SystemClock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._posted: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        config = BrokerConfig({key.replace("_", "."): value for key, value in properties.items()})
        listener = Listener("PLAINTEXT", "127.0.0.1", self._listener.getsockname()[1])
        self.channel = ControllerChannel(
            controllers,
            BrokerIdentity(broker_id, (listener,), rack=rack, data_dir=data_dir),
            self._posted.put,
            on_image=self._image_came,
            on_failure=self._failed,
            config=config,
        )
        self._loop = threading.Thread(target=self._run, name=f"broker-{broker_id}", daemon=True)
        self._loop.start()
        self.channel.start()

    @property
    def epoch(self) -> int:
        return self.channel.broker_epoch

    def has_lease(self) -> bool:
        return self.channel.lease_valid(self._clock.monotonic_ms())

    def is_unfenced(self) -> bool:
        """Whether it may serve: a lease, and an image that says so of this very process."""
        broker = self.image.brokers.get(self.broker_id)
        return self.has_lease() and broker is not None and not broker.fenced and broker.broker_epoch == self.epoch

    def leads(self, topic: str) -> list[int]:
        """Leader epochs of the partitions of a topic that it leads."""
        state = self.image.topics.get(topic)
        return [p.leader_epoch for p in state.partitions if p.leader == self.broker_id] if state else []

    def call(self, request: Request[Any], timeout_s: float = 20) -> Any:
        """Forward a request to the controller; raises what came in place of a response."""
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._posted.put(lambda: self.channel.call(request, results.put))
        result = results.get(timeout=timeout_s)
        if isinstance(result, Exception):
            raise result
        return result

    def create_topic(self, name: str, partitions: int = 1) -> int:
        """Returns the error code."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)
        code: int = self.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code
        return code

    def shut_down(self) -> None:
        self._posted.put(lambda: self.channel.shut_down(self.may_stop.set))

    def die(self) -> None:
        """As a killed process: all sockets end, nothing is said."""
        self._listener.close()
        self.channel.close()
        self._posted.put(None)

    def _image_came(self, image: MetadataImage, changed: object, taken: Callable[[], None]) -> None:
        self.image = image
        self.images.append(image)
        if self.applies:
            self.channel.applied(image.position)
        taken()

    def _failed(self, error: UserError) -> None:
        self.failure = error

    def _run(self) -> None:
        while True:
            if not self.stalled:
                self.channel.loop_ticked()
            try:
                callback = self._posted.get(timeout=0.02)
            except queue.Empty:
                continue
            if callback is None:
                return
            callback()


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 15) -> float:
    """Wait until it holds; returns how long that took, in seconds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < timeout_s, f"{what}: not within {timeout_s} s"
        time.sleep(0.005)
    return time.monotonic() - begun
