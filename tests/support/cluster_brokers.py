"""Brokers of a simulated cluster: the real partitions, replication, gate and handlers, on a process of the world.

The threads of `ControllerChannel` are played: what they send and what they make of the answers is the real code.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.randomness import SeededRandomness
from appliance.broker_actors.broker import Broker
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.controller_caller import says_not_controller
from appliance.broker_actors.controller_channel import TAKE_MAX_MS
from appliance.broker_actors.controller_follower import MetadataFollower
from appliance.broker_actors.controller_heartbeat import LeaseKeeper
from appliance.broker_actors.controller_line import BrokerIdentity, ControllerLine
from appliance.broker_actors.offline_replicas import OfflineReplicas
from appliance.broker_actors.partition_host import PartitionHost
from appliance.broker_actors.replica_manager import ReplicaManager
from appliance.broker_actors.serving import ServingGate
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.controller.image import MetadataImage
from appliance.controller.records import Listener, LogState
from appliance.server.broker_api import broker_handlers
from appliance.wire.api import api_of
from tests.support.cluster_controllers import FIRST_PORT, HOST
from tests.support.cluster_log import MemoryLogs
from tests.support.cluster_wire import Background, Clock, Link, Process, Server

if TYPE_CHECKING:
    from tests.support.cluster_world import World

FIRST_BROKER_PORT = 9_000
CHECKPOINT_MS = 700
ACTED_ON_MS = 40


class BrokerProcess(Process):
    """One life of a broker."""

    def __init__(self, world: World, broker_id: int, clock: Clock, logs: MemoryLogs, log_state: LogState) -> None:
        super().__init__(world, f"b{broker_id}", clock)
        self.broker_id = broker_id
        self.logs = logs
        self.broker = SimulatedBroker(self, log_state)
        self.server = self.broker.simulated_server
        self.broker.start()
        self._checkpoint()

    def _checkpoint(self) -> None:
        self.later(CHECKPOINT_MS, self._checkpoint)
        for hosted in self.broker.partitions:
            hosted.log.stored_high_watermark = hosted.high_watermark  # type: ignore[attr-defined]
        if self.world.random.random() < 0.1:
            self.logs.flush()

    def ended(self) -> None:
        failure = self.broker.failure
        self.world.note(f"{self.name} ends: {failure or 'in order'}")
        if failure is not None:
            self.world.violated(f"{self.name} gives up: {failure}")
        self.world.stopped(self)


class SimulatedBroker(Broker):
    """The order of things is the real one's."""

    def __init__(self, process: BrokerProcess, log_state: LogState) -> None:
        world = process.world
        self.process = process
        self.broker_id = process.broker_id
        self.cluster_id = None  # type: ignore[assignment]
        self.config: BrokerConfig = world.config
        self.clock = process.clock
        self.randomness = SeededRandomness(world.random.getrandbits(32))
        self.image = MetadataImage()
        self.logs: Any = process.logs
        self.failure = None
        self._loop: Any = SimpleNamespace(stop=process.ended)
        self._image_callbacks = {}
        self._changed = set()
        self._taken = None
        self._loaded = self._loading = self._stopping = self._may_be_unfenced = False
        self._is_ready = True
        self.background: Any = Background(process)
        self.remote: Any = None
        self.remote_threads: Any = self.background
        self.partitions = PartitionHost(
            self.broker_id, self.logs, self.config, self.clock, self.background, self._begin_tick
        )
        self.partitions.must_recover = log_state in (LogState.UNCLEAN, LogState.EMPTY)
        self.access_control = None
        self.groups: Any = None
        self.simulated_server = Server(process, broker_handlers(self), self)
        self.server: Any = self.simulated_server
        # Who is let in is decided by real listeners.
        self._connection_settings: Any = SimpleNamespace(config_changed=lambda config: None)
        self.replication = SimulatedReplication(self)
        self.partitions.replication = self.replication
        self._offline_replicas = OfflineReplicas(self)
        port = FIRST_BROKER_PORT + self.broker_id
        identity = BrokerIdentity(
            broker_id=self.broker_id,
            listeners=(Listener("PLAINTEXT", HOST, port),),
            rack=f"rack-{self.broker_id}",
            directory_ids=(process.logs.directory_id,),
            log_state=log_state,
        )
        self.channel = Channel(process, identity, self._image_came, self._failed)
        self.controller: Any = self.channel

    def start(self) -> None:
        self._gate = ServingGate(
            self.controller,
            self.simulated_server,
            self.partitions,
            self.background,
            self.clock,  # type: ignore[arg-type]
        )
        self.server.on_tick(self._gate.check)
        self.server.on_tick(self.partitions.end_of_tick)
        # It has one data directory: no replica moves to another.
        self.partitions.on_opened(self._tell)
        self._offline_replicas.start()
        self.replication.start()
        self.channel.start()


