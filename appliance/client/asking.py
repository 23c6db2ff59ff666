"""Whom to ask, and how often: the way from "these partitions" to connections, answers and further attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.base.randomness import Randomness
from appliance.client.brokers import Brokers
from appliance.client.cluster import NO_LEADER, ClusterMetadata, cluster_of
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost, error_of
from appliance.client.retries import Retry, RetryPolicy, Sleep
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

Key = TypeVar("Key")
Value = TypeVar("Value")
Answer = TypeVar("Answer")

Routed = tuple[dict[int, dict[Key, Value]], Exception | None]
"""What to ask which broker, and why a part of it cannot be asked now."""
Ask = Callable[[Connection, dict[Key, Value], int], Mapping[Key, Answer | KafkaError]]
"""Asks one broker about some keys, within so many milliseconds."""

ANY_BROKER = -1


class Asker:
    """Holds what is known of the cluster; asks, and asks again what failed in a way that may pass.

    Args:
        brokers: the connections.
        policy: how often and with which waits.
        timeout_ms: for one attempt.
        operation_timeout_ms: for all attempts of one operation and the waits between them.
        clock, randomness, sleep: the seams.
    """

    def __init__(
        self,
        brokers: Brokers,
        policy: RetryPolicy,
        timeout_ms: int,
        operation_timeout_ms: int,
        clock: Clock,
        randomness: Randomness,
        sleep: Sleep = time.sleep,
    ) -> None:
        self.cluster = ClusterMetadata(None, NO_LEADER, {}, {})
        self._brokers = brokers
        self._policy = policy
        self._timeout_ms = timeout_ms
        self._operation_timeout_ms = operation_timeout_ms
        self._clock = clock
        self._randomness = randomness
        self._sleep = sleep

    def close(self) -> None:
        """Close all connections."""
        self._brokers.close()

    def metadata(self, topics: Collection[str] | None) -> ClusterMetadata:
        """Ask some broker for metadata; None for all topics.

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: as `ask_leaders`.
        """
        return self._until_done(lambda retry: self._ask_metadata(topics, retry))

    def connect(self, broker_id: int) -> Connection:
        """A connection to a broker, which may be `ANY_BROKER`.

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: as `ask_leaders`.
        """

        def attempt(retry: Retry) -> Connection:
            if broker_id != ANY_BROKER and broker_id not in self.cluster.brokers:
                self._ask_metadata((), retry)
            return self._connection(broker_id, retry)

        return self._until_done(attempt)

    def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, Value],
        ask: Ask[TopicPartition, Value, Answer],
        extra_ms: int = 0,
    ) -> dict[TopicPartition, Answer]:
        """Ask each partition's leader.

        Raises:
            KafkaError: an error that trying again did not cure, or cannot cure.
            ConnectionLost, CallTimedOut: a leader could not be asked.
        """
        return self._ask_until_done(wanted, self._by_leader, ask, extra_ms)

    def ask_broker(
        self,
        wanted: Mapping[Key, Value],
        ask: Ask[Key, Value, Answer],
        broker_id: int = ANY_BROKER,
    ) -> dict[Key, Answer]:
        """Ask one broker about everything.

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: as `ask_leaders`.
        """

        def route(pending: dict[Key, Value], retry: Retry, again: bool) -> Routed[Key, Value]:
            if broker_id != ANY_BROKER and (again or broker_id not in self.cluster.brokers):
                self._ask_metadata((), retry)
            return {broker_id: pending}, None

        return self._ask_until_done(wanted, route, ask)

    def _retry(self, extra_ms: int = 0) -> Retry:
        return Retry(
            self._policy,
            self._timeout_ms + extra_ms,
            self._operation_timeout_ms + extra_ms,
            self._clock,
            self._randomness,
            self._sleep,
        )

    def _until_done(self, attempt: Callable[[Retry], Answer]) -> Answer:
        retry = self._retry()
        while True:
            try:
                return attempt(retry)
            except (ConnectionLost, CallTimedOut, KafkaError) as failure:
                retry.pause(failure)

    def _ask_metadata(self, topics: Collection[str] | None, retry: Retry) -> ClusterMetadata:
        connection = self._brokers.any(retry.attempt_ms())
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = connection.call(request, timeout_ms=retry.attempt_ms())
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(error_of(response.error_code), f"Metadata from {connection.address}")
        cluster = cluster_of(response)
        if not cluster.brokers:
            # A broker that has just started may not know of any yet, not even of itself.
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{connection.address} knows no brokers yet")
        self._brokers.learn(cluster.brokers)
        self.cluster = replace(cluster, topics=self.cluster.topics | cluster.topics)
        return cluster

    def _ask_until_done(
        self,
        wanted: Mapping[Key, Value],
        route: Callable[[dict[Key, Value], Retry, bool], Routed[Key, Value]],
        ask: Ask[Key, Value, Answer],
        extra_ms: int = 0,
    ) -> dict[Key, Answer]:
        """Ask about all that is wanted, and about what failed again, each time on the way that `route` finds now."""
        done: dict[Key, Answer] = {}
        retry = self._retry(extra_ms)
        again = False
        while len(done) < len(wanted):
            failure: Exception | None = None
            groups: dict[int, dict[Key, Value]] = {}
            try:
                pending = {key: value for key, value in wanted.items() if key not in done}
                groups, failure = route(pending, retry, again)
            except (ConnectionLost, CallTimedOut, KafkaError) as error:
                failure = error
            for broker_id, part in groups.items():
                try:
                    answers = ask(self._connection(broker_id, retry), part, retry.attempt_ms())
                except (ConnectionLost, CallTimedOut) as error:
                    failure = error
                    continue
                for key in part:
                    answer = answers.get(key) if key in answers else _not_answered(key)
                    if isinstance(answer, KafkaError):
                        failure = answer
                        if not answer.code.retriable:
                            raise answer
                    else:
                        done[key] = cast(Answer, answer)
            if failure is not None:
                retry.pause(failure)
                again = True
        return done

    def _connection(self, broker_id: int, retry: Retry) -> Connection:
        if broker_id == ANY_BROKER:
            return self._brokers.any(retry.attempt_ms())
        return self._brokers.to(broker_id, retry.attempt_ms())

    def _by_leader(
        self, pending: dict[TopicPartition, Value], retry: Retry, again: bool
    ) -> Routed[TopicPartition, Value]:
        """Group partitions by the broker that leads them, and say why one has none.

        Raises:
            KafkaError, ConnectionLost, CallTimedOut: nobody answered Metadata.
        """
        if again or any(self.cluster.leader_of(tp) == NO_LEADER for tp in pending):
            self._ask_metadata(sorted({tp.topic for tp in pending}), retry)
        groups: dict[int, dict[TopicPartition, Value]] = {}
        failure: KafkaError | None = None
        for tp, value in pending.items():
            leader = self.cluster.leader_of(tp)
            if leader == NO_LEADER:
                failure = self.cluster.why_no_leader(tp)
            else:
                groups.setdefault(leader, {})[tp] = value
        return groups, failure


def _not_answered(key: object) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer says nothing about {key}")
