"""The process that makes lake output: `appliance up` starts it as the service `lake`.

It asks brokers which topics want files and how far they are tiered, which costs the object store nothing, and works at
the partitions of which something waits. Several of these may run, by mistake or after a split: the ledger decides.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.base.clock import Clock, SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.config_definitions_lake import LAKE_TOPIC_CONFIGS
from appliance.base.errors import KafkaError
from appliance.base.ids import TopicPartition
from appliance.base.object_store import ObjectStoreError, StoreUnavailable
from appliance.base.processes import ProcessHandle, ServiceSettings
from appliance.client.client import Client
from appliance.client.cluster import TopicMetadata
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.client.results import TOPIC_RESOURCE, ConfigResource
from appliance.client.security import service_security
from appliance.metrics.exporter import Exporter
from appliance.metrics.lake import LakeCollector, LakeNumbers
from appliance.records.errors import CorruptBatch
from appliance.tiering.body import BodyStore
from appliance.tiering.lake.ledger import CorruptLedger, Ledger
from appliance.tiering.lake.names import Output
from appliance.tiering.lake.outputs import current_output, sweep
from appliance.tiering.lake.rows import Interrupted
from appliance.tiering.lake.spec import ICEBERG, BadSpec, LakeSpec, spec_of
from appliance.tiering.lake.worker import LakeWorker
from appliance.tiering.layout import CorruptObject
from appliance.tiering.manifest import CorruptManifest
from appliance.tiering.reader import TierNotCovering
from appliance.tiering.stores import open_store

if TYPE_CHECKING:
    from appliance.tiering.lake.iceberg import IcebergTables

CLIENT_ID = "appliance-lake"
TOPICS_PER_REQUEST = 100
"""Of how many topics a broker is asked for the configs at once: it answers on its event loop."""
OUTPUT_CHECK_INTERVALS = 6
"""Every so many intervals it is looked up which output of a topic counts, and whether one without files wants some."""
PAUSE_MAX_MS = 60_000
"""The longest that a partition is left alone after failures."""
LATEST_TIERED = -5
_WANTED = (*LAKE_TOPIC_CONFIGS, "cleanup.policy")

_log = logging.getLogger("appliance.lake")


def serve(settings: ServiceSettings, handle: ProcessHandle) -> None:
    """Make files until `handle.stopping` is set.

    Raises:
        UserError: the port or the object store cannot be used, or a config is wrong.
    """
    config = BrokerConfig(settings.properties)
    client = Client(settings.bootstrap_servers, client_id=CLIENT_ID, security=service_security(settings.properties))
    with client:
        store = open_store(settings.object_store, config)
        lake = Lake(client, store, settings.data_dir, SystemClock(), config, handle.stopping.is_set)
        exporter = Exporter(settings.host, settings.port, LakeCollector(lambda: lake.numbers))
        try:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            handle.ready(f"http://{host}:{exporter.port}")
            while not handle.stopping.is_set():
                lake.work()
                handle.stopping.wait(config.get("lake.check.interval.ms") / 1_000)
        finally:
            exporter.close()


@dataclass(slots=True)
class _Partition:
    worker: LakeWorker
    next_offset: int = -1
    """-1 before the ledger was read."""
    tiered: int = -1
    """What was told when it was last worked at."""
    again_ms: int = 0
    """When what waits is old enough."""
    ledger: Ledger | None = None
    published: int = -1
    """Files that are in the Iceberg table."""
    problem: str = ""
    failures: int = 0
    """In a row."""


@dataclass(slots=True)
class _Topic:
    output: Output
    rounds: int = 0
    """Since it was looked up which output counts."""
    partitions: dict[int, _Partition] = field(default_factory=dict)


class Lake:
    """All topics with lake output."""

    def __init__(
        self,
        client: Client,
        store: BodyStore,
        folder: Path,
        clock: Clock,
        config: BrokerConfig,
        stopping: Callable[[], bool],
    ) -> None:
        self._client = client
        self._config = config
        self._tables: IcebergTables | None = None
        self._store = store
        self._folder = folder
        self._clock = clock
        self._stopping = stopping
        self._topics: dict[str, _Topic] = {}
        self._plain: set[uuid.UUID] = set()
        """Topics that wanted no files when their configs were last looked at."""
        self._rounds = 0
        """Since all configs were looked at."""
        self._problems: dict[str, str] = {}
        """Of topics whose configs cannot be followed, and of the brokers (under the empty name)."""
        self.numbers: Sequence[LakeNumbers] = ()

    def work(self) -> None:
        """One round over all topics; what fails is logged once and tried again in the next round."""
        try:
            wanted = dict(self._wanted())
            self._forget(wanted)
            tiered = self._tiered(wanted)
            self._problem("", "")
        except (KafkaError, ConnectionLost, CallTimedOut) as error:
            self._problem("", f"the brokers cannot be asked: {error}")
            return
        for name, (topic, spec) in wanted.items():
            if self._stopping():
                return
            self._work_at(name, topic, spec, tiered)
        self.numbers = [
            LakeNumbers(
                name,
                number,
                one.ledger.rows if one.ledger else 0,
                one.ledger.dead if one.ledger else 0,
                one.ledger.file_count if one.ledger else 0,
                max(0, one.next_offset),
                one.tiered + 1,
                one.problem,
            )
            for name, topic in self._topics.items()
            for number, one in topic.partitions.items()
        ]

    def _wanted(self) -> Iterator[tuple[str, tuple[TopicMetadata, LakeSpec]]]:
        """Topics that want files, and how."""
        topics = {name: one for name, one in self._client.metadata().topics.items() if not one.is_internal}
        self._rounds += 1
        if self._rounds > OUTPUT_CHECK_INTERVALS:
            self._rounds = 1
            self._plain.clear()
        names = sorted(name for name, topic in topics.items() if topic.topic_id not in self._plain)
        for first in range(0, len(names), TOPICS_PER_REQUEST):
            some = [ConfigResource(TOPIC_RESOURCE, name) for name in names[first : first + TOPICS_PER_REQUEST]]
            for resource, entries in self._client.describe_configs(some, _WANTED).items():
                configs = {name: entry.value for name, entry in entries.items()}
                try:
                    spec = spec_of(configs)
                    if spec is not None and "compact" in (configs.get("cleanup.policy") or ""):
                        raise BadSpec("a compacted topic has no lake output: its records are replaced")
                except BadSpec as error:
                    self._problem(resource.name, str(error))
                    continue
                self._problem(resource.name, "")
                if spec is None:
                    self._plain.add(topics[resource.name].topic_id)
                else:
                    yield resource.name, (topics[resource.name], spec)

    def _forget(self, wanted: dict[str, tuple[TopicMetadata, LakeSpec]]) -> None:
        for name, topic in list(self._topics.items()):
            if name not in wanted or wanted[name][0].topic_id != topic.output.topic_id:
                del self._topics[name]

    def _tiered(self, wanted: dict[str, tuple[TopicMetadata, LakeSpec]]) -> dict[TopicPartition, int]:
        """The last tiered offset of each partition, -1 for none."""
        places = {
            TopicPartition(name, number): LATEST_TIERED
            for name, (topic, _) in wanted.items()
            for number, one in topic.partitions.items()
            if one.leader >= 0
        }
        if not places:
            return {}
        try:
            return {place: found.offset for place, found in self._client.list_offsets(places).items()}
        except KafkaError:
            # One partition that is out of service must not hold up all others.
            return self._tiered_one_by_one(places)

    def _tiered_one_by_one(self, places: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for place, timestamp in places.items():
            if self._stopping():
                break
            try:
                found[place] = self._client.list_offsets({place: timestamp})[place].offset
            except KafkaError as error:
                _log.info("%s: no files are made: %s", place, error)
        return found

    def _work_at(self, name: str, topic: TopicMetadata, spec: LakeSpec, tiered: dict[TopicPartition, int]) -> None:
        known = self._topics.get(name)
        try:
            if known is None or known.rounds >= OUTPUT_CHECK_INTERVALS:
                output = current_output(self._store, topic.topic_id).output
                if known is None or known.output != output:
                    known = self._topics[name] = _Topic(output)
                known.rounds = 0
            known.rounds += 1
            self._problem(name, "")
        except (ObjectStoreError, CorruptLedger) as error:
            self._problem(name, str(error))
            return
        for number in sorted(topic.partitions):
            at = tiered.get(TopicPartition(name, number))
            if at is None:
                continue
            one = known.partitions.get(number)
            if one is None:
                worker = LakeWorker(self._store, known.output, name, number, self._folder, self._clock, self._stopping)
                one = known.partitions[number] = _Partition(worker)
            if self._stopping():
                return
            now_ms = self._clock.monotonic_ms()
            # Nothing new and nothing old enough, or it failed a moment ago: no request.
            done = at < max(0, one.next_offset) and not one.problem
            if done or ((at == one.tiered or one.problem) and now_ms < one.again_ms):
                continue
            self._make(name, number, known.output, one, spec)
            one.tiered = at
        self._sweep(known)

    def _make(self, name: str, number: int, output: Output, one: _Partition, spec: LakeSpec) -> None:
        try:
            one.ledger = one.worker.work(spec)
            one.next_offset = one.ledger.next_offset
            one.again_ms = self._clock.monotonic_ms() + one.worker.waits_ms
            if spec.format == ICEBERG and one.published < one.ledger.file_count:
                one.published = self._publish(output, one.ledger)
            problem = ""
        except Interrupted:
            return
        except ImportError as error:
            problem = f"{error.name} is not installed: pip install 'appliance[lake]' or 'appliance[iceberg]'"
        except (ObjectStoreError, TierNotCovering, BadSpec, OSError) as error:
            problem = str(error)
        except (CorruptManifest, CorruptObject, CorruptBatch, CorruptLedger) as error:
            problem = f"damaged: {error}; see `appliance tier verify` and `appliance lake verify`"
        if problem and problem != one.problem:
            _log.warning("%s-%d: no files are made: %s", name, number, problem)
        elif one.problem and not problem:
            _log.info("%s-%d: files are made again", name, number)
        one.problem = problem
        one.failures = one.failures + 1 if problem else 0
        if problem:
            pause_ms = self._config.get("lake.check.interval.ms") << min(one.failures, 10)
            one.again_ms = self._clock.monotonic_ms() + min(PAUSE_MAX_MS, pause_ms)

    def _publish(self, output: Output, ledger: Ledger) -> int:
        # Here and not above: pyiceberg is an optional dependency.
        from appliance.tiering.lake.iceberg import IcebergFailed, open_tables

        if self._tables is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            catalog, namespace = self._config.get("lake.iceberg.catalog"), self._config.get("lake.iceberg.namespace")
            self._tables = open_tables(catalog or "", namespace, self._store.url, str(self._folder))
        try:
            return self._tables.publish(self._store, output, ledger)
        except IcebergFailed as error:
            raise StoreUnavailable(str(error)) from error

    def _sweep(self, topic: _Topic) -> None:
        left = [one.worker for one in topic.partitions.values() if one.ledger is not None and one.worker.left_files]
        if not left:
            return
        try:
            count = sweep(self._store, topic.output)
        except (ObjectStoreError, CorruptLedger) as error:
            _log.warning("%s: dead files are not removed: %s", topic.output, error)
            return
        for worker in left:
            worker.left_files = False
        if count:
            _log.info("%s: %d dead files removed", topic.output, count)

    def _problem(self, name: str, problem: str) -> None:
        if problem and self._problems.get(name) != problem:
            _log.warning("%s%s", f"{name}: no files are made: " if name else "", problem)
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)