class SimulatedReplication(ReplicaManager):
    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker, None, None, broker.background)  # type: ignore[arg-type]
        self._process = broker.process

    def link_to(self, broker_id: int) -> BrokerLink | None:
        broker = self._image.brokers.get(broker_id)
        if broker is None or self._closed:
            return None
        return Link(self._process, (broker.host, broker.port))  # type: ignore[return-value]


class _Asked(Exception):
    """A step has come as far as its question."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class _Replay:
    """The blocking connection of a thread: what is asked first ends the step, and the answer lets it be done again."""

    is_open = True

    def __init__(self, answer: Any = None) -> None:
        self._answer = answer

    def call(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        answer, self._answer = self._answer, None
        if answer is None:
            raise _Asked(request)
        return answer


class _Closed:
    """`ControllerLine.closed` of a thread that need not wait: how long it would have is noted."""

    def __init__(self) -> None:
        self.waited_ms = 0

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float = 0) -> bool:
        self.waited_ms += int(seconds * 1_000)
        return False

    def take(self) -> int:
        waited, self.waited_ms = self.waited_ms, 0
        return waited


class _Line(ControllerLine):
    def __init__(self, process: BrokerProcess, identity: BrokerIdentity, randomness: Any) -> None:
        addresses = [f"{HOST}:{FIRST_PORT + number}" for number in process.world.controller_ids]
        super().__init__(addresses, identity, process.clock, randomness)
        self.process = process
        self.logs = process.logs
        self.closed: Any = _Closed()
        self._previous_broker_epoch = process.logs.noted_epoch

    def registered(self, broker_epoch: int) -> None:
        self.logs.noted_epoch = broker_epoch
        super().registered(broker_epoch)
        self.process.world.faults.registered(self.process.broker_id)


class Channel:
    """`ControllerChannel`."""

    def __init__(
        self,
        process: BrokerProcess,
        identity: BrokerIdentity,
        on_image: Callable[[MetadataImage, frozenset[uuid.UUID], Callable[[], None]], None],
        on_failure: Callable[[UserError], None],
    ) -> None:
        config = process.world.config
        self._process = process
        self._world = process.world
        self._on_image = on_image
        self._on_failure = on_failure
        self.line = _Line(process, identity, SeededRandomness(self._world.random.getrandbits(32)))
        self._follower = MetadataFollower(self.line, self._image_came, on_failure)
        self._may_stop: Callable[[], None] | None = None
        self._interval_ms = config.get("broker.heartbeat.interval.ms")
        self._lease_ms = config.get("broker.lease.ms")
        self._keeper = LeaseKeeper(
            self.line,
            interval_ms=self._interval_ms,
            loop_stall_max_ms=config.get("broker.loop.stall.max.ms"),
            timeout_ms=self._lease_ms,
            on_registration_lost=self._registration_lost,
            on_may_stop=lambda: self._process.later(0, self._stop_allowed),
        )
        self._keeper._connect = lambda: _Replay()  # type: ignore[method-assign, assignment, return-value]
        self._beats: Link | None = None
        self._feeds: Link | None = None
        self._calls: dict[tuple[str, int], Link] = {}
        self._failures = 0
        self._beat_failures = 0
        self._image_waits: Callable[[], None] | None = None
        self._beaten_at = -1_000_000

    def start(self) -> None:
        self._step(None)
        self._thread(self._interval_ms, self._beat)

    def _thread(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._process.later(delay_ms, action, thread=True)

    # What the broker sees

    @property
    def broker_epoch(self) -> int:
        return self.line.broker_epoch

    def loop_ticked(self) -> None:
        self._keeper.loop_ticked()

    def lease_valid(self, now_ms: int) -> bool:
        return self.line.lease_valid(now_ms)

    def lease_firm(self, now_ms: int) -> bool:
        return self.line.lease_firm(now_ms)

    def shut_down(self, may_stop: Callable[[], None]) -> None:
        self._may_stop = may_stop
        self._keeper.shut_down()

    def _stop_allowed(self) -> None:
        callback, self._may_stop = self._may_stop, None
        if callback is not None:
            callback()

    def call(self, request: Any, done: Callable[[Any], None], *, timeout_ms: int | None = None) -> None:
        deadline_ms = self._process.clock.monotonic_ms() + (timeout_ms or 30_000)
        self._call(request, done, deadline_ms, 0)

    def _call(self, request: Any, done: Callable[[Any], None], deadline_ms: int, failures: int) -> None:
        left_ms = deadline_ms - self._process.clock.monotonic_ms()
        if left_ms <= 0:
            done(CallTimedOut("no active controller in time"))
            return
        address = self.line.address()
        link = Link(self._process, address)

        def again() -> None:
            self.line.try_next(address)
            delay_ms = min(left_ms, self.line.backoff_ms(failures))
            self._process.later(delay_ms, lambda: self._call(request, done, deadline_ms, failures + 1))

        def answered(answer: Any) -> None:
            if (isinstance(answer, ConnectionLost) and str(answer) == "refused") or says_not_controller(answer):
                link.close()
                again()
            else:
                link.close()
                done(answer)

        if self._world.doubles():
            # Another copy of it is on its way, and nobody hears what became of it.
            copy = Link(self._process, address)
            delay_ms = self._world.random.choice((0, 50, 300, 1_000))
            send = lambda: copy.call(request, _newest(request), 5_000, lambda _: copy.close())  # noqa: E731
            self._process.later(delay_ms, send)
            if self._world.random.random() < 0.7:
                self._process.later(delay_ms // 2, lambda: done(ConnectionLost("the answer is lost")))
                return
        link.call(request, _newest(request), left_ms, answered)

    # Registration and metadata

    def _step(self, answer: Any) -> None:
        try:
            self._follower._step(_Replay(answer))  # type: ignore[arg-type]
        except _Asked as asked:
            self._ask_feed(asked.request)
            return
        except UserError as error:
            self._on_failure(error)
            return
        except Exception as error:
            self._feed_failed(error)
            return
        self._failures = 0
        if self._image_waits is None:
            self._thread(self.line.closed.take(), lambda: self._step(None))

    def _ask_feed(self, request: Any) -> None:
        address = self.line.address()
        if self._feeds is None or self._feeds.address != address:
            self._feeds = Link(self._process, address, on_thread=True)
        feeds = self._feeds

        def answered(answer: Any) -> None:
            if feeds is not self._feeds:
                return
            if isinstance(answer, Exception):
                self._feed_failed(answer)
            else:
                self._step(answer)

        feeds.call(request, _newest(request), 5_000, answered)

    def _feed_failed(self, error: Exception) -> None:
        if not isinstance(error, ConnectionLost | CallTimedOut) and type(error).__name__ != "KafkaError":
            self._world.violated(f"{self._process.name} cannot follow the metadata: {error!r}")
        feeds, self._feeds = self._feeds, None
        if feeds is not None:
            feeds.close()
            self.line.try_next(feeds.address)
        self._failures += 1
        self._thread(self.line.backoff_ms(self._failures), lambda: self._step(None))

    def _image_came(self, image: MetadataImage, changed: frozenset[uuid.UUID]) -> None:
        """On the follower's thread, which waits here until the loop has taken it, or for `TAKE_MAX_MS`."""
        state = {"over": False}

        def over() -> None:
            if not state["over"]:
                state["over"] = True
                self._image_waits = None
                self._thread(0, lambda: self._step(None))

        self._image_waits = over
        self._process.later(0, lambda: self._on_image(image, changed, lambda: self._thread(0, over)))
        self._thread(TAKE_MAX_MS, over)

    def applied(self, position: int) -> None:
        self.line.applied(position)

    def _registration_lost(self) -> None:
        if self._feeds is not None:
            self._feeds.lost("registering again")

    # The lease

    def _beat(self) -> None:
        line, keeper = self.line, self._keeper
        sent_ms, broker_epoch, position = line.clock.monotonic_ms(), line.broker_epoch, line.position
        try:
            keeper._beat()
            self._thread(max(ACTED_ON_MS, line.closed.take()), self._beat)
            return
        except _Asked as asked:
            request = asked.request
        address = line.address()
        if self._beats is None or self._beats.address != address:
            if self._beats is not None:
                self._beats.close()
            self._beats = Link(self._process, address, on_thread=True)
        beats = self._beats

        def failed() -> None:
            beats.close()
            if self._beats is beats:
                self._beats = None
            line.try_next(address)
            self._beat_failures += 1
            self._thread(line.backoff_ms(self._beat_failures), self._beat)

        def answered(answer: Any) -> None:
            if isinstance(answer, Exception):
                failed()
                return
            if position >= broker_epoch >> 20:
                keeper._beaten_for = broker_epoch
            try:
                keeper._take(answer, broker_epoch, sent_ms)
            except Exception:
                failed()
                return
            self._beat_failures = 0
            self._wait_for_turn()

        beats.call(request, _newest(request), self._lease_ms, answered)

    def _wait_for_turn(self) -> None:
        line, keeper = self.line, self._keeper
        ready = line.broker_epoch >= 0 and line.position >= line.broker_epoch >> 20
        soon = (keeper._want_shut_down and not keeper._told_may_stop) or (
            ready and keeper._beaten_for != line.broker_epoch
        )
        self._thread(ACTED_ON_MS if soon else self._interval_ms, self._beat)


def _newest(request: Any) -> int:
    api = api_of(type(request).__wire__.api_key or 0)
    assert api is not None
    return api.max_version
