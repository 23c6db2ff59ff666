"""Producers write in transactions, are fenced and die while their coordinator moves and its writes fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.stored import StoredGroups, TransactionEnded
from appliance.transactions.context import Ending, TransactionEffect
from appliance.transactions.machine import TransactionMachine
from appliance.transactions.stored import TransactionRecord
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.offsets_partition import OffsetsPartition
from tests.support.seeds import seeds
from tests.support.transaction_partition import Violation
from tests.support.transaction_world import Producer, World

BAD_MS = 60_000
GOOD_MS = 20_000


def world_after_bad_days(seed: int, **options: Any) -> World:
    world = World(seed, **options)
    for number in range(4):
        Producer(world, f"id-{number}", 0, new_epochs=number % 2 == 0)
    # A second producer under an id that is in use: one of them is fenced.
    world.after(BAD_MS // 2, lambda: Producer(world, "id-0", 1_000, new_epochs=True))
    world.run(BAD_MS)
    return world


@pytest.mark.parametrize("seed", seeds(30))
def test_a_transaction_has_one_outcome_everywhere_and_its_producer_was_told_that_one(seed: int) -> None:
    world = world_after_bad_days(seed)
    world.check()
    world.heal()
    world.run(GOOD_MS)
    world.check_settled()


@pytest.mark.parametrize("seed", seeds(20))
def test_offsets_count_with_the_rest_of_their_transaction(seed: int) -> None:
    world = world_after_bad_days(seed, offsets_class=OffsetsPartition)
    world.check()
    world.heal()
    world.run(GOOD_MS)
    world.check_settled()


def test_the_bad_days_are_bad_enough() -> None:
    notes = [note for seed in range(20) for note in world_after_bad_days(seed).notes]
    assert notes.count("moved") > 60
    assert notes.count("write failed") > 100
    assert notes.count("fenced") > 20
    assert notes.count("died") > 20
    assert notes.count("committed") > 500
    assert notes.count("aborted") > 200


def broken(few: int = 20, **options: Any) -> int:
    """Seeds of `few` in which something broken is caught."""
    caught = 0
    for seed in range(few):
        try:
            world = world_after_bad_days(seed, **options)
            world.check()
            world.heal()
            world.run(GOOD_MS)
            world.check_settled()
        except Violation:
            caught += 1
    return caught


class AnswersBeforeItIsWritten(TransactionMachine):
    """Broken: the end of a transaction is acknowledged while its record is still under way."""

    def handle(self, call: Call, now: Moment) -> list[TransactionEffect]:
        effects = super().handle(call, now)
        if isinstance(call.request, EndTxnRequest) and effects and isinstance(effects[-1], Write):
            return [*effects[-1].answers, replace(effects[-1], answers=())]
        return effects


class DoesNotWaitForMarkers(TransactionMachine):
    """Broken: a transaction is complete as soon as its markers are sent."""

    def take_markers(self) -> list[Ending]:
        taken = super().take_markers()
        copies = [Ending(ending.transaction, set(ending.left)) for ending in taken]
        for ending in taken:
            ending.left.clear()
            self._context.end_soon(ending.transaction.transactional_id)
        return copies


class DoesNotFence(TransactionMachine):
    """Broken: a new producer goes on with the epoch of the one before."""

    def handle(self, call: Call, now: Moment) -> list[TransactionEffect]:
        effects = super().handle(call, now)
        if isinstance(call.request, InitProducerIdRequest) and effects and isinstance(effects[-1], Write):
            write = effects[-1]
            record = write.records[0]
            known = self.stored.by_id.get(record.transactional_id)
            if known is not None and record.transaction is not None:
                same = replace(record.transaction, producer_epoch=known.producer_epoch)
                answers = tuple(
                    Answer(
                        each.call, type(each.response)(producer_id=same.producer_id, producer_epoch=same.producer_epoch)
                    )
                    for each in write.answers
                )
                return [replace(write, records=(TransactionRecord(record.transactional_id, same),), answers=answers)]
        return effects


@pytest.mark.parametrize("variant", [AnswersBeforeItIsWritten, DoesNotWaitForMarkers, DoesNotFence])
def test_a_broken_coordinator_is_caught(variant: type[TransactionMachine]) -> None:
    assert broken(machine_class=variant) > 0


class ForgetsOpenOnes(OffsetsPartition):
    """Broken: a new coordinator of groups knows nothing of transactions that are open."""

    def loaded(self) -> StoredGroups:
        stored = super().loaded()
        stored.pending.clear()
        return stored


class CommitsAtOnce(OffsetsPartition):
    """Broken: a new coordinator of groups takes open transactions for committed ones."""

    def loaded(self) -> StoredGroups:
        stored = super().loaded()
        for producer_id in list(stored.pending):
            stored.replay(TransactionEnded(producer_id, is_commit=True))
        return stored


@pytest.mark.parametrize("variant", [ForgetsOpenOnes, CommitsAtOnce])
def test_a_broken_coordinator_of_groups_is_caught(variant: type[OffsetsPartition]) -> None:
    assert broken(offsets_class=variant) > 0
