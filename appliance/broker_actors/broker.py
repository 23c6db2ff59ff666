"""A broker: one event loop with everything that hangs on it, from the listener to the logs."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from appliance.base.clock import Clock, SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, UserError
from appliance.base.processes import BrokerSettings, ProcessHandle
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.broker_actors.access_settings import access_control_of, warn_of_locked_doors
from appliance.broker_actors.broker_listeners import BrokerListeners
from appliance.broker_actors.broker_metrics import LoopLag, numbers_of
from appliance.broker_actors.connection_settings import ConnectionSettings
from appliance.broker_actors.controller_channel import BrokerIdentity, ControllerChannel
from appliance.broker_actors.group_backup import GroupBackup
from appliance.broker_actors.group_host import GroupCoordinatorHost
from appliance.broker_actors.internal_topics import InternalTopics
from appliance.broker_actors.log_care import LogCare
from appliance.broker_actors.log_cleaner import LogCleaner
from appliance.broker_actors.log_cleaner_worker import ProcessWorker
from appliance.broker_actors.log_repair import LogRepair
from appliance.broker_actors.offline_replicas import OfflineReplicas
from appliance.broker_actors.partition_host import PartitionHost
from appliance.broker_actors.replica_manager import ReplicaManager
from appliance.broker_actors.replica_moves import ReplicaMoves
from appliance.broker_actors.serving import ServingGate
from appliance.broker_actors.share_host import ShareHost
from appliance.broker_actors.telemetry_settings import client_telemetry
from appliance.broker_actors.transaction_host import TransactionCoordinatorHost
from appliance.controller.image import MetadataImage
from appliance.controller.records import LogState
from appliance.log.directory_identity import Shutdown
from appliance.log.log_manager import LogManager
from appliance.server.authorization.table import RULES, guarded
from appliance.server.background import LoopBackground
from appliance.server.broker_api import broker_handlers
from appliance.server.conversions import Conversions
from appliance.server.handlers.api_versions import served_versions
from appliance.server.limits import Limits
from appliance.server.quotas import ClientQuotas
from appliance.server.server import Server
from appliance.server.timers import LoopTimers
from appliance.tiering.body import BodyStore
from appliance.tiering.fetcher import RemoteLogReader
from appliance.tiering.manager import TieringManager

if TYPE_CHECKING:
    from appliance.metrics.exporter import Exporter

_log = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_MS = 3_000
"""How long the controller may take to let this broker go, and replicas to catch up that are to take over."""
REQUEST_THREADS = 4
"""Threads for requests to the object store other than uploads."""
TIER_CACHE = "tier-cache"
"""Folder in the data directory for what was read from the object store."""
LAST_ANSWERS_MS = 50
"""Between the end of service and the end of connections: time for answers that say so."""
GC_THRESHOLD = (20_000, 20, 50)
"""The hot path makes no cycles: look for garbage seldom."""
SWITCH_INTERVAL_S = 0.000_5
"""So long a thread may keep the interpreter while another wants it; Python's own default is ten times as much."""

_LOG_STATES = {
    Shutdown.CLEAN: LogState.CLEAN,
    Shutdown.SAME_BOOT: LogState.SAME_BOOT,
    Shutdown.UNCLEAN: LogState.UNCLEAN,
    Shutdown.EMPTY: LogState.EMPTY,
}


