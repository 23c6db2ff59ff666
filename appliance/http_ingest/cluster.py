"""What the gateway knows of the cluster, and its connections: who leads which partition, found again when it moves."""

from __future__ import annotations

import asyncio

from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.cluster import ClusterMetadata, TopicMetadata, cluster_of, parse_bootstrap_servers
from appliance.client.connection import ConnectionLost
from appliance.client.security import PLAIN, ClientSecurity
from appliance.http_ingest.wire_connection import WireConnection
from appliance.wire.api import ApiKey
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA_MAX_AGE_MS = 60_000
METADATA_TIMEOUT_S = 5.0
TOPIC_TRIES = 7
"""A topic that is being created is not known to every broker at once; these take about two seconds."""
TOPIC_RETRY_S = 0.05
TOPIC_RETRY_MAX_S = 0.8


class Cluster:
    """Metadata and one connection to each broker; for one event loop."""

    def __init__(
        self, bootstrap_servers: str, client_id: str, clock: Clock, security: ClientSecurity = PLAIN, act_as: str = ""
    ) -> None:
        """`act_as`: on whose behalf brokers are asked; empty where they have no authorizer."""
        self._security = security
        self._act_as = act_as
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self._client_id = client_id
        self._clock = clock
        self._topics: dict[str, tuple[int, TopicMetadata]] = {}
        self._known: ClusterMetadata | None = None
        self._connections: dict[tuple[str, int], WireConnection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._asking: dict[str, asyncio.Task[TopicMetadata]] = {}

    async def topic(self, name: str) -> TopicMetadata:
        """A topic that exists; the first use makes it where the brokers create topics on demand.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, ...
            ConnectionLost: no broker can be reached.
        """
        kept = self._topics.get(name)
        if kept is not None and self._clock.monotonic_ms() - kept[0] < METADATA_MAX_AGE_MS:
            return kept[1]
        # Requests that come at the same moment wait for one question.
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.create_task(self._ask_topic(name))
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        return await asyncio.shield(task)

    def forget(self, name: str) -> None:
        """The topic's leaders are no longer believed."""
        self._topics.pop(name, None)

    async def leader(self, tp: TopicPartition) -> WireConnection:
        """A connection to the leader of a partition.

        Raises:
            KafkaError: LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, or as `topic`.
            ConnectionLost: it cannot be reached.
        """
        await self.topic(tp.topic)
        known = self._known
        leader = known.leader_of(tp) if known is not None else -1
        if known is None or leader < 0:
            self.forget(tp.topic)
            raise known.why_no_leader(tp) if known else KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(tp))
        broker = known.brokers[leader]
        try:
            return await self._connection(broker.host, broker.port)
        except ConnectionLost:
            self.forget(tp.topic)
            raise

    async def any_broker(self) -> WireConnection:
        """A connection to some broker. Raises: ConnectionLost, none can be reached."""
        known = [(broker.host, broker.port) for broker in self._known.brokers.values()] if self._known else []
        last: ConnectionLost | None = None
        for host, port in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._connection(host, port)
            except ConnectionLost as error:
                last = error
        raise last or ConnectionLost("there is no broker to connect to")

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def _ask_topic(self, name: str) -> TopicMetadata:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        for attempt in range(TOPIC_TRIES):
            if attempt:
                await asyncio.sleep(min(TOPIC_RETRY_S * 2 ** (attempt - 1), TOPIC_RETRY_MAX_S))
            connection = await self.any_broker()
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            version = connection.version_of(ApiKey.METADATA)
            fresh = cluster_of(await connection.call(request, version, METADATA_TIMEOUT_S))
            self._merge(fresh)
            topic = fresh.topics[name]
            if topic.error == ErrorCode.NONE:
                self._topics[name] = (self._clock.monotonic_ms(), topic)
                return topic
            error = KafkaError(topic.error, f"topic {name}")
            if not topic.error.retriable:
                break
        raise error

    def _merge(self, fresh: ClusterMetadata) -> None:
        topics = {**self._known.topics, **fresh.topics} if self._known else fresh.topics
        self._known = ClusterMetadata(fresh.cluster_id, fresh.controller_id, fresh.brokers, topics)

    async def _connection(self, host: str, port: int) -> WireConnection:
        address = (host, port)
        kept = self._connections.get(address)
        if kept is not None and kept.is_open:
            return kept
        async with self._opening.setdefault(address, asyncio.Lock()):
            kept = self._connections.get(address)
            if kept is None or not kept.is_open:
                kept = self._connections[address] = await WireConnection.open(
                    host, port, self._client_id, self._security, self._act_as
                )
            return kept
