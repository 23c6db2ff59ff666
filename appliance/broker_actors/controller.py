"""A controller: decides about brokers and topics, and keeps the metadata log in the object store.

`run_controller` is a plain blocking function. Its life: probe the store, open the log, stand by while another
controller is active, claim the next epoch, serve. It ends when it is told to, or when it has been replaced: then with
an error, so that whoever watches it starts it again as a standby.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import assert_never

from appliance.base.clock import Clock, SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, UserError
from appliance.base.ids import is_usable_uuid, uuid_to_text
from appliance.base.object_store import ObjectStore
from appliance.base.processes import ControllerSettings, ProcessHandle
from appliance.base.randomness import Randomness, SystemRandomness, random_uuid
from appliance.broker_actors.access_settings import access_control_of
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.broker_listeners import controller_listener
from appliance.broker_actors.broker_watch import BrokerWatch
from appliance.broker_actors.commit_pump import OWN_OPERATION_TIMEOUT_MS, CommitPump, Done
from appliance.broker_actors.controller_handlers import controller_handlers, served_versions
from appliance.broker_actors.event_loop import new_event_loop
from appliance.broker_actors.metadata_feed import MetadataFeed
from appliance.broker_actors.metadata_store import MetadataStore
from appliance.broker_actors.takeover import Takeover
from appliance.broker_actors.topic_cleaner import TopicCleaner
from appliance.broker_actors.unclean_elections import UncleanElections
from appliance.controller.brokers import fence, repair, shut_down, unfence
from appliance.controller.commits import Commit, LogCorrupt
from appliance.controller.decisions import LogEnd, Operation, Rules
from appliance.controller.elections import is_unclean
from appliance.controller.health import PartitionHealth, partition_health
from appliance.controller.image import MetadataImage
from appliance.controller.leader_elections import rebalance_leaders
from appliance.controller.liveness import BrokerLiveness, Fence, LeaseTimers, ShutDown, Unfence
from appliance.controller.log_ends import Part
from appliance.controller.metadata_log import MetadataLog, SteppedDown, WrongCluster
from appliance.controller.records import NO_LEADER, PartitionChanged
from appliance.server.authorization.table import FREE, guarded
from appliance.server.background import LoopBackground
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
    RegisterBrokerRequest,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

TICK_MS = 50
"""How often leases and the ends of connections are looked at; the coarsest timer that the lease's margin allows for."""
STORE_THREADS = 8
STORE_QUEUE = 100
PROBE_THREADS = 4
PROBE_QUEUE = 1_000
CONNECT_TIMEOUT_MS = 1_000
"""To a broker that is asked something."""


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
        self._liveness = BrokerLiveness(LeaseTimers.of(config))
        log_ends: dict[tuple[uuid.UUID, int, int], LogEnd] = {}
        self.rules = Rules(config, self.randomness, self._liveness.positions, log_ends)
        self._unclean = UncleanElections(self, log_ends)
        self._settings = settings
        self._handle = handle
        self._loop = loop
        self._timers = LoopTimers(loop)
        self._background = LoopBackground(
            loop, threads=PROBE_THREADS, queue_limit=PROBE_QUEUE, timers=self._timers, name="probe"
        )
        self._listener, self.security = controller_listener(config, self._background, self)
        self._store_threads = LoopBackground(
            loop, threads=STORE_THREADS, queue_limit=STORE_QUEUE, timers=self._timers, name="store"
        )
        self._store_url = store.url
        self._steps = MetadataStore(
            store, self._store_threads, self.clock, config.get("metadata.store.request.timeout.ms")
        )
        self._log = MetadataLog(settings.controller_id, self.randomness)
        self._pump = CommitPump(
            self._log,
            self._steps,
            self._background,
            self.clock,
            config,
            on_commit=self._committed,
            on_failure=self._failed,
        )
        self._takeover = Takeover(
            self._log,
            self._steps,
            self._background,
            self.clock,
            config.get("controller.takeover.ms"),
            self._claimed,
            self.security,
        )
        self._feed = MetadataFeed(self._background, self.clock, settings.controller_id)
        self._cleaner_threads = LoopBackground(
            loop, threads=1, queue_limit=STORE_QUEUE, timers=self._timers, name="topic-cleaner"
        )
        self._cleaner = TopicCleaner(
            store,
            self._cleaner_threads,
            self.clock,
            config.get("tiering.delete.delay.ms"),
            lambda: self.image,
            self.decide,
        )
        self._unfencing: dict[tuple[int, int], list[tuple[BrokerLeaseRequest, Pending]]] = {}
        """Heartbeats of brokers (id, epoch) that are being unfenced: the last one, and those that were given up."""
        self._watch = BrokerWatch(self, self._liveness)
        self._health: tuple[MetadataImage, PartitionHealth] | None = None
        self._unclean_elections = 0
        self._before = MetadataImage()
        """The image before the last commit."""
        self._active = False
        self._told_trouble = ""
        handlers = controller_handlers()
        self._access_control = access_control_of(config, self.clock)
        if self._access_control is not None:
            # A controller that is not active does not follow the lists; it answers nothing but that.
            handlers = guarded(handlers, self._access_control, FREE, in_force=lambda: self._active)
        self._server: Server = Server(
            loop,
            handlers,
            served_versions(),
            Limits(max_frame_bytes=config.get("socket.request.max.bytes")),
            self._background,
            context=self,
            clock=self.clock,
        )

    # Beginning

    def start(self) -> None:
        """Listen, then open the log. Raises: UserError when the address cannot be had."""
        port = self._server.listen(self._settings.host, self._settings.port, self._listener)
        self._log.host, self._log.port = self._settings.host, port
        new_id = random_uuid(self.randomness)
        while not is_usable_uuid(new_id):
            new_id = random_uuid(self.randomness)
        self._takeover.begin(self.config.get("cluster.id"), uuid_to_text(new_id))

    def _claimed(self, error: Exception | None) -> None:
        if error is not None:
            self._failed(error)
            return
        self._active = True
        self._take_acls()
        self._liveness.took_over(self.image, self.clock.monotonic_ms())
        self._feed.begin(self._log.position)
        self._before = self.image
        _log.info(
            "controller %d is active in controller epoch %d at position %d of cluster %s",
            self._settings.controller_id,
            self._log.epoch,
            self.image.position,
            self.image.cluster_id,
        )
        self._pump.begin()
        self._unclean.took_over()
        self.decide(lambda image: repair(image, self.rules))
        self._cleaner.start()
        self._background.schedule(TICK_MS, self._tick)
        interval_ms = self.config.get("leader.imbalance.check.interval.seconds") * 1_000
        self._background.schedule(interval_ms, self._send_leaders_home)
        self._handle.ready(f"{self._log.host}:{self._log.port}")

    # What handlers see

    @property
    def active(self) -> bool:
        return self._active

    @property
    def image(self) -> MetadataImage:
        """All that is committed."""
        return self._log.image

    def submit(self, operation: Operation, done: Done, timeout_ms: int) -> None:
        self._pump.submit(operation, done, timeout_ms)

    @property
    def background(self) -> LoopBackground:
        return self._background

    def link_to(self, address: tuple[str, int]) -> BrokerLink:
        """A connection to a broker, for who asks it something."""
        client_id = f"controller-{self._settings.controller_id}"
        return BrokerLink(self._loop, self._background, address, client_id, CONNECT_TIMEOUT_MS, self.security)

    def when_asked(self, parts: Iterable[Part], then: Callable[[], None]) -> None:
        """Call `then` when it is known how long the logs of partitions are that nobody leads."""
        self._unclean.when_asked(parts, then)

    def when_spread(self, done: Callable[[], None]) -> None:
        self._feed.when_spread([broker.broker_id for broker in self.image.live_brokers()], done)

    def heartbeat(self, request: BrokerLeaseRequest, pending: Pending) -> Struct | Pending:
        if not self._active:
            return BrokerLeaseResponse(
                error_code=ErrorCode.NOT_CONTROLLER, controller_epoch=self.image.controller_epoch
            )
        answer = self._beat(request)
        if isinstance(answer, BrokerLeaseResponse):
            if not answer.error_code:
                self._watch.heard(request.broker_id, request.broker_epoch, pending.connection)
            return answer
        self._watch.heard(request.broker_id, request.broker_epoch, pending.connection)
        if isinstance(answer, Unfence):
            self._unfence(request, pending)
        else:
            self._commit_then_answer(request, answer, pending)
        return pending

    def _unfence(self, request: BrokerLeaseRequest, pending: Pending) -> None:
        """Once for each incarnation: with thousands of partitions it outlasts a heartbeat, and the next asks again."""
        broker = (request.broker_id, request.broker_epoch)
        waiting = self._unfencing.get(broker)
        if waiting is not None:
            waiting.append((request, pending))
            return
        self._unfencing[broker] = [(request, pending)]

        def done(result: Struct | Exception | None) -> None:
            for each, waits in self._unfencing.pop(broker):
                answer = self._beat(each)
                if not isinstance(answer, BrokerLeaseResponse):
                    answer = BrokerLeaseResponse(controller_epoch=self.image.controller_epoch)
                waits.answer(answer)

        self.submit(lambda image: unfence(*broker, image, self.rules), done, OWN_OPERATION_TIMEOUT_MS)

    def _commit_then_answer(self, request: BrokerLeaseRequest, wish: Fence | ShutDown, pending: Pending) -> None:
        broker_id, epoch, rules = request.broker_id, request.broker_epoch, self.rules
        operation: Operation
        match wish:
            case Fence():
                operation = lambda image: fence([(broker_id, epoch)], image, rules)  # noqa: E731
            case ShutDown():
                operation = lambda image: shut_down(broker_id, epoch, image, rules)  # noqa: E731
            case _:
                assert_never(wish)

        def done(result: Struct | Exception | None) -> None:
            again = self._beat(request)
            if isinstance(again, ShutDown) and not isinstance(result, Exception):
                # Nothing is left to wait for.
                self._commit_then_answer(request, again, pending)
                return
            if not isinstance(again, BrokerLeaseResponse):
                again = BrokerLeaseResponse(controller_epoch=self.image.controller_epoch)
            pending.answer(again)

        self.submit(operation, done, OWN_OPERATION_TIMEOUT_MS)

    def _beat(self, request: BrokerLeaseRequest) -> BrokerLeaseResponse | Unfence | Fence | ShutDown:
        return self._liveness.heartbeat(request, self.image, self.clock.monotonic_ms(), proven_ms=self._log.proven_ms)

    def fetch_metadata(self, request: MetadataFetchRequest, pending: Pending) -> Struct | Pending:
        if not self._active:
            return MetadataFetchResponse(
                error_code=ErrorCode.NOT_CONTROLLER, controller_epoch=self.image.controller_epoch
            )
        return self._feed.fetch(request, pending)

    def status(self) -> ControllerStatusResponse:
        image, now_ms = self.image, self.clock.monotonic_ms()
        if self._health is None or self._health[0] is not image:
            self._health = (image, partition_health(image, self.rules))
        health = self._health[1]
        leads = Counter(partition.leader for topic in image.topics.values() for partition in topic.partitions)
        return ControllerStatusResponse(
            cluster_id=image.cluster_id,
            controller_id=self._settings.controller_id if self._active else image.controller_id,
            controller_epoch=image.controller_epoch,
            active=self._active,
            position=image.position,
            snapshot=self._log.pointer.snapshot if self._log.pointer else -1,
            store_url=self._store_url,
            store_state=self._log.trouble or "ok",
            waiting_operations=len(self._pump),
            topics=len(image.topics),
            partitions=health.partitions,
            offline_partitions=health.offline,
            under_replicated_partitions=health.under_replicated,
            under_min_isr_partitions=health.under_min_isr,
            reassigning_partitions=health.reassigning,
            data_lost_partitions=health.data_lost,
            preferred_away_partitions=health.preferred_away,
            unclean_elections=self._unclean_elections,
            deleted_topics=len(image.deleted_topics),
            deleted_objects=self._cleaner.removed,
            deleting=self._cleaner.waits_for(),
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
                    leaders=leads[broker_id],
                )
                for broker_id, broker in sorted(image.brokers.items())
            ],
        )

    # Commits

    def decide(self, operation: Operation) -> None:
        """Something that nobody asked for."""
        self._pump.submit(operation, lambda result: None, OWN_OPERATION_TIMEOUT_MS)

    def _take_acls(self) -> None:
        if self._access_control is not None:
            self._access_control.authorizer.update(self.image.acls)

    def _committed(self, commit: Commit) -> None:
        self._take_acls()
        self._count_unclean(commit)
        self._liveness.committed(commit.number, commit.records, self.clock.monotonic_ms())
        self._liveness.image_changed(self.image, self.clock.monotonic_ms())
        self._feed.committed(commit, self._log.position)
        self._unclean.committed(commit)

    def _count_unclean(self, commit: Commit) -> None:
        before, self._before = self._before, self.image
        for record in commit.records:
            if not isinstance(record, PartitionChanged) or record.state.leader == NO_LEADER:
                continue
            earlier = before.partition_by_id(record.topic_id, record.state.partition)
            if earlier is not None and is_unclean(earlier, record.state):
                self._unclean_elections += 1
                name = before.topics_by_id[record.topic_id].name
                _log.error(
                    "unclean election: broker %d leads %s-%d, acknowledged records may be lost",
                    record.state.leader,
                    name,
                    record.state.partition,
                )

    # Time

    def _send_leaders_home(self) -> None:
        interval_ms = self.config.get("leader.imbalance.check.interval.seconds") * 1_000
        self._background.schedule(interval_ms, self._send_leaders_home)
        self.decide(lambda image: rebalance_leaders(image, self.rules))

    def _tick(self) -> None:
        self._background.schedule(TICK_MS, self._tick)
        now_ms = self.clock.monotonic_ms()
        late = self._liveness.late(now_ms)
        if late:
            _log.warning("fencing silent brokers %s", [broker_id for broker_id, _ in late])
            self.decide(lambda image: fence(late, image, self.rules))
        self._pump.expire()
        self._watch.tick(now_ms)
        self._tell_trouble()

    def registering(self, request: RegisterBrokerRequest) -> None:
        self._watch.registering(request)

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
        self._cleaner.close()
        self._steps.close()
        self._server.close()
        self._timers.close()
        self._background.close()
        self._store_threads.close()
        self._cleaner_threads.close()


def run_controller(settings: ControllerSettings, handle: ProcessHandle) -> None:
    """Serve until `handle.stopping` is set. Blocks.

    Raises:
        UserError: port not usable (exit code 3), store not reachable (4), replaced by another controller or a damaged
            log (1).
    """
    config = BrokerConfig(settings.properties)
    store = open_store(settings.object_store, config)
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
