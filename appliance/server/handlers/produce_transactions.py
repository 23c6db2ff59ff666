"""The first batch of a transaction in a partition: its leader asks the transaction's coordinator first (KIP-890).

Up to version 11 of Produce the client has added the partition before, which is only verified; from 12 on the leader
adds it. Later batches of the transaction need no question: while it is open here, the coordinator knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from appliance.base.errors import ErrorCode
from appliance.partition.transaction_checks import is_open
from appliance.server.context import Broker
from appliance.server.handlers.transaction_calls import Guard, Place, transactions_of

if TYPE_CHECKING:
    from appliance.server.handlers.produce_results import PartitionResult

VERIFICATION = "transaction.partition.verification.enable"
ADDS_ITSELF_SINCE = 12
ABORTABLE_SINCE = 11
_COME_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def unverified(results: list[PartitionResult]) -> list[PartitionResult]:
    """Those with a batch that may be the first of its transaction in the partition."""
    return [
        result
        for result in results
        if result.hosted is not None
        and result.header is not None
        and result.header.is_transactional
        and not is_open(result.hosted.log.producer_state, result.header.producer_id, result.header.producer_epoch)
    ]


def verify(
    broker: Broker, transactional_id: str, version: int, results: list[PartitionResult], then: Callable[[], None]
) -> None:
    """Ask about the partitions of these results; those that may not be written fail. `then` is called once, later."""
    if version < ADDS_ITSELF_SINCE and not broker.config.get(VERIFICATION):
        broker.background.post(then)
        return
    by_producer: dict[tuple[int, int], list[PartitionResult]] = {}
    for result in results:
        if result.header is not None:
            by_producer.setdefault((result.header.producer_id, result.header.producer_epoch), []).append(result)
    left = len(by_producer)
    coordinators = transactions_of(broker)

    def asked(guarded: list[tuple[PartitionResult, Place, Guard]], codes: Mapping[Place, ErrorCode]) -> None:
        nonlocal left
        for result, place, guard in guarded:
            producer_id = result.header.producer_id if result.header is not None else -1
            code = codes[place]
            if not coordinators.guards.end(*place, producer_id, guard) and not code:
                code = ErrorCode.INVALID_TXN_STATE
            if code:
                result.fail(told(code, version), f"the transaction's coordinator said {code.name}")
            else:
                _check_first(result, version)
        left -= 1
        if not left:
            then()

    for producer, of_producer in by_producer.items():
        guarded: list[tuple[PartitionResult, Place, Guard]] = []
        for result in of_producer:
            hosted = result.hosted
            if hosted is not None:
                place = (hosted.topic, hosted.partition)
                guarded.append((result, place, coordinators.guards.watch(*place, *producer)))
        coordinators.ask(
            transactional_id,
            producer,
            [place for _, place, _ in guarded],
            partial(asked, guarded),
            add=version >= ADDS_ITSELF_SINCE,
        )


def _check_first(result: PartitionResult, version: int) -> None:
    """A producer that is not known here begins at sequence 0, where each transaction has its own epoch."""
    hosted, header = result.hosted, result.header
    if hosted is None or header is None or version < ADDS_ITSELF_SINCE or not header.base_sequence:
        return
    if hosted.log.producer_state.entry_of(header.producer_id) is None:
        result.fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the producer's earlier batches are not here")


def told(code: ErrorCode, version: int) -> ErrorCode:
    """To a client, in a code that it handles well, from what the transaction's coordinator said."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    # NOT_ENOUGH_REPLICAS lets old clients try again without looking for another leader.
    if code in _COME_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_ITSELF_SINCE):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
