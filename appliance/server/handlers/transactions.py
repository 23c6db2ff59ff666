"""InitProducerId 0-5, AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5, TxnOffsetCommit 0-5,
DescribeTransactions 0, ListTransactions 0-2, WriteTxnMarkers 1-2.

- What concerns one transactional id goes to its coordinator, which says NOT_COORDINATOR where it is not, and
  COORDINATOR_LOAD_IN_PROGRESS while it is still reading its log.
- AddPartitionsToTxn up to v3 comes from a client and fails as a whole if one partition does not exist: the others are
  OPERATION_NOT_ATTEMPTED. From v4 on leaders ask for many transactions at once (KIP-890).
- TxnOffsetCommit is for the group's coordinator, which asks the transaction's one whether the group's partition of
  `__consumer_offsets` is in the transaction, or lets it join from v5 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.coordinator.calls import Call
from appliance.coordinator.partitioner import partition_for
from appliance.groups.refusals import refused_transactional_commit
from appliance.partition.transaction_checks import is_open
from appliance.server.context import Broker
from appliance.server.dispatcher import Handler, HandlerEntry
from appliance.server.handlers import txn_markers
from appliance.server.handlers.find_coordinator import OFFSETS_TOPIC
from appliance.server.handlers.group_calls import answer_or_wait, call_of, coordinators_of
from appliance.server.handlers.produce_transactions import VERIFICATION
from appliance.server.handlers.transaction_calls import Place, transactions_of
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.messages import describe_transactions, list_transactions
from appliance.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from appliance.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from appliance.wire.schema import Struct

BY_BROKERS_SINCE = 4
ADDS_ITSELF_SINCE = 5
"""TxnOffsetCommit: no AddOffsetsToTxn goes before."""
ABORTABLE_SINCE = 4
"""TxnOffsetCommit knows TRANSACTION_ABORTABLE."""
_COME_AGAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def transaction_handlers(plain_producer_ids: Handler) -> dict[int, HandlerEntry]:
    """Handlers of all APIs of transactions, by API key; producers without a transactional id go elsewhere."""

    def init(broker: Broker, request: Request) -> Struct | Pending | bytes | None:
        body = cast(InitProducerIdRequest, request.body)
        if body.transactional_id is None:
            return plain_producer_ids(broker, request)
        if not body.transactional_id:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        transactional_id = body.transactional_id
        return answer_or_wait(
            request, lambda answer: transactions_of(broker).begin(transactional_id, call_of(request), answer)
        )

    return {
        ApiKey.INIT_PRODUCER_ID: HandlerEntry(init),
        ApiKey.ADD_PARTITIONS_TO_TXN: HandlerEntry(add_partitions, error=add_partitions_failed),
        ApiKey.ADD_OFFSETS_TO_TXN: HandlerEntry(add_offsets),
        ApiKey.END_TXN: HandlerEntry(end),
        ApiKey.WRITE_TXN_MARKERS: HandlerEntry(txn_markers.handle, error=txn_markers.failed),
        ApiKey.TXN_OFFSET_COMMIT: HandlerEntry(commit_offsets, error=commit_offsets_failed),
        ApiKey.DESCRIBE_TRANSACTIONS: HandlerEntry(describe, error=describe_failed),
        ApiKey.LIST_TRANSACTIONS: HandlerEntry(list_all),
    }


def end(broker: Broker, request: Request) -> Struct | Pending:
    transactional_id = cast(EndTxnRequest, request.body).transactional_id
    return answer_or_wait(
        request, lambda answer: transactions_of(broker).submit(transactional_id, call_of(request), answer)
    )


# Joining


def add_partitions(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(AddPartitionsToTxnRequest, request.body)
    if request.api_version >= BY_BROKERS_SINCE:
        return answer_or_wait(request, lambda answer: _add_many(broker, request, body, answer))
    asked = AddPartitionsToTxnTransaction(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )
    if (unknown := _unknown(broker, asked)) is not None:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=unknown.topic_results)

    def start(answer: Callable[[Struct], None]) -> None:
        def decided(result: Struct) -> None:
            topics = cast(AddPartitionsToTxnResult, result).topic_results
            answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))

        transactions_of(broker).submit(asked.transactional_id, call_of(request, asked), decided)

    return answer_or_wait(request, start)


def _add_many(
    broker: Broker, request: Request, body: AddPartitionsToTxnRequest, answer: Callable[[Struct], None]
) -> None:
    results: dict[int, AddPartitionsToTxnResult] = {}
    count = len(body.transactions)

    def decided(number: int, result: Struct) -> None:
        results[number] = cast(AddPartitionsToTxnResult, result)
        if len(results) == count:
            answer(AddPartitionsToTxnResponse(results_by_transaction=[results[each] for each in range(count)]))

    if not count:
        answer(AddPartitionsToTxnResponse())
    for number, asked in enumerate(body.transactions):
        unknown = None if asked.verify_only else _unknown(broker, asked)
        if unknown is not None:
            decided(number, unknown)
            continue
        call = call_of(request, asked)
        transactions_of(broker).submit(asked.transactional_id, call, partial(decided, number))


def _unknown(broker: Broker, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult | None:
    """The answer when some of the partitions do not exist; None when all do.

    So a coordinator that cannot find a partition later knows that it was deleted.
    """

    def code_of(topic: str, partition: int) -> ErrorCode:
        if broker.image.partition(topic, partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    result = _results(asked, code_of)
    codes = {each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition}
    return result if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes else None


def _results(
    asked: AddPartitionsToTxnTransaction, code_of: Callable[[str, int], ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=code_of(topic.name, partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )


def add_partitions_failed(request: Request, code: ErrorCode, message: str | None) -> AddPartitionsToTxnResponse:
    """The answer when everything failed alike."""
    body = cast(AddPartitionsToTxnRequest, request.body)
    if request.api_version >= BY_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    asked = AddPartitionsToTxnTransaction(topics=body.v3_and_below_topics)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(asked, lambda *_: code).topic_results)


def add_offsets(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(AddOffsetsToTxnRequest, request.body)
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = partition_for(body.group_id, len(topic.partitions))
    asked = AddPartitionsToTxnTransaction(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        topics=[AddPartitionsToTxnTopic(name=OFFSETS_TOPIC, partitions=[partition])],
    )
    # To the coordinator it is a client's AddPartitionsToTxn.
    call = Call(asked, min(request.api_version, BY_BROKERS_SINCE - 1))

    def start(answer: Callable[[Struct], None]) -> None:
        def decided(result: Struct) -> None:
            (of_topic,) = cast(AddPartitionsToTxnResult, result).topic_results
            answer(AddOffsetsToTxnResponse(error_code=of_topic.results_by_partition[0].partition_error_code))

        transactions_of(broker).submit(body.transactional_id, call, decided)

    return answer_or_wait(request, start)


# Offsets


def commit_offsets(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(TxnOffsetCommitRequest, request.body)
    response = TxnOffsetCommitResponse()
    known: list[TxnOffsetCommitRequestTopic] = []
    for topic in body.topics:
        there = [each for each in topic.partitions if broker.image.partition(topic.name, each.partition_index)]
        missing = [each.partition_index for each in topic.partitions if each not in there]
        if there:
            known.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=there))
        if missing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [TxnOffsetCommitResponsePartition(partition_index=each, error_code=code) for each in missing]
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    if not known:
        return response
    asked = TxnOffsetCommitRequest(
        transactional_id=body.transactional_id,
        group_id=body.group_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        topics=known,
    )

    def start(answer: Callable[[Struct], None]) -> None:
        def decided(answered: Struct) -> None:
            response.topics = [*cast(TxnOffsetCommitResponse, answered).topics, *response.topics]
            answer(response)

        _commit_known(broker, request, asked, decided)

    return answer_or_wait(request, start)


def _commit_known(
    broker: Broker, request: Request, asked: TxnOffsetCommitRequest, answer: Callable[[Struct], None]
) -> None:
    """Find the group's partition in the transaction, then let the group decide."""

    def submit() -> None:
        coordinators_of(broker).submit(asked.group_id, call_of(request, asked), answer)

    if not asked.group_id:
        answer(refused_transactional_commit(asked, ErrorCode.INVALID_GROUP_ID))
        return
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    count = 0 if topic is None else len(topic.partitions)
    index = partition_for(asked.group_id, count) if count else -1
    hosted = broker.partitions.get(OFFSETS_TOPIC, index)
    producer = (asked.producer_id, asked.producer_epoch)
    if not asked.transactional_id:
        answer(refused_transactional_commit(asked, ErrorCode.INVALID_REQUEST))
        return
    adds = request.api_version >= ADDS_ITSELF_SINCE
    if hosted is None or hosted.refusal() or is_open(hosted.log.producer_state, *producer):
        submit()
        return
    if not adds and not broker.config.get(VERIFICATION):
        submit()
        return
    guards = transactions_of(broker).guards
    guard = guards.watch(OFFSETS_TOPIC, index, *producer)

    def asked_for(codes: Mapping[Place, ErrorCode]) -> None:
        code = codes[OFFSETS_TOPIC, index]
        if not guards.end(OFFSETS_TOPIC, index, asked.producer_id, guard) and not code:
            code = ErrorCode.INVALID_TXN_STATE
        if code:
            answer(refused_transactional_commit(asked, _told(code, request.api_version)))
        else:
            submit()

    transactions_of(broker).ask(asked.transactional_id, producer, [(OFFSETS_TOPIC, index)], asked_for, add=adds)


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """To a client, from what the transaction's coordinator said."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code in _COME_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_ITSELF_SINCE):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def commit_offsets_failed(request: Request, code: ErrorCode, message: str | None) -> TxnOffsetCommitResponse:
    """The answer when everything failed alike."""
    return refused_transactional_commit(cast(TxnOffsetCommitRequest, request.body), code)


# Looking


def describe(broker: Broker, request: Request) -> Struct:
    body = cast(describe_transactions.DescribeTransactionsRequest, request.body)
    states = []
    for transactional_id in body.transactional_ids:
        view = transactions_of(broker).view(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if isinstance(view, ErrorCode):
            state = describe_transactions.TransactionState(error_code=view, transactional_id=transactional_id)
        else:
            state = view.describe(transactional_id)
        states.append(state)
    return describe_transactions.DescribeTransactionsResponse(transaction_states=states)


def describe_failed(
    request: Request, code: ErrorCode, message: str | None
) -> describe_transactions.DescribeTransactionsResponse:
    """The answer when everything failed alike."""
    body = cast(describe_transactions.DescribeTransactionsRequest, request.body)
    return describe_transactions.DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(error_code=code, transactional_id=each)
            for each in body.transactional_ids
        ]
    )


def list_all(broker: Broker, request: Request) -> Struct:
    body = cast(list_transactions.ListTransactionsRequest, request.body)
    coordinators = transactions_of(broker)
    views = coordinators.views()
    if isinstance(views, ErrorCode):
        return list_transactions.ListTransactionsResponse(error_code=views)
    now = coordinators.moment()
    try:
        rows = [row for view in views for row in view.list_transactions(body, now)]
    except KafkaError as error:
        return list_transactions.ListTransactionsResponse(error_code=error.code)
    return list_transactions.ListTransactionsResponse(
        unknown_state_filters=coordinators.unknown_states(body), transaction_states=rows
    )
