"""What the machine of transactions answers and writes, case by case; tests/simulation has the bad days."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.transactions.config import TransactionConfig
from appliance.transactions.machine import TransactionMachine
from appliance.transactions.records import decode_record, encode_record
from appliance.transactions.states import TransactionState
from appliance.transactions.stored import EXHAUSTED_EPOCH, StoredTransactions, Transaction, TransactionRecord
from appliance.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest

NEWEST_INIT, OLD_CLIENT, NEW_CLIENT = 5, 3, 5


class Bench:
    """A machine whose writes are committed at once."""

    def __init__(self, **config: int) -> None:
        ids = itertools.count(100)
        self.machine = TransactionMachine(TransactionConfig(**config), StoredTransactions(), lambda: next(ids))
        self.now = Moment(1_000_000, 0)

    def ask(self, request: Any, version: int) -> Any:
        (answer,) = self.carry_out(self.machine.handle(Call(request, version), self.now))
        return answer.response

    def carry_out(self, effects: list[Any]) -> list[Answer]:
        answers: list[Answer] = []
        for effect in effects:
            if isinstance(effect, Write):
                for record in effect.records:
                    key, value = encode_record(record)
                    assert decode_record(key, value) == record, "as a restart would read it"
                    self.machine.replay(record)
                answers += effect.answers
            else:
                answers.append(effect)
        return answers

    def pass_ms(self, ms: int) -> None:
        self.now = Moment(self.now.wall_ms + ms, self.now.monotonic_ms + ms)
        while (event := self.machine.deadlines.pop_due(self.now.monotonic_ms)) is not None:
            self.carry_out(self.machine.due(event, self.now))

    def write_markers(self) -> list[Transaction]:
        """All markers that wait are written; as they were decided."""
        self.pass_ms(0)
        taken = self.machine.take_markers()
        for ending in taken:
            for topic, partition in sorted(ending.left):
                self.carry_out(self.machine.marker_written(ending, topic, partition, self.now))
        self.pass_ms(0)
        return [ending.transaction for ending in taken]

    def begin(
        self, producer_id: int = -1, epoch: int = -1, version: int = NEWEST_INIT, timeout_ms: int = 60_000
    ) -> Any:
        request = InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        return self.ask(request, version)

    def add(self, producer: Any, version: int = OLD_CLIENT, *, verify: bool = False, partition: int = 0) -> ErrorCode:
        request = AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name="a", partitions=[partition])],
        )
        (topic,) = self.ask(request, version).topic_results
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    def end(self, producer: Any, version: int, *, commit: bool = True) -> Any:
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        return self.ask(request, version)

    @property
    def known(self) -> Transaction:
        return self.machine.stored.by_id["t"]


def test_a_producer_that_begins_again_raises_its_epoch_and_fences_the_one_before() -> None:
    bench = Bench()
    first, second = bench.begin(), bench.begin()
    assert (first.producer_id, first.producer_epoch) == (100, 0)
    assert (second.producer_id, second.producer_epoch) == (100, 1)
    assert bench.add(first) is ErrorCode.PRODUCER_FENCED
    assert bench.add(first, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH, "as clients before KIP-588 know it"
    assert bench.end(first, version=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_a_predecessor_left_open_is_aborted_before_the_next_begins() -> None:
    bench = Bench()
    first = bench.begin()
    assert bench.add(first) is ErrorCode.NONE
    assert bench.begin().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    (decided,) = bench.write_markers()
    assert (decided.state, decided.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    assert bench.begin().producer_epoch == 2


def test_a_timeout_above_the_maximum_is_refused() -> None:
    assert Bench(max_timeout_ms=1_000).begin(timeout_ms=1_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert Bench().begin(timeout_ms=0).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_that_names_itself_raises_its_epoch_unless_it_was_fenced() -> None:
    """KIP-360."""
    bench = Bench()
    first = bench.begin()
    again = bench.begin(first.producer_id, first.producer_epoch)
    assert again.producer_epoch == 1
    repeated = bench.begin(first.producer_id, first.producer_epoch)
    assert repeated.producer_epoch == 1, "the first answer was lost"
    other = bench.begin()
    assert other.producer_epoch == 2
    assert bench.begin(first.producer_id, again.producer_epoch).error_code == ErrorCode.PRODUCER_FENCED
    assert bench.begin(first.producer_id, 0, version=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_old_client_keeps_its_epoch_and_a_repeated_end_is_answered() -> None:
    bench = Bench()
    producer = bench.begin()
    bench.add(producer)
    assert bench.end(producer, OLD_CLIENT).error_code == ErrorCode.NONE
    assert bench.add(producer) is ErrorCode.CONCURRENT_TRANSACTIONS, "markers are still on their way"
    assert bench.end(producer, OLD_CLIENT).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers()
    assert (bench.known.state, bench.known.producer_epoch) == (TransactionState.COMPLETE_COMMIT, 0)
    assert bench.end(producer, OLD_CLIENT).error_code == ErrorCode.NONE
    assert bench.end(producer, OLD_CLIENT, commit=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_each_end_gives_a_new_client_a_new_epoch_which_its_marker_carries() -> None:
    bench = Bench()
    producer = bench.begin()
    assert bench.add(producer, NEW_CLIENT) is ErrorCode.NONE
    ended = bench.end(producer, NEW_CLIENT)
    assert (ended.producer_id, ended.producer_epoch) == (100, 1)
    (decided,) = bench.write_markers()
    assert (decided.producer_epoch, decided.client_version) == (1, 2)
    assert bench.add(producer, NEW_CLIENT) is ErrorCode.PRODUCER_FENCED, "a late request of the transaction before"
    repeated = bench.end(producer, NEW_CLIENT)
    assert (repeated.error_code, repeated.producer_epoch) == (ErrorCode.NONE, 1)
    assert bench.end(producer, NEW_CLIENT, commit=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_new_client_may_abort_without_having_written() -> None:
    bench = Bench()
    producer = bench.begin()
    assert bench.end(producer, NEW_CLIENT, commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    assert bench.end(producer, NEW_CLIENT, commit=False).producer_epoch == 1
    bench.pass_ms(0)
    assert bench.known.state is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_when_epochs_are_used_up_the_next_producer_id_takes_over(commit: bool) -> None:
    bench = Bench()
    bench.begin()
    last = Transaction("t", 100, EXHAUSTED_EPOCH, 60_000, update_ms=1)
    bench.machine.replay(TransactionRecord("t", last))
    bench.add(last, NEW_CLIENT)
    ended = bench.end(last, NEW_CLIENT, commit=commit)
    assert (ended.producer_id, ended.producer_epoch) == (101, 0)
    (decided,) = bench.write_markers()
    assert (decided.producer_id, decided.producer_epoch) == (100, EXHAUSTED_EPOCH + 1), "kept for this marker"
    assert (bench.known.producer_id, bench.known.producer_epoch) == (101, 0)
    repeated = bench.end(last, NEW_CLIENT, commit=commit)
    assert (repeated.error_code, repeated.producer_id, repeated.producer_epoch) == (ErrorCode.NONE, 101, 0)


def test_a_leader_that_asks_is_told_whether_its_partition_is_in_the_transaction() -> None:
    bench = Bench()
    producer = bench.begin()
    assert bench.add(producer, 5, verify=True) is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.add(producer, 4, verify=True) is ErrorCode.TRANSACTION_ABORTABLE
    bench.add(producer)
    assert bench.add(producer, 5, verify=True) is ErrorCode.NONE
    assert bench.add(producer, 5, verify=True, partition=1) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_transaction_is_aborted_when_its_time_is_over_and_not_before() -> None:
    bench = Bench()
    producer = bench.begin(timeout_ms=5_000)
    bench.add(producer)
    bench.pass_ms(4_999)
    assert bench.known.state is TransactionState.ONGOING
    bench.pass_ms(1)
    (decided,) = bench.write_markers()
    assert decided.state is TransactionState.PREPARE_ABORT
    assert bench.known.state is TransactionState.COMPLETE_ABORT
    assert bench.end(producer, OLD_CLIENT).error_code == ErrorCode.PRODUCER_FENCED


def test_an_id_that_is_silent_for_long_is_forgotten_unless_a_transaction_is_open() -> None:
    bench = Bench(id_expiration_ms=10_000, expiry_interval_ms=1_000)
    bench.machine.loaded(bench.now)
    bench.begin()
    bench.pass_ms(9_000)
    assert "t" in bench.machine.stored.by_id
    bench.pass_ms(3_000)
    assert "t" not in bench.machine.stored.by_id
    assert bench.machine.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_new_coordinator_writes_the_markers_that_the_one_before_left() -> None:
    bench, successor = Bench(), Bench()
    producer = bench.begin()
    bench.add(producer)
    bench.end(producer, OLD_CLIENT)
    successor.machine.replay(TransactionRecord("t", bench.known))
    successor.machine.loaded(successor.now)
    assert [decided.state for decided in successor.write_markers()] == [TransactionState.PREPARE_COMMIT]
    assert successor.known.state is TransactionState.COMPLETE_COMMIT
