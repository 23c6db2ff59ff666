"""A controller: decides about brokers and topics, and keeps the metadata log in the object store.

`run_controller` is a plain blocking function. Its life: probe the store, open the log, stand by while another
controller is active, claim the next epoch, serve. It ends when it is told to, or when it has been replaced: then with
an error, so that whoever watches it starts it again as a standby.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from appliance.base.clock import Clock, SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.base.ids import is_usable_uuid, uuid_to_text
from appliance.base.object_store import ObjectStore
from appliance.base.processes import ControllerSettings, ProcessHandle
from appliance.base.randomness import Randomness, SystemRandomness, random_uuid
from appliance.broker_actors.controller_handlers import controller_handlers, served_versions
from appliance.broker_actors.controller_probes import connection_is_refused, ping_controller
from appliance.broker_actors.event_loop import new_event_loop
from appliance.broker_actors.metadata_feed import MetadataFeed
from appliance.broker_actors.metadata_store import MetadataStore
from appliance.controller.brokers import fence, repair, unfence
from appliance.controller.commit_queue import Batch, CommitQueue
from appliance.controller.commits import Commit, LogCorrupt
from appliance.controller.decisions import Operation, Rules
from appliance.controller.image import MetadataImage
from appliance.controller.liveness import BrokerLiveness, Fence, LeaseTimers, Unfence
from appliance.controller.metadata_log import MetadataLog, SteppedDown, WrongCluster
from appliance.controller.records import NO_LEADER
from appliance.controller.standby import StandbyWatch
from appliance.server.background import LoopBackground
from appliance.server.connection import Connection
from appliance.server.limits import Limits
from appliance.server.requests import Pending
from appliance.server.server import Server
from appliance.server.timers import LoopTimers
from appliance.tiering.stores import open_store, probe_store
from appliance.wire.messages.internal_metadata import (
    BrokerLeaseRequest,
    BrokerLeaseResponse,
    ControllerStatusBroker,
    ControllerStatusResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

TICK_MS = 50
"""How often leases and the ends of connections are looked at; the coarsest timer that the lease's margin allows for."""
PING_INTERVAL_MS = 250
STORE_THREADS = 8
STORE_QUEUE = 100
PROBE_THREADS = 4
PROBE_QUEUE = 1_000
OWN_OPERATION_TIMEOUT_MS = 1 << 40
"""What the controller decides by itself waits for the store for as long as it takes."""

OperationDone = Callable[[Struct | Exception | None], None]


