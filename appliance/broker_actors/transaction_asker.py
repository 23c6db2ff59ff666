"""A leader asks a transaction's coordinator whether its partition is in the transaction, or lets it join (KIP-890).

Questions to one broker leave together, one request at a time. All methods are called on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.broker_actors.broker_links import BrokerLinks
from appliance.coordinator.calls import Call
from appliance.coordinator.partitioner import partition_for
from appliance.server.handlers.transaction_calls import TRANSACTION_TOPIC, Place
from appliance.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from appliance.wire.schema import Struct

VERSION = 5
REQUEST_TIMEOUT_MS = 10_000
QUESTIONS_PER_REQUEST_MAX = 1_000
WAITING_MAX = 10_000
"""Questions that wait for one broker; more are told to come again."""
CONCURRENT_BACKOFF_MS = 20
CONCURRENT_PATIENCE_MS = 100
"""How long a partition that wants to join waits for the end of the transaction before, as in Kafka."""

Codes = Mapping[Place, ErrorCode]
Done = Callable[[Codes], None]


@dataclass(eq=False, slots=True)
class _Question:
    body: AddPartitionsToTxnTransaction
    places: list[Place]
    done: Done
    give_up_ms: int


class TransactionAsker:
    """All questions of a broker's leaders."""

    def __init__(self, broker: Any, submit: Callable[[str, Call, Callable[[Struct], None]], None]) -> None:
        """`submit` gives a call to a coordinator on this broker."""
        self._broker = broker
        self._submit = submit
        self._waiting: dict[int, list[_Question]] = {}
        self._links = BrokerLinks(broker)
        self._in_flight: set[int] = set()
        self._closed = False

    def ask(
        self, transactional_id: str, producer: tuple[int, int], places: Sequence[Place], done: Done, *, add: bool
    ) -> None:
        """Ask about partitions; `done` gets a code for each, once, later."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in places:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
        body = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=not add,
            topics=list(topics.values()),
        )
        give_up_ms = self._broker.clock.monotonic_ms() + CONCURRENT_PATIENCE_MS
        question = _Question(body, list(places), done, give_up_ms)
        self._broker.background.post(lambda: self._place(question))

    def close(self) -> None:
        self._closed = True
        self._links.close()
        self._waiting.clear()

    def _place(self, question: _Question) -> None:
        if self._closed:
            return
        broker = self._broker
        topic = broker.image.topics.get(TRANSACTION_TOPIC)
        if topic is None or not topic.partitions:
            self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        leader = topic.partitions[partition_for(question.body.transactional_id, len(topic.partitions))].leader
        if leader == broker.broker_id:
            call = Call(question.body, VERSION)
            self._submit(question.body.transactional_id, call, lambda result: self._decided(question, result))
        elif leader < 0:
            self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            waiting = self._waiting.setdefault(leader, [])
            if len(waiting) >= WAITING_MAX:
                self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            waiting.append(question)
            self._send_next(leader)

    def _send_next(self, leader: int) -> None:
        waiting = self._waiting.get(leader)
        if not waiting or leader in self._in_flight:
            return
        link = self._links.to(leader)
        if link is None:
            del self._waiting[leader]
            for question in waiting:
                self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        questions, self._waiting[leader] = waiting[:QUESTIONS_PER_REQUEST_MAX], waiting[QUESTIONS_PER_REQUEST_MAX:]
        request = AddPartitionsToTxnRequest(transactions=[question.body for question in questions])
        self._in_flight.add(leader)
        link.call(request, VERSION, REQUEST_TIMEOUT_MS, lambda answer: self._came(leader, questions, answer))

    def _came(self, leader: int, questions: list[_Question], answer: Struct | Exception) -> None:
        self._in_flight.discard(leader)
        if isinstance(answer, AddPartitionsToTxnResponse) and len(answer.results_by_transaction) == len(questions):
            for question, result in zip(questions, answer.results_by_transaction, strict=True):
                self._decided(question, result)
        else:
            error = ErrorCode.NETWORK_EXCEPTION
            if isinstance(answer, AddPartitionsToTxnResponse) and answer.error_code:
                error = ErrorCode(answer.error_code)
            for question in questions:
                self._refuse(question, error)
        self._send_next(leader)

    def _decided(self, question: _Question, result: Struct) -> None:
        assert isinstance(result, AddPartitionsToTxnResult)
        codes = dict.fromkeys(question.places, ErrorCode.UNKNOWN_SERVER_ERROR)
        for topic in result.topic_results:
            for each in topic.results_by_partition:
                codes[topic.name, each.partition_index] = ErrorCode(each.partition_error_code)
        if (
            not question.body.verify_only
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and self._broker.clock.monotonic_ms() < question.give_up_ms
        ):
            self._broker.background.schedule(CONCURRENT_BACKOFF_MS, lambda: self._place(question))
            return
        question.done(codes)

    def _refuse(self, question: _Question, error: ErrorCode) -> None:
        question.done(dict.fromkeys(question.places, error))