class Broker:
    """The parts of a broker, and the order in which they begin and end. Everything happens on the loop's thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        logs: LogManager,
        store: BodyStore,
        handle: ProcessHandle,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.broker_id = settings.broker_id
        self.cluster_id = logs.cluster_id
        self.data_dir = settings.data_dir
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.randomness: Randomness = randomness or SystemRandomness()
        self.image = MetadataImage()
        self.logs = logs
        self.remote = RemoteLogReader(store, self.clock, config, settings.data_dir / TIER_CACHE)
        self.failure: UserError | None = None
        self._settings = settings
        self._handle = handle
        self._loop = loop
        self._image_callbacks: dict[object, Callable[[MetadataImage], None]] = {}
        self._changed: set[uuid.UUID] = set()
        self._taken: Callable[[], None] | None = None
        """Tells that the newest image is in force, once the logs that it wants are open."""
        self._loaded = False
        self._loading = False
        self._may_be_unfenced = False
        """Whether the logs are loaded, and what was lost has left its ISRs: nobody elects this broker for that."""
        self._is_ready = False
        self._stopping = False
        self.timers = LoopTimers(loop)
        queue_limit = config.get("background.queue.max")
        self.background = LoopBackground(
            loop, threads=config.get("background.threads"), queue_limit=queue_limit, timers=self.timers
        )
        self.partitions = PartitionHost(self.broker_id, logs, config, self.clock, self.background, self._begin_tick)
        self.partitions.must_recover = logs.last_shutdown in (Shutdown.UNCLEAN, Shutdown.EMPTY)
        handlers = broker_handlers(self)
        self.access_control = access_control_of(config, self.clock)
        if self.access_control is not None:
            handlers = guarded(handlers, self.access_control, RULES)
        self.server: Server = Server(
            loop,
            handlers,
            served_versions(handlers),
            limits_of(config),
            self.background,
            context=self,
            clock=self.clock,
        )
        self.server.access_control = self.access_control
        self.quotas = ClientQuotas(config, self.clock, self.background)
        self.quotas.guard(self.server.dispatcher)
        self.listeners = BrokerListeners(config, settings, self.background, self)
        self._connection_settings = ConnectionSettings(self.server, self.listeners.listeners, self.background)
        self._connection_settings.config_changed(config)
        if self.access_control is not None:
            warn_of_locked_doors(self.access_control, self.listeners.security)
        self.controller: ControllerChannel
        self.internal_topics = InternalTopics(self)
        self.groups = GroupCoordinatorHost(self, self.randomness)
        self.transactions = TransactionCoordinatorHost(self)
        self.shares = ShareHost(self)
        self.on_image(self.quotas.image_changed)
        self.on_image(self._connection_settings.image_changed)
        self.conversions = Conversions(config.get("message.conversion.max.bytes"))
        self.telemetry = client_telemetry(config, self.randomness, self.on_image)
        # Uploads hold their threads for many seconds: they have threads of their own.
        self._tiering_threads = LoopBackground(
            loop,
            threads=config.get("tiering.upload.max.in.flight") + REQUEST_THREADS,
            queue_limit=queue_limit,
            timers=self.timers,
            name="tiering",
        )
        self.remote_threads = LoopBackground(
            loop,
            threads=config.get("remote.log.reader.threads"),
            queue_limit=config.get("remote.log.reader.max.pending.tasks"),
            timers=self.timers,
            name="remote-read",
        )
        self.tiering = TieringManager(store, self._tiering_threads, self.clock, self.randomness, config)
        self.partitions.watch(
            self.tiering.partition_leading,
            lambda hosted: self.tiering.partition_stopped(hosted.topic_id, hosted.partition),
        )
        self.group_backup = GroupBackup(store, self._tiering_threads, self.clock, config, lambda: self.image)
        self.partitions.watch(self.group_backup.leading, self.group_backup.stopped)
        self.replication = ReplicaManager(self, loop, store, self._tiering_threads)
        self.partitions.replication = self.replication
        self.loop_lag = LoopLag(self.background, self.clock)
        self._exporter: Exporter | None = None
        self._offline_replicas = OfflineReplicas(self)
        self._care = LogCare(self.partitions, logs, config, self.clock, self.background)
        self.cleaner = LogCleaner(
            self.partitions,
            self.clock,
            self.background,
            lambda number: ProcessWorker(number, self.broker_id, self.background),
        )
        self.repair = LogRepair(
            self.partitions,
            logs,
            lambda: self.image,
            self.remote,
            self.clock,
            self.background,
            self.listeners.security,
            self.cleaner.mended,
        )
        self.moves = ReplicaMoves(self.partitions, logs, self.clock, self.background, self.cleaner.is_cleaning)

    def start(self) -> None:
        """Listen, then register. Raises: UserError when the address cannot be had."""
        # From here on: thousands of logs are no garbage, however often one looks.
        gc.set_threshold(*GC_THRESHOLD)
        # Helper threads read from the object store: the loop must not wait 5 ms for each of them.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        settings = self._settings
        listeners = self.listeners.open(self.server)
        self._address = f"{listeners[0].host}:{listeners[0].port}"
        identity = BrokerIdentity(
            broker_id=self.broker_id,
            listeners=listeners,
            rack=self.config.get("broker.rack") or settings.node or None,
            node=settings.node,
            cluster_id=self.cluster_id,
            directory_ids=tuple(self.logs.directory_ids),
            log_state=_LOG_STATES[self.logs.last_shutdown],
            data_dir=settings.data_dir,
        )
        self.controller = ControllerChannel(
            settings.controllers,
            identity,
            self.background.post,
            on_image=self._image_came,
            on_failure=self._failed,
            config=self.config,
            clock=self.clock,
            randomness=self.randomness,
            security=self.listeners.security,
        )
        self._gate = ServingGate(self.controller, self.server, self.partitions, self.background, self.clock)
        self.server.on_tick(self._gate.check)
        self.server.on_tick(self.partitions.end_of_tick)
        self.partitions.on_opened(self._opened)
        self._serve_metrics()
        self.loop_lag.start()
        self.groups.start()
        self.transactions.start()
        self.shares.start()
        self._care.start()
        self._offline_replicas.start()
        self.cleaner.start()
        self.repair.start()
        self.replication.start()
        self._tick_tiering()
        self.group_backup.start()
        self.controller.start()

    def _serve_metrics(self) -> None:
        """Broker n of a host serves them at `metrics.port` + n - 1."""
        first_port = self.config.get("metrics.port")
        if first_port:
            # Here and not above: a broker without metrics need not wait for this import.
            from appliance.metrics.collector import BrokerCollector
            from appliance.metrics.exporter import Exporter

            port = first_port + self.broker_id - 1
            self._exporter = Exporter(self._settings.host, port, BrokerCollector(lambda: numbers_of(self)))

    def _tick_tiering(self) -> None:
        self.background.schedule(self.config.get("tiering.task.interval.ms"), self._tick_tiering)
        self.tiering.limit_rate(self.config.get("remote.log.manager.copy.max.bytes.per.second"))
        self.remote.limit_rate(self.config.get("remote.log.manager.fetch.max.bytes.per.second"))
        self.tiering.tick()

    def _begin_tick(self) -> None:
        self.server.begin_tick()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this process's registration, -1 before it."""
        return self.controller.broker_epoch

    @property
    def runtime_problem(self) -> str:
        """What is wrong with that which would start this process again; empty while nothing is."""
        return self._handle.runtime_problem()

    def new_session_id(self) -> int:
        """A random number in [0, 2^31) for a fetch session."""
        return int.from_bytes(self.randomness.random_bytes(4), "big") & 0x7FFFFFFF

    def create_internal_topic(self, name: str, done: Callable[[ErrorCode], None]) -> None:
        """Create `__consumer_offsets` or another topic of our own, unless it is there; `done` gets the outcome."""
        self.internal_topics.create(name, done)

    # Metadata

    def on_image(self, callback: Callable[[MetadataImage], None]) -> Callable[[], None]:
        """Call back with each new image, and again when partitions were opened; returns how to end that."""
        key = object()
        self._image_callbacks[key] = callback

        def stop() -> None:
            self._image_callbacks.pop(key, None)

        return stop

    def _image_came(self, image: MetadataImage, changed: frozenset[uuid.UUID], taken: Callable[[], None]) -> None:
        self.image = image
        if self.access_control is not None and self.access_control.authorizer.update(image.acls):
            self.partitions.access_changed()
        self._changed.update(changed)
        if not self._loaded:
            if not self._loading:
                self._load()
            taken()
            return
        self._taken = taken
        self._apply()

    def _load(self) -> None:
        """The first image is there: open the logs that lie on the disk, with their topics' configs."""
        self._loading = True
        image = self.image

        def done(result: object) -> None:
            if isinstance(result, Exception):
                failure = result if isinstance(result, UserError) else None
                self._failed(failure or UserError(f"the logs cannot be opened: {result}", exit_code=3))
                return
            self._loaded = True
            self.partitions.put_strays_away(self.image)
            self.partitions.directories.expect(self.image, self.broker_id)
            self._changed.update(self.image.topics_by_id)
            self._apply()

        def load() -> object:
            ids = {name: topic.topic_id for name, topic in image.topics.items()}
            return self.logs.load_all(lambda topic: self.partitions.config_of(image, topic), ids.get)

        self.background.run(load, done)

    def _apply(self) -> None:
        self._take_configs()
        changed, self._changed = self._changed, set()
        self.replication.image_came(self.image)
        self.partitions.apply(self.image, sorted(changed))
        self.replication.image_applied()
        me = self.image.brokers.get(self.broker_id)
        self._gate.fenced(me is None or me.fenced or me.broker_epoch != self.broker_epoch)
        self._may_be_unfenced = self._may_be_unfenced or self._offline_replicas.all_told()
        if self._may_be_unfenced:
            self.controller.applied(self.image.position)
        self._tell()

    def _take_configs(self) -> None:
        """Follow what was altered for this broker, or for all, while it runs."""
        altered = self.image.broker_configs
        own, defaults = dict(altered.get(str(self.broker_id), {})), dict(altered.get("", {}))
        if own == self.config.dynamic and defaults == self.config.dynamic_defaults:
            return
        try:
            self.config = self.config.with_dynamic(own, defaults)
        except UserError as error:
            _log.error("altered broker configs are passed over: %s", error)
            return
        self.partitions.config = self.config
        self._connection_settings.config_changed(self.config)
        # Topics take their defaults from the broker.
        self._changed.update(self.image.topics_by_id)

    def _opened(self) -> None:
        self.moves.opened()
        self._tell()

    def _tell(self) -> None:
        if self._taken is not None and not self.partitions.is_opening:
            self._taken()
            self._taken = None
        for callback in list(self._image_callbacks.values()):
            try:
                callback(self.image)
            except Exception:
                _log.exception("a new image could not be taken in")
        self._report_ready()

    def _report_ready(self) -> None:
        if self._is_ready or not self._loaded or not self.partitions.serving or self.partitions.is_opening:
            if not self._is_ready and self._loaded and not self._stopping:
                self.background.schedule(LAST_ANSWERS_MS, self._report_ready)
            return
        self._is_ready = True
        gc.collect()
        gc.freeze()
        _log.info("broker %d serves at %s", self.broker_id, self._address)
        self._handle.ready(self._address)

    # The end

    def _failed(self, error: UserError) -> None:
        self.failure = error
        self._end()

    def stop(self) -> None:
        """Drain and end the loop."""
        if self._stopping:
            return
        self._stopping = True
        ended = False

        def may_stop() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self.partitions.set_serving(False)
                self.background.schedule(LAST_ANSWERS_MS, self._end)

        if not self.config.get("controlled.shutdown.enable"):
            may_stop()
            return
        self.background.schedule(CONTROLLED_SHUTDOWN_MS, may_stop)
        self.controller.shut_down(may_stop)

    def _end(self) -> None:
        self._loop.stop()

    def close(self) -> None:
        """After the loop has ended: connections, logs and threads."""
        self.partitions.write_all_now()
        if self._exporter is not None:
            self._exporter.close()
        self._care.close()
        self.cleaner.close()
        self.repair.close()
        self.moves.close()
        self.replication.close()
        self.tiering.close()
        self.group_backup.close()
        self.groups.close()
        self.transactions.close()
        self.shares.close()
        self.server.close()
        self.timers.close()
        self.remote.close()
        self.remote_threads.close()
        self._tiering_threads.close()
        self.background.close()
        if hasattr(self, "controller"):
            self.controller.close()
        clean = self._loaded and self.failure is None
        epoch = self.controller.broker_epoch if hasattr(self, "controller") else -1
        watermarks = self.partitions.high_watermarks()
        self.logs.close(watermarks, broker_epoch=epoch, clean=clean, working=self._handle.working)


def limits_of(config: BrokerConfig) -> Limits:
    """The limits of a broker's listeners."""
    return Limits(
        max_frame_bytes=config.get("socket.request.max.bytes"),
        connections_max_idle_ms=config.get("connections.max.idle.ms"),
        failed_authentication_delay_ms=config.get("connection.failed.authentication.delay.ms"),
        max_in_flight=config.get("connection.max.in.flight.requests"),
        queued_request_bytes=config.get("queued.max.request.bytes"),
        send_buffer_bytes=config.get("socket.send.buffer.bytes"),
        large_send_buffer_bytes=config.get("socket.send.buffer.large.bytes"),
        accept_backlog=config.get("socket.listen.backlog.size"),
    )
