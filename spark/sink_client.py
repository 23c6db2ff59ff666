"""The client of a sink: batches of a producer id, and the requests that a transaction needs.

Versions are those before KIP-890: partitions are added before they are written to, and each task begins with an epoch
of its own. An answer that is lost is asked for again: every request here may come twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost, error_of
from appliance.client.results import ProduceResult
from appliance.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from appliance.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from appliance.wire.schema import Request, Struct

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
LAST_PRODUCE_VERSION = 11
PAUSE_S = 0.1

Response = TypeVar("Response", bound=Struct)


class SinkClient(Client):
    """See the module. Raises everywhere: KafkaError, ConnectionLost, CallTimedOut."""

    def __enter__(self) -> SinkClient:
        return self

    def produce_as(self, tp: TopicPartition, batch: bytes, transactional_id: str | None) -> None:
        """Append a batch with a producer id and a sequence: one that came twice is there once."""

        def ask(
            connection: Connection, wanted: dict[TopicPartition, None], limit_ms: int
        ) -> Mapping[TopicPartition, ProduceResult | KafkaError]:
            data = PartitionProduceData(index=tp.partition, records=memoryview(batch))
            topics = [TopicProduceData(name=tp.topic, partition_data=[data])]
            request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=limit_ms, topic_data=topics)
            version = min(connection.common_version(ProduceRequest, limit_ms), LAST_PRODUCE_VERSION)
            got = connection.call(request, version, limit_ms).responses[0].partition_responses[0]
            if got.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return {tp: ProduceResult(got.base_offset, got.log_append_time_ms)}
            what = f"Produce to {tp}" + (f": {got.error_message}" if got.error_message else "")
            return {tp: KafkaError(error_of(got.error_code), what)}

        self._asker.ask_leaders({tp: None}, ask)

    def new_producer(self, transactional_id: str | None, timeout_ms: int) -> tuple[int, int]:
        """A producer id and epoch. With a transactional id whoever had it before is fenced, its transaction ended."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if transactional_id is None:
            got = self.call_version(request, 4)
            if got.error_code != ErrorCode.NONE:
                raise KafkaError(error_of(got.error_code), "InitProducerId")
        else:
            got = self._ask(transactional_id, TRANSACTION, request, 4, lambda answer: [answer.error_code])
        return got.producer_id, got.producer_epoch

    def add_partition(self, transactional_id: str, producer: tuple[int, int], tp: TopicPartition) -> None:
        """Make a partition part of the transaction, before the first batch goes there."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition])],
        )
        self._ask(
            transactional_id,
            TRANSACTION,
            request,
            3,
            lambda answer: [
                partition.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ],
        )

    def commit_offset(
        self, transactional_id: str, producer: tuple[int, int], group_id: str, tp: TopicPartition, offset: int
    ) -> None:
        """Commit an offset of a group as part of the transaction."""
        added = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
        )
        self._ask(transactional_id, TRANSACTION, added, 3, lambda answer: [answer.error_code])
        partition = TxnOffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset)
        commit = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=tp.topic, partitions=[partition])],
        )
        self._ask(
            group_id,
            GROUP,
            commit,
            3,
            lambda answer: [part.error_code for topic in answer.topics for part in topic.partitions],
        )

    def end_transaction(self, transactional_id: str, producer: tuple[int, int], commit: bool) -> None:
        """Commit or abort; returns when that is decided for good."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        self._ask(transactional_id, TRANSACTION, request, 3, lambda answer: [answer.error_code])

    def committed_offset(self, group_id: str, tp: TopicPartition) -> int:
        """What a group has committed, once no transaction about it is open; -1 for nothing."""
        topics = [OffsetFetchRequestTopic(name=tp.topic, partition_indexes=[tp.partition])]
        request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
        got = self._ask(
            group_id,
            GROUP,
            request,
            7,
            lambda answer: [
                answer.error_code,
                *(part.error_code for topic in answer.topics for part in topic.partitions),
            ],
        )
        return max((part.committed_offset for topic in got.topics for part in topic.partitions), default=-1)

    def _ask(
        self,
        key: str,
        kind: int,
        request: Request[Response],
        version: int,
        errors: Callable[[Response], list[int]],
    ) -> Response:
        """Ask the coordinator of a group or transactional id, wherever it is by now."""
        deadline_s = time.monotonic() + 2 * self.timeout_ms / 1000
        while True:
            try:
                found = self.call_version(FindCoordinatorRequest(key=key, key_type=kind), 3)
                code = error_of(found.error_code)
                if code == ErrorCode.NONE:
                    response = self.call_version(request, version, found.node_id)
                    failed = [error_of(each) for each in errors(response) if each != ErrorCode.NONE]
                    if not failed:
                        return response
                    code = failed[0]
                failure: Exception = KafkaError(code, f"{type(request).__name__} for {key}")
                if not code.retriable:
                    raise failure
            except (ConnectionLost, CallTimedOut) as error:
                failure = error
            if time.monotonic() > deadline_s:
                raise failure
            time.sleep(PAUSE_S)

    def call_version(self, request: Request[Response], version: int, broker_id: int = -1) -> Response:
        """`call` in a certain version."""
        return self._asker.connect(broker_id).call(request, version, self.timeout_ms)
