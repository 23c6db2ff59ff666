"""A new leader does not say where the log ends before it knows what is committed (KIP-207)."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.replicated import ReplicatedCluster, until
from tests.support.requests import batch_of, produce

RECORDS = 5


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (7, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_the_end_of_the_log_is_told_when_the_high_watermark_has_reached_the_epochs_start(
    tmp_path: Path, version: int, error: ErrorCode
) -> None:
    with ReplicatedCluster(tmp_path, properties={"broker.lease.ms": "8000"}) as cluster:
        cluster.create("ends", **{"min.insync.replicas": "2"})
        cluster.wait_for_isr("ends", 1, 2, 3)
        topic = CreatableTopicResult(name="ends")
        first, second, third = cluster.state("ends").replicas
        assert cluster.leader("ends") == first

        def latest() -> tuple[int, int]:
            wanted = [ListOffsetsTopic(name="ends", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
            with Connection("127.0.0.1", cluster.ports[second], timeout_ms=10_000) as connection:
                answer = connection.call(ListOffsetsRequest(replica_id=-1, topics=wanted), version)
                row = answer.topics[0].partitions[0]
                return row.error_code, row.offset

        cluster.pause(third)
        with Connection("127.0.0.1", cluster.ports[first], timeout_ms=10_000) as connection:
            for _ in range(RECORDS):
                assert produce(connection, topic, batch_of(b"x"), acks=1).error_code == 0
        log = tmp_path / f"broker-{second}" / "ends-0" / f"{0:020d}.log"
        size = (tmp_path / f"broker-{first}" / "ends-0" / log.name).stat().st_size
        until(lambda: log.stat().st_size == size, "the second replica to have all records")
        cluster.kill(first)
        seen = until(lambda: (now := latest())[0] != ErrorCode.NOT_LEADER_OR_FOLLOWER and now, "the second to lead")
        assert seen == (error, -1)
        cluster.resume(third)
        assert until(lambda: (now := latest())[0] == 0 and now, "the end to be known") == (0, RECORDS)
