"""Offsets in transactions, over a socket: pending until the marker, fenced by member and epoch, kept over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker import RunningCluster, running_cluster
from tests.support.group_clients import wait_until
from tests.support.requests import new_topic

FIND_GROUP, FIND_TRANSACTION = 0, 1


class Way:
    """A producer with a transaction, on the one broker of a cluster."""

    def __init__(self, connection: Connection, name: str, version: int) -> None:
        self.connection = connection
        self.name = name
        self.version = version
        """Of TxnOffsetCommit and EndTxn."""
        self.topic = new_topic(connection).name
        for key_type in (FIND_GROUP, FIND_TRANSACTION):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
            wait_until(lambda request=request: not connection.call(request, 4).coordinators[0].error_code)
        self.producer: Any = None
        self.begin()

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)

        def asked() -> bool:
            self.producer = self.connection.call(request, 5)
            return not self.producer.error_code

        wait_until(asked)

    def commit(self, offset: int, *, add: bool = True, **who: Any) -> ErrorCode:
        producer = {"producer_id": self.producer.producer_id, "producer_epoch": self.producer.producer_epoch}
        if self.version < 5 and add:
            request = AddOffsetsToTxnRequest(transactional_id=self.name, group_id=self.name, **producer)
            wait_until(lambda: not self.connection.call(request, 3).error_code)
        answer = self.connection.call(
            TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=self.name,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=self.topic,
                        partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                    )
                ],
                **producer,
                **who,
            ),
            self.version,
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool) -> None:
        answer = self.connection.call(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.producer_epoch,
                committed=commit,
            ),
            self.version,
        )
        assert not answer.error_code
        if self.version >= 5:
            self.producer.producer_id, self.producer.producer_epoch = answer.producer_id, answer.producer_epoch

    def fetched(self, *, stable: bool = True) -> tuple[int, ErrorCode]:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=self.name, topics=topics)
        answer = self.connection.call(OffsetFetchRequest(groups=[group], require_stable=stable), 9)
        (partition,) = answer.groups[0].topics[0].partitions
        return partition.committed_offset, ErrorCode(partition.error_code)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    properties = {"transaction.state.log.num.partitions": "3"}
    with running_cluster(tmp_path_factory.mktemp("offsets"), properties=properties) as running:
        yield running


def way_to(cluster: RunningCluster, name: str, version: int) -> Way:
    return Way(Connection("127.0.0.1", cluster.brokers[1].port, client_id="wire", timeout_ms=10_000), name, version)


@pytest.mark.parametrize("version", [3, 5], ids=["first version", "second version"])
def test_offsets_are_pending_until_their_transaction_ends(cluster: RunningCluster, version: int) -> None:
    way = way_to(cluster, f"pending-{version}", version)
    assert way.commit(7) is ErrorCode.NONE
    assert way.fetched() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert way.fetched(stable=False) == (-1, ErrorCode.NONE)
    way.end(commit=True)
    wait_until(lambda: way.fetched() == (7, ErrorCode.NONE))
    wait_until(lambda: way.commit(9) is ErrorCode.NONE)
    assert way.fetched() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    way.end(commit=False)
    wait_until(lambda: way.fetched() == (7, ErrorCode.NONE))


def test_who_is_no_member_or_too_late_is_fenced(cluster: RunningCluster) -> None:
    way = way_to(cluster, "fenced", 3)
    assert way.commit(1, generation_id=4, member_id="nobody") is ErrorCode.ILLEGAL_GENERATION
    late = way.producer
    way.end(commit=False)
    assert way.commit(1) is ErrorCode.NONE, "without a group, and without a member"
    way.begin()
    fenced, way.producer = way.producer, late
    assert way.commit(2, add=False) is ErrorCode.INVALID_PRODUCER_EPOCH
    way.producer = fenced
    assert way.commit(3, add=False) is ErrorCode.INVALID_TXN_STATE, "the group is not in a transaction of this epoch"


def test_pending_offsets_outlive_a_restart_of_their_coordinators(tmp_path: Path) -> None:
    with running_cluster(tmp_path, properties={"transaction.state.log.num.partitions": "3"}) as cluster:
        way = way_to(cluster, "restarted", 5)
        assert way.commit(7) is ErrorCode.NONE
        port = cluster.brokers[1].port
        cluster.brokers[1].stop()
        cluster.start_broker(1, port).wait_until_ready()
        way.connection = Connection("127.0.0.1", port, client_id="wire", timeout_ms=10_000)
        wait_until(lambda: way.fetched()[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT)
        way.end(commit=True)
        wait_until(lambda: way.fetched() == (7, ErrorCode.NONE))
