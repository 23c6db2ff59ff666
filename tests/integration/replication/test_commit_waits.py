"""acks=-1 with three replicas: answers come in order when all have the batch, and an error when they are too slow."""

from __future__ import annotations

from pathlib import Path

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from tests.support.replicated import ReplicatedCluster
from tests.support.requests import batch_of, list_offset, produce_request

BROKERS = (1, 2, 3)
SHORT_MS = 300


def test_a_batch_that_a_paused_replica_lacks_is_answered_when_its_time_is_over(tmp_path: Path) -> None:
    with ReplicatedCluster(tmp_path) as cluster:
        cluster.create("waits", **{"min.insync.replicas": "2"})
        cluster.wait_for_isr("waits", *BROKERS)
        topic = CreatableTopicResult(name="waits")
        leader = cluster.leader("waits")
        follower = next(broker_id for broker_id in BROKERS if broker_id != leader)

        def send(connection: Connection, timeout_ms: int) -> tuple[int, int]:
            request = produce_request(topic, {0: batch_of(b"x")}, acks=-1, timeout_ms=timeout_ms)
            (answer,) = connection.call(request, 9).responses[0].partition_responses
            return answer.error_code, answer.base_offset

        with Connection("127.0.0.1", cluster.ports[leader], timeout_ms=20_000) as connection:
            assert [send(connection, 10_000) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
            cluster.pause(follower)
            assert send(connection, SHORT_MS) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            cluster.resume(follower)
            assert send(connection, 10_000) == (0, 4), "the late one is in the log, and the next one behind it"
            assert list_offset(connection, topic, -1).offset == 5
