"""Controllers of a simulated cluster: the real `Controller`, on a process of the world."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from appliance.base.processes import ControllerSettings, ProcessHandle
from appliance.base.randomness import SeededRandomness
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.commit_pump import CommitPump
from appliance.broker_actors.controller import Controller
from appliance.broker_actors.controller_handlers import controller_handlers
from appliance.broker_actors.metadata_feed import MetadataFeed
from appliance.broker_actors.metadata_store import MetadataStore
from appliance.broker_actors.takeover import Takeover
from appliance.controller.commits import Commit
from appliance.controller.metadata_log import MetadataLog
from tests.support.cluster_wire import Background, Clock, Link, Process, Server, StoreBackground

if TYPE_CHECKING:
    from tests.support.cluster_world import World

HOST = "127.0.0.1"
FIRST_PORT = 100


class ControllerProcess(Process):
    """One life of a controller; when it ends by itself, its supervisor starts the next one."""

    def __init__(self, world: World, controller_id: int, clock: Clock) -> None:
        super().__init__(world, f"c{controller_id}", clock)
        self.controller_id = controller_id
        self.controller = SimulatedController(self)
        self.server = self.controller.simulated_server
        self.controller.start()

    def ended(self) -> None:
        failure = self.controller.failure
        self.world.note(f"{self.name} ends: {failure}")
        if failure is not None and "damaged" in str(failure):
            self.world.violated(f"1: {failure}")
        self.die()
        self.world.restart_controller(self.controller_id, self.world.random.randrange(20, 800))


def _never(*_: Any) -> Any:
    """Of a loop that does not run: what would be called is not."""
    return SimpleNamespace(cancel=lambda: None)


def _zero() -> float:
    return 0.0


class SimulatedController(Controller):
    """All is the real one's but for what it stands on."""

    def __init__(self, process: ControllerProcess) -> None:
        world = process.world
        config = world.config
        settings = ControllerSettings(process.controller_id, HOST, FIRST_PORT + process.controller_id, "memory:")
        background = Background(process)
        self._process = process
        randomness = SeededRandomness(world.random.getrandbits(32))
        loop: Any = SimpleNamespace(stop=process.ended, call_later=_never, call_at=_never, call_soon=_never, time=_zero)
        super().__init__(
            settings,
            config,
            world.store,  # type: ignore[arg-type]
            loop,
            ProcessHandle(),
            clock=process.clock,
            randomness=randomness,
        )
        self._background: Any = background
        timeout_ms = config.get("metadata.store.request.timeout.ms")
        self._steps = MetadataStore(world.store, StoreBackground(process), self.clock, timeout_ms)  # type: ignore[arg-type]
        self._pump = CommitPump(
            self._log,
            self._steps,
            background,
            self.clock,
            config,
            on_commit=self._committed,
            on_failure=self._failed,
        )
        takeover_ms = config.get("controller.takeover.ms")
        self._takeover = Takeover(self._log, self._steps, background, self.clock, takeover_ms, self._claimed)
        self._feed = MetadataFeed(background, self.clock, process.controller_id)
        self.simulated_server = Server(process, controller_handlers(), self)
        self._server: Any = self.simulated_server

    def link_to(self, address: tuple[str, int]) -> BrokerLink:
        return Link(self._process, address)  # type: ignore[return-value]

    @property
    def log(self) -> MetadataLog:
        return self._log

    def _claimed(self, error: Exception | None) -> None:
        if error is None:
            self._process.world.note(f"{self._process.name} claims epoch {self._log.epoch} at {self.image.position}")
            self._process.world.settled(self._log, None)
        super()._claimed(error)

    def _committed(self, commit: Commit) -> None:
        self._process.world.settled(self._log, commit)
        super()._committed(commit)
