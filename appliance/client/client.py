"""The client: raw batches in and out, offsets, metadata, topics and configs, with bounded retries.

Blocking, without threads of its own; one thread at a time. What a broker calls retriable is tried again with fresh
metadata until attempts or time are used up; everything else is raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from appliance.base.clock import Clock, SystemClock
from appliance.base.errors import KafkaError
from appliance.base.ids import TopicPartition
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.client import admin, requests
from appliance.client.asking import ANY_BROKER, Asker
from appliance.client.brokers import Brokers
from appliance.client.cluster import ClusterMetadata, parse_bootstrap_servers
from appliance.client.connection import Connection
from appliance.client.results import (
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    EpochEnd,
    FetchResult,
    NewTopic,
    OffsetResult,
    ProduceResult,
)
from appliance.client.retries import RetryPolicy, Sleep
from appliance.client.security import PLAIN, ClientSecurity
from appliance.wire.schema import Request, Struct

Response = TypeVar("Response", bound=Struct)
_Created = CreatedTopic | KafkaError
_Described = Mapping[ConfigResource, dict[str, ConfigEntry] | KafkaError]


class Client:
    """Knows the cluster from its bootstrap servers on.

    Args:
        bootstrap_servers: `host:port,host:port`; one that answers is enough.
        client_id: how brokers name us in logs and quotas.
        timeout_ms: for each request.
        operation_timeout_ms: for each operation, retries included; twice `timeout_ms` if None.
        retries: how often and with which waits.
        clock, randomness, sleep: the seams.
        security: what the brokers' listener asks for.

    Raises:
        UserError: the bootstrap servers cannot be read. Nothing is connected yet.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "appliance",
        timeout_ms: int = 30_000,
        operation_timeout_ms: int | None = None,
        retries: RetryPolicy | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        sleep: Sleep = time.sleep,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self.timeout_ms = timeout_ms
        clock = clock or SystemClock()
        self._asker = Asker(
            Brokers(parse_bootstrap_servers(bootstrap_servers), client_id, timeout_ms, clock, security),
            retries or RetryPolicy(),
            timeout_ms,
            2 * timeout_ms if operation_timeout_ms is None else operation_timeout_ms,
            clock,
            randomness or SystemRandomness(),
            sleep,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next call would open new ones."""
        self._asker.close()

    def metadata(self, topics: Collection[str] | None = None) -> ClusterMetadata:
        """Ask for the cluster's metadata; never creates a topic.

        Args:
            topics: None for all. A topic that does not exist comes with its error.

        Raises:
            ConnectionLost, CallTimedOut: no broker answered.
            KafkaError: the whole request was refused.
        """
        return self._asker.metadata(topics)

    def call(self, request: Request[Response], broker_id: int = ANY_BROKER) -> Response:
        """Send any request to one broker and return its response; errors within it are left to the caller.

        Raises:
            KafkaError: UNSUPPORTED_VERSION.
            ConnectionLost, CallTimedOut: connecting is tried again, the request itself is not.
        """
        return self._asker.connect(broker_id).call(request, timeout_ms=self.timeout_ms)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = 0
    ) -> dict[TopicPartition, OffsetResult]:
        """The first offset whose record has the timestamp or a later one, for each partition.

        Args:
            timestamps: milliseconds, or -1 latest, -2 earliest, -3 of the largest timestamp, -4 earliest local,
                -5 latest tiered, -6 earliest not yet uploaded.
            isolation_level: 1 = the latest is the last stable offset.

        Raises:
            KafkaError: a partition's error that trying again did not cure.
            ConnectionLost, CallTimedOut: a leader could not be asked.
        """

        def ask(
            connection: Connection, wanted: dict[TopicPartition, int], limit_ms: int
        ) -> Mapping[TopicPartition, OffsetResult | KafkaError]:
            return requests.list_offsets(connection, wanted, isolation_level, limit_ms)

        return self._asker.ask_leaders(timestamps, ask)

    def offsets_for_leader_epoch(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Where each partition's largest leader epoch up to the given one ends (KIP-320).

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: as `list_offsets`.
        """

        def ask(
            connection: Connection, wanted: dict[TopicPartition, int], limit_ms: int
        ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
            return requests.offsets_for_leader_epoch(connection, wanted, limit_ms)

        return self._asker.ask_leaders(epochs, ask)

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 4 << 20,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        isolation_level: int = 0,
    ) -> FetchResult:
        """Read raw batches from an offset; waits up to `max_wait_ms` for `min_bytes`.

        An offset outside the log is an answer (`error` OFFSET_OUT_OF_RANGE), not an exception: it comes with the range.

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: as `list_offsets`.
        """

        def ask(
            connection: Connection, wanted: dict[TopicPartition, int], limit_ms: int
        ) -> Mapping[TopicPartition, FetchResult | KafkaError]:
            topic_id = self._asker.cluster.topic_id(topic_partition.topic)
            limits = requests.FetchLimits(max_bytes, max_wait_ms, min_bytes, isolation_level)
            return requests.fetch(connection, topic_partition, topic_id, offset, limits, limit_ms)

        return self._asker.ask_leaders({topic_partition: offset}, ask, max_wait_ms)[topic_partition]

    def produce(
        self,
        topic_partition: TopicPartition,
        batches: bytes | bytearray | memoryview,
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> ProduceResult:
        """Append raw batches (Kafka takes one for each call).

        Batches without a producer id may be appended twice if an answer is lost on its way.

        Args:
            topic_partition: where to.
            batches: record batches of magic 2.
            acks: -1 all in-sync replicas, 1 the leader, 0 no answer.
            timeout_ms: how long the leader may wait for its followers; the client's own if None.

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: as `list_offsets`.
        """
        acks_timeout_ms = self.timeout_ms if timeout_ms is None else timeout_ms

        def ask(
            connection: Connection, wanted: dict[TopicPartition, None], limit_ms: int
        ) -> Mapping[TopicPartition, ProduceResult | KafkaError]:
            topic_id = self._asker.cluster.topic_id(topic_partition.topic)
            wait_ms = min(acks_timeout_ms, limit_ms)
            return requests.produce(connection, topic_partition, topic_id, batches, acks, wait_ms, limit_ms)

        return self._asker.ask_leaders({topic_partition: None}, ask)[topic_partition]

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, CreatedTopic]:
        """Create topics.

        Raises:
            KafkaError: of the first topic that was refused; others may have been created.
            ConnectionLost, CallTimedOut: nobody could be asked.
        """

        def ask(connection: Connection, wanted: dict[str, NewTopic], limit_ms: int) -> Mapping[str, _Created]:
            return admin.create_topics(connection, wanted, validate_only, limit_ms)

        return self._asker.ask_broker({topic.name: topic for topic in topics}, ask)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics.

        Raises:
            KafkaError: of the first topic that was refused; others may have been deleted.
            ConnectionLost, CallTimedOut: nobody could be asked.
        """

        def ask(connection: Connection, wanted: dict[str, None], limit_ms: int) -> Mapping[str, KafkaError | None]:
            return admin.delete_topics(connection, wanted, limit_ms)

        self._asker.ask_broker(dict.fromkeys(names), ask)

    def describe_configs(
        self, resources: Iterable[ConfigResource], names: Collection[str] | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configs of topics and brokers by name; a broker is asked about itself.

        Args:
            resources: whose.
            names: which; None for all.

        Raises:
            KafkaError: of the first resource that was refused.
            ConnectionLost, CallTimedOut: nobody could be asked.
        """

        def ask(connection: Connection, wanted: dict[ConfigResource, None], limit_ms: int) -> _Described:
            return admin.describe_configs(connection, wanted, names, limit_ms)

        by_broker: dict[int, dict[ConfigResource, None]] = {}
        for resource in resources:
            by_broker.setdefault(admin.broker_of(resource, ANY_BROKER), {})[resource] = None
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for broker_id, wanted in by_broker.items():
            found |= self._asker.ask_broker(wanted, ask, broker_id)
        return found
