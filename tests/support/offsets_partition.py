"""A partition of `__consumer_offsets` in the world of transactions, with the real coordinator of groups over its log.

Its writes fail at times, and it is loaded anew from its log, as after a failover. Each transactional id commits offsets
of a group of its own name; every commit has a higher offset than all before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.coordinator.calls import Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from appliance.groups.config import GroupConfig
from appliance.groups.machine import GroupMachine
from appliance.groups.records import decode_record
from appliance.groups.stored import LoadedTransactions, StoredGroups
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from appliance.wire.messages.write_txn_markers import WritableTxnMarker
from tests.support.transaction_partition import Partition, Row, Tag, Violation

TOPIC = "source"
LOADED_ANEW = 0.1
FAILED_WRITES = 0.1


class OffsetsPartition(Partition):
    """Takes a row as a commit of the group's next offset."""

    def __init__(self, random_: random.Random, moment: Callable[[], Moment]) -> None:
        super().__init__(("__consumer_offsets", 0))
        self.faulty = True
        self._random = random_
        self._moment = moment
        self._log: list[bytes] = []
        self._commits: list[tuple[Tag, int]] = []
        self._begin()

    def write(self, row: Row) -> bool:
        if not self.may_write(row):
            return False
        offset = len(self._commits) + 1
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=row.tag[0],
            group_id=row.tag[0],
            producer_id=row.producer_id,
            producer_epoch=row.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        if not self._carried_out(Call(request, 5)):
            return False
        self._commits.append((row.tag, offset))
        return super().write(row)

    def mark(self, producer_id: int, epoch: int, coordinator_epoch: int, commit: bool, new_epochs: bool) -> bool:
        if self.is_late(producer_id, epoch, coordinator_epoch, new_epochs):
            return True
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            coordinator_epoch=coordinator_epoch,
        )
        if not self._carried_out(Call(marker, 2)):
            return False
        return super().mark(producer_id, epoch, coordinator_epoch, commit, new_epochs)

    def check(self) -> None:
        """What each group has committed is what its last committed transaction said, today and after a failover."""
        expected: dict[str, int] = {}
        for tag, offset in self._commits:
            if self.outcome.get(tag):
                expected[tag[0]] = offset
        for stored in (self._machine.stored, self.loaded()):
            found = {group_id: topics[TOPIC][0].offset for group_id, topics in stored.offsets.items()}
            if found != expected:
                raise Violation(f"groups have committed {expected}, the coordinator knows of {found}")
            if set(stored.pending) != {producer_id for producer_id, rows in self.open.items() if rows}:
                raise Violation(f"open are {self.open}, the coordinator waits for {stored.pending}")

    def loaded(self) -> StoredGroups:
        """What a new coordinator knows."""
        stored = StoredGroups()
        load(self._log, replaying(decode_record, stored), LoadedTransactions(stored, decode_record))
        return stored

    def _begin(self) -> None:
        self._machine = GroupMachine(GroupConfig(), SeededRandomness(1), self.loaded())
        self._shard = CoordinatorShard(self._machine, ShardLimits())
        self._shard.decide(lambda: self._machine.loaded(self._moment()), self._moment())

    def _carried_out(self, call: Call) -> bool:
        """Whether what was asked for is in the log."""
        if self.faulty and self._random.random() < LOADED_ANEW:
            self._begin()
        failed = self.faulty and self._random.random() < FAILED_WRITES
        now = self._moment()
        self._shard.submit(call, now)
        while (batch := self._shard.take_batch(now)) is not None:
            if not failed:
                self._log.append(batch.payload)
            self._shard.batch_done(batch, ErrorCode.NOT_ENOUGH_REPLICAS if failed else ErrorCode.NONE, now)
        (answer,) = self._shard.take_answers()
        code = _code_of(answer.response)
        if failed == (code == ErrorCode.NONE):
            raise Violation(f"{call.request} is answered with {code}, its write has {'failed' if failed else 'ended'}")
        return not failed


def _code_of(response: object) -> int:
    """Of the answer to a commit, or to a marker."""
    topics = getattr(response, "topics", None)
    return topics[0].partitions[0].error_code if topics else response.error_code