class Controller:
    """The parts of a controller process. Everything happens on the loop's thread."""

    def __init__(
        self,
        settings: ControllerSettings,
        config: BrokerConfig,
        store: ObjectStore,
        loop: asyncio.AbstractEventLoop,
        handle: ProcessHandle,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.config = config
        self.failure: UserError | None = None
        self.clock: Clock = clock or SystemClock()
        self.randomness: Randomness = randomness or SystemRandomness()
        self.rules = Rules(config, self.randomness)
        self._settings = settings
        self._handle = handle
        self._loop = loop
        self._timers = LoopTimers(loop)
        self._background = LoopBackground(
            loop, threads=PROBE_THREADS, queue_limit=PROBE_QUEUE, timers=self._timers, name="probe"
        )
        self._store_threads = LoopBackground(
            loop, threads=STORE_THREADS, queue_limit=STORE_QUEUE, timers=self._timers, name="store"
        )
        self._store_url = store.url
        self._steps = MetadataStore(
            store, self._store_threads, self.clock, config.get("metadata.store.request.timeout.ms")
        )
        self._log = MetadataLog(settings.controller_id, self.randomness)
        self._queue = CommitQueue()
        self._liveness = BrokerLiveness(LeaseTimers.of(config))
        self._feed = MetadataFeed(self._background, self.clock, settings.controller_id)
        self._heartbeats: dict[int, tuple[Connection, int]] = {}
        """Connection and broker epoch of each broker's last heartbeat."""
        self._active = False
        self._image = MetadataImage()
        self._pump_timer_set = False
        self._proving = False
        self._trimming = False
        self._told_trouble = ""
        self._server: Server = Server(
            loop,
            controller_handlers(),
            served_versions(),
            Limits(max_frame_bytes=config.get("socket.request.max.bytes")),
            self._background,
            context=self,
            clock=self.clock,
        )

    # Beginning

    def start(self) -> None:
        """Listen, then open the log. Raises: UserError when the address cannot be had."""
        port = self._server.listen(self._settings.host, self._settings.port)
        self._log.host, self._log.port = self._settings.host, port
        new_id = random_uuid(self.randomness)
        while not is_usable_uuid(new_id):
            new_id = random_uuid(self.randomness)
        wanted = self.config.properties.get("cluster.id")
        self._steps.run(self._log.open(wanted, uuid_to_text(new_id)), self._opened)

    def _opened(self, result: str | Exception) -> None:
        if isinstance(result, Exception):
            self._failed(result)
            return
        image = self._log.image
        if image.controller_epoch == 0 or image.controller_id == self._settings.controller_id:
            self._claim()
            return
        _log.info("controller %d stands by for controller %d", self._settings.controller_id, image.controller_id)
        self._ping(StandbyWatch(self.config.get("controller.takeover.ms"), self.clock.monotonic_ms()))

    def _ping(self, watch: StandbyWatch) -> None:
        host, port = self._log.image.controller_host, self._log.image.controller_port
        timeout_ms = self.config.get("controller.takeover.ms")

        def done(result: bool | Exception) -> None:
            now_ms = self.clock.monotonic_ms()
            if result is True:
                watch.answered(now_ms)
                self._background.schedule(PING_INTERVAL_MS, lambda: self._ping(watch))
            elif watch.should_claim(now_ms, refused=isinstance(result, ConnectionRefusedError)):
                # Whoever claimed meanwhile is found in the log, and stood by for.
                self._steps.run(self._log.read_round(), lambda outcome: self._reread(outcome, (host, port)))
            else:
                self._background.schedule(PING_INTERVAL_MS, lambda: self._ping(watch))

        self._background.run(lambda: ping_controller(host, port, timeout_ms), done)

    def _reread(self, result: Exception | None, gone: tuple[str, int]) -> None:
        image = self._log.image
        if isinstance(result, Exception):
            self._failed(result)
        elif (image.controller_host, image.controller_port) == gone:
            self._claim()
        else:
            self._opened("")

    def _claim(self) -> None:
        self._steps.run(self._log.claim(self.clock.now_ms()), self._claimed)

    def _claimed(self, result: Commit | Exception) -> None:
        if isinstance(result, Exception):
            self._failed(result)
            return
        now_ms = self.clock.monotonic_ms()
        self._image = self._log.image
        self._active = True
        self._liveness.took_over(self._image, now_ms)
        self._feed.begin(self._log.position)
        _log.info(
            "controller %d is active in controller epoch %d at position %d of cluster %s",
            self._settings.controller_id,
            self._log.epoch,
            self._image.position,
            self._image.cluster_id,
        )
        self._decide(repair)
        self._background.schedule(TICK_MS, self._tick)
        self._background.schedule(self.config.get("controller.proof.interval.ms"), self._prove)
        self._handle.ready(f"{self._log.host}:{self._log.port}")

    # What handlers see

    @property
    def active(self) -> bool:
        return self._active

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._image

    def submit(self, operation: Operation, done: OperationDone, timeout_ms: int) -> None:
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        if not self._queue.submit(operation, done, deadline_ms):
            done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many operations wait for the metadata log"))
            return
        self._pump()

    def heartbeat(self, request: BrokerLeaseRequest, pending: Pending) -> Struct | Pending:
        if not self._active:
            return BrokerLeaseResponse(
                error_code=ErrorCode.NOT_CONTROLLER, controller_epoch=self._log.image.controller_epoch
            )
        answer = self._beat(request)
        if isinstance(answer, BrokerLeaseResponse):
            if not answer.error_code:
                self._heartbeats[request.broker_id] = (pending.connection, request.broker_epoch)
            return answer
        broker = (request.broker_id, request.broker_epoch)
        operation: Operation
        if isinstance(answer, Unfence):
            operation = lambda image: unfence(*broker, image)  # noqa: E731
        else:
            shutting_down = answer.shutting_down
            operation = lambda image: fence([broker], image, shutting_down=shutting_down)  # noqa: E731

        def done(result: Struct | Exception | None) -> None:
            again = self._beat(request)
            if not isinstance(again, BrokerLeaseResponse):
                again = BrokerLeaseResponse(controller_epoch=self._image.controller_epoch)
            pending.answer(again)

        self._heartbeats[request.broker_id] = (pending.connection, request.broker_epoch)
        self.submit(operation, done, OWN_OPERATION_TIMEOUT_MS)
        return pending

    def _beat(self, request: BrokerLeaseRequest) -> BrokerLeaseResponse | Unfence | Fence:
        return self._liveness.heartbeat(request, self._image, self.clock.monotonic_ms(), proven_ms=self._log.proven_ms)

    def fetch_metadata(self, request: MetadataFetchRequest, pending: Pending) -> Struct | Pending:
        if not self._active:
            return MetadataFetchResponse(
                error_code=ErrorCode.NOT_CONTROLLER, controller_epoch=self._log.image.controller_epoch
            )
        return self._feed.fetch(request, pending)

    def status(self) -> ControllerStatusResponse:
        image, now_ms = self._image if self._active else self._log.image, self.clock.monotonic_ms()
        states = [partition for topic in image.topics.values() for partition in topic.partitions]
        leads = [partition.leader for partition in states]
        return ControllerStatusResponse(
            cluster_id=image.cluster_id,
            controller_id=self._settings.controller_id if self._active else image.controller_id,
            controller_epoch=image.controller_epoch,
            active=self._active,
            position=image.position,
            snapshot=self._log.pointer.snapshot if self._log.pointer else -1,
            store_url=self._store_url,
            store_state=self._log.trouble or "ok",
            waiting_operations=len(self._queue),
            topics=len(image.topics),
            partitions=len(states),
            offline_partitions=leads.count(NO_LEADER),
            brokers=[
                ControllerStatusBroker(
                    broker_id=broker_id,
                    broker_epoch=broker.broker_epoch,
                    incarnation_id=broker.incarnation_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.rack,
                    node=broker.node,
                    fenced=broker.fenced,
                    shutting_down=broker.shutting_down,
                    last_heartbeat_age_ms=self._liveness.age_ms(broker_id, now_ms),
                    leaders=leads.count(broker_id),
                )
                for broker_id, broker in sorted(image.brokers.items())
            ],
        )

    # Commits

    def _decide(self, operation: Operation) -> None:
        """Something that nobody asked for."""

        def done(result: Struct | Exception | None) -> None:
            if isinstance(result, Exception):
                _log.error("a decision of the controller failed", exc_info=result)

        self.submit(operation, done, OWN_OPERATION_TIMEOUT_MS)

    def _pump(self) -> None:
        """Begin the next batch as soon as it is allowed."""
        if not self._active or self._pump_timer_set:
            return
        delay_ms = self._queue.delay_ms(self.clock.monotonic_ms())
        if delay_ms is None:
            return
        # Even without delay: what arrives in the same tick shares the commit.
        self._pump_timer_set = True
        self._background.schedule(delay_ms, self._begin_batch)

    def _begin_batch(self) -> None:
        self._pump_timer_set = False
        delay_ms = self._queue.delay_ms(self.clock.monotonic_ms())
        if delay_ms is None or not self._active:
            return
        if delay_ms > 0:
            self._pump()
            return
        self._commit(self._queue.next_batch(self._image), 0)

    def _commit(self, batch: Batch, at: int) -> None:
        """Commit what is left of a batch, one commit after the other; then answer."""
        if at == len(batch.commits):
            for answer in self._queue.settled(self._image):
                if isinstance(answer.result, Exception) and not isinstance(answer.result, KafkaError):
                    _log.error("a decision failed", exc_info=answer.result)
                answer.token(answer.result)
            self._pump()
            return

        def done(result: Commit | Exception) -> None:
            if isinstance(result, Exception):
                self._failed(result)
                return
            self._image = self._log.image
            self._liveness.image_changed(self._image, self.clock.monotonic_ms())
            self._feed.committed(result, self._log.position)
            self._trim()
            self._commit(batch, at + 1)

        self._steps.run(self._log.commit(batch.commits[at], self.clock.now_ms()), done)

    def _trim(self) -> None:
        if self._trimming or self._log.commits_since_snapshot() < self.config.get("metadata.snapshot.interval.commits"):
            return
        self._trimming = True

        def done(result: Exception | None) -> None:
            self._trimming = False
            if isinstance(result, Exception):
                self._failed(result)

        self._steps.run(self._log.snapshot_and_trim(self.clock.now_ms()), done)

    def _prove(self) -> None:
        self._background.schedule(self.config.get("controller.proof.interval.ms"), self._prove)
        if self._proving or self._queue.busy:
            return
        self._proving = True

        def done(result: Exception | None) -> None:
            self._proving = False
            if isinstance(result, Exception):
                self._failed(result)

        self._steps.run(self._log.prove(), done)

    # Time

    def _tick(self) -> None:
        self._background.schedule(TICK_MS, self._tick)
        now_ms = self.clock.monotonic_ms()
        late = self._liveness.late(now_ms)
        if late:
            _log.warning("fencing silent brokers %s", [broker_id for broker_id, _ in late])
            self._decide(lambda image: fence(late, image))
        for done in self._queue.expired(now_ms):
            reason = f": the object store says {self._log.trouble}" if self._log.trouble else ""
            done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata log is busy{reason}"))
        self._watch_connections()
        self._tell_trouble()

    def _watch_connections(self) -> None:
        """Rule B6: the end of a heartbeat connection, then a refused connect, shows that the process is gone."""
        for broker_id, (connection, broker_epoch) in list(self._heartbeats.items()):
            if not connection.closed:
                continue
            del self._heartbeats[broker_id]
            broker = self._image.brokers.get(broker_id)
            if broker is None or broker.broker_epoch != broker_epoch or broker.dead:
                continue
            host, port, timeout_ms = broker.host, broker.port, self.config.get("controller.reconnect.timeout.ms")
            self._background.run(
                lambda host=host, port=port, timeout_ms=timeout_ms: connection_is_refused(host, port, timeout_ms),  # type: ignore[misc]
                lambda result, dead=(broker_id, broker_epoch): self._probed(dead, result),  # type: ignore[misc]
            )

    def _probed(self, broker: tuple[int, int], refused: bool | Exception) -> None:
        if refused is not True:
            return
        dead = self._liveness.died(*broker)
        if dead:
            _log.warning("broker %d is gone: fencing it", broker[0])
            self._decide(lambda image: fence(dead, image, dead=True))

    def _tell_trouble(self) -> None:
        trouble = self._log.trouble
        if bool(trouble) != bool(self._told_trouble):
            if trouble:
                _log.warning("object store %s gives no answer, nothing is decided: %s", self._store_url, trouble)
            else:
                _log.info("object store %s answers again", self._store_url)
            self._told_trouble = trouble

    # The end

    def _failed(self, error: Exception) -> None:
        """Nothing is answered any more; the process ends with an error."""
        if self.failure is not None:
            return
        self._active = False
        self._steps.close()
        name = f"controller {self._settings.controller_id}"
        match error:
            case SteppedDown():
                self.failure = UserError(f"{name} {error}", exit_code=1)
            case LogCorrupt():
                self.failure = UserError(f"{name} cannot go on, the metadata log is damaged: {error}", exit_code=1)
            case WrongCluster():
                self.failure = UserError(str(error))
            case _:
                _log.error("%s failed", name, exc_info=error)
                self.failure = UserError(f"{name} failed: {type(error).__name__}: {error}", exit_code=1)
        self.stop()

    def stop(self) -> None:
        """End the loop. Nothing has to be saved: what was acknowledged stands in the store."""
        self._loop.stop()

    def close(self) -> None:
        """After the loop has ended: connections and threads."""
        self._active = False
        self._steps.close()
        self._server.close()
        self._timers.close()
        self._background.close()
        self._store_threads.close()


def run_controller(settings: ControllerSettings, handle: ProcessHandle) -> None:
    """Serve until `handle.stopping` is set. Blocks.

    Raises:
        UserError: port not usable (exit code 3), store not reachable (4), replaced by another controller or a damaged
            log (1).
    """
    config = BrokerConfig(settings.properties)
    store = open_store(settings.object_store)
    probe_store(store)
    loop = new_event_loop()
    controller = Controller(settings, config, store, loop, handle)

    def stop_when_told() -> None:
        handle.stopping.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(controller.stop)

    try:
        controller.start()
        threading.Thread(target=stop_when_told, name="stop", daemon=True).start()
        loop.run_forever()
    finally:
        controller.close()
        loop.close()
    if controller.failure is not None:
        raise controller.failure
