"""A partition of a share group in virtual time: members, a leader that moves, a share coordinator whose answers fail.

The rules are the real ones (`share_partition`, `state_machine`); the log is a list of batches. Each record's fate is
kept beside it, and every event is checked against that.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call
from appliance.coordinator.moment import Moment
from appliance.share_groups.config import PartitionLimits
from appliance.share_groups.runs import Operation, ReadBatch, Said
from appliance.share_groups.share_partition import ACCEPT, REJECT, RELEASE, RENEW, SharePartition, StateWrite
from appliance.share_groups.state_forms import result_of
from appliance.share_groups.state_machine import ShareCoordinatorConfig, ShareStateMachine
from appliance.share_groups.state_records import decode_record, encode_record
from appliance.share_groups.state_stored import Batch, StoredStates
from appliance.wire.messages import initialize_share_group_state as begin
from appliance.wire.messages import read_share_group_state as read
from appliance.wire.messages import write_share_group_state as write

TOPIC_ID = uuid.UUID(int=7)
LIMITS = PartitionLimits(lock_duration_ms=1_000, delivery_count_limit=3, max_record_locks=40)
STEP_MS = 50


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Member:
    """Someone who reads; what it believes to have, by offset, with when it got it."""

    member_id: str
    holds: dict[int, int] = field(default_factory=dict)


@dataclass
class Fate:
    """What has become of a record."""

    deliveries: int = 0
    since_load: int = 0
    """Deliveries by the present leader."""
    owner: str = ""
    free_at_ms: int = 0
    is_done: bool = False
    """Accepted or rejected, and the member was told that this is known."""
    may_be_done: bool = False
    """The same, but the answer was an error: it may be known all the same."""


class World:
    """One seed's day."""

    partition_class: type[SharePartition] = SharePartition

    def __init__(self, seed: int, partition_class: type[SharePartition] = SharePartition) -> None:
        self.random = random.Random(seed)
        self.partition_class = partition_class
        self.now_ms = 1_000
        self.leader_epoch = 0
        self.notes: Counter[str] = Counter()
        self.log: list[ReadBatch] = []
        self.log_end = 0
        self.fates: dict[int, Fate] = {}
        self.members = [Member(f"m{number}") for number in range(4)]
        self.trouble = 0.15
        self.writes: list[tuple[SharePartition, StateWrite]] = []
        topics = {TOPIC_ID: SimpleNamespace(partitions=range(1))}
        self.stored = StoredStates()
        config = ShareCoordinatorConfig(updates_per_snapshot=7)
        self.coordinator = ShareStateMachine(config, self.stored, lambda: topics)
        self._ask(
            begin.InitializeShareGroupStateRequest(
                group_id="g",
                topics=[
                    begin.InitializeStateData(
                        topic_id=TOPIC_ID,
                        partitions=[begin.PartitionData(partition=0, state_epoch=1, start_offset=0)],
                    )
                ],
            )
        )
        self.partition = self._load()

    # The share coordinator

    def _ask(self, request: Any) -> Any:
        """Decide, and commit at once: as the log would have it, by way of the bytes."""
        (effect,) = self.coordinator.handle(Call(request), Moment(self.now_ms, self.now_ms))
        if isinstance(effect, Answer):
            return result_of(effect.response)
        for record in effect.records:
            again = decode_record(*encode_record(record))
            if again != record:
                raise Violation(f"{record} is read as {again}")
            self.coordinator.replay(record)
        return result_of(effect.answers[0].response)

    def _load(self) -> SharePartition:
        request = read.ReadShareGroupStateRequest(
            group_id="g",
            topics=[
                read.ReadStateData(
                    topic_id=TOPIC_ID,
                    partitions=[read.PartitionData(partition=0, leader_epoch=self.leader_epoch)],
                )
            ],
        )
        result = self._ask(request)
        if result.error_code:
            raise Violation(f"a new leader cannot read: {result}")
        batches = [
            Batch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ]
        for fate in self.fates.values():
            fate.since_load = 0
        return self.partition_class.loaded(LIMITS, result.start_offset, batches)

    def _pump(self) -> None:
        state = self.partition.take_write()
        if state is not None:
            self.writes.append((self.partition, state))

    def _write_one(self) -> None:
        """A write comes to its end: it is known or not, and we hear of it or not."""
        if not self.writes:
            return
        partition, state = self.writes.pop(0)
        is_lost = self.random.random() < self.trouble
        result = None if is_lost and self.random.random() < 0.5 else self._ask(self._request(state))
        if partition is not self.partition:
            return
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_lost or result is None else ErrorCode(result.error_code)
        if is_lost:
            self.notes["write failed"] += 1
        for operation, told in partition.written(error):
            assert operation.done is not None
            operation.done(told)
        self._pump()

    def _request(self, state: StateWrite) -> write.WriteShareGroupStateRequest:
        rows = [
            write.StateBatch(first_offset=first, last_offset=last, delivery_state=each, delivery_count=count)
            for first, last, each, count in state.batches
        ]
        partition = write.PartitionData(
            partition=0,
            state_epoch=1,
            leader_epoch=self.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=rows,
        )
        return write.WriteShareGroupStateRequest(
            group_id="g", topics=[write.WriteStateData(topic_id=TOPIC_ID, partitions=[partition])]
        )

    # What happens

    def run(self, steps: int) -> None:
        acts = [self._produce, self._fetch, self._fetch, self._fetch, self._say, self._say, self._say]
        for _ in range(steps):
            self.now_ms += self.random.randrange(STEP_MS)
            self.random.choice(acts)()
            if self.random.random() < 0.7:
                self._write_one()
            if self.random.random() < 0.2:
                self._time()
            if self.random.random() < self.trouble / 4:
                self._move()
            if self.random.random() < self.trouble / 4:
                self._leave()
            self._check()

    def heal(self) -> None:
        """From now on nothing fails, and nothing new comes."""
        self.trouble = 0.0
        while self.writes:
            self._write_one()

    def settle(self, steps: int = 3_000) -> None:
        """Members accept everything until there is nothing left."""
        for _ in range(steps):
            self.now_ms += STEP_MS
            self._time()
            self._fetch()
            for member in self.members:
                self._say_of(member, list(member.holds), [ACCEPT])
            while self.writes:
                self._write_one()
            self._check()
            if self.partition.start_offset >= self.log_end and self.partition.is_idle:
                return
        raise Violation(f"records stay: {self.partition.runs} from {self.partition.start_offset} of {self.log_end}")

    def check_settled(self) -> None:
        """Every record was accepted or rejected, or handed out as often as it may be."""
        for offset, fate in self.fates.items():
            if not (fate.is_done or fate.may_be_done) and fate.deliveries < LIMITS.delivery_count_limit:
                raise Violation(f"record {offset} is lost after {fate.deliveries} deliveries")
        state = self.stored.states[next(iter(self.stored.states))]
        if state.start_offset != self.log_end or state.batches:
            raise Violation(f"the share coordinator believes {state} where the log ends at {self.log_end}")

    def _produce(self) -> None:
        count = self.random.randrange(1, 8)
        first = self.log_end
        if self.random.random() < 0.1:
            # Compaction, or a log that skips: no record has these offsets.
            first += self.random.randrange(1, 4)
        is_delivered = self.random.random() > 0.1
        self.log.append(ReadBatch(first, first + count - 1, is_delivered))
        self.log_end = first + count
        if is_delivered:
            self.fates |= {offset: Fate() for offset in range(first, first + count)}

    def _fetch(self) -> None:
        partition, member = self.partition, self.random.choice(self.members)
        if not partition.can_acquire:
            self.notes["full"] += 1
            return
        offset = partition.next_fetch_offset
        batches = [each for each in self.log if each.last_offset >= offset][: self.random.randrange(1, 5)]
        acquired = partition.acquire(
            member.member_id,
            offset,
            batches,
            self.now_ms,
            max_records=self.random.randrange(1, 12),
            batch_size=self.random.randrange(5),
            exactly=self.random.random() < 0.3,
        )
        self._pump()
        for first, last, count in acquired:
            for each in range(first, last + 1):
                fate = self.fates.get(each)
                if fate is None:
                    raise Violation(f"offset {each} is no record and was handed out")
                if fate.is_done:
                    raise Violation(f"record {each} is done with and was handed out again")
                if fate.owner and self.now_ms < fate.free_at_ms:
                    raise Violation(f"record {each} is {fate.owner}'s and was handed out to {member.member_id}")
                fate.deliveries += 1
                fate.since_load += 1
                if not fate.since_load <= count <= fate.deliveries:
                    raise Violation(f"record {each} was handed out {fate.deliveries} times, not {count}")
                if count > LIMITS.delivery_count_limit:
                    raise Violation(f"record {each} was handed out {count} times")
                if count > 1:
                    self.notes["again"] += 1
                fate.owner, fate.free_at_ms = member.member_id, self.now_ms + LIMITS.lock_duration_ms
                member.holds[each] = self.now_ms

    def _say(self) -> None:
        member = self.random.choice(self.members)
        if not member.holds:
            return
        offsets = self.random.sample(sorted(member.holds), self.random.randrange(1, len(member.holds) + 1))
        self._say_of(member, offsets, [ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW])

    def _say_of(self, member: Member, offsets: list[int], kinds: list[int]) -> None:
        if not offsets:
            return
        said = [(offset, self.random.choice(kinds)) for offset in sorted(offsets)]
        partition = self.partition

        def done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.notes["refused"] += 1
                return
            for offset, kind in said:
                fate = self.fates[offset]
                if kind in (ACCEPT, REJECT):
                    fate.is_done = True
                if kind != RENEW:
                    fate.owner = ""

        rows = [Said(offset, offset, [kind]) for offset, kind in said]
        for offset, kind in said:
            if kind != RENEW:
                member.holds.pop(offset, None)
                if self.fates[offset].owner == member.member_id:
                    # It may be free as soon as this is known, or when the lock is over.
                    self.fates[offset].free_at_ms = min(self.fates[offset].free_at_ms, self.now_ms)
        operation = partition.acknowledge(member.member_id, rows, self.now_ms)
        if isinstance(operation, Operation):
            operation.done = done
            for offset, kind in said:
                self.fates[offset].may_be_done |= kind in (ACCEPT, REJECT)
                if kind == RENEW and self.fates[offset].owner == member.member_id:
                    self.fates[offset].free_at_ms = self.now_ms + LIMITS.lock_duration_ms
            self._pump()
        else:
            done(operation)

    def _time(self) -> None:
        if self.partition.locks_over(self.now_ms):
            self.notes["lock over"] += 1
            self._pump()

    def _leave(self) -> None:
        member = self.random.choice(self.members)
        for offset in member.holds:
            if self.fates[offset].owner == member.member_id:
                self.fates[offset].owner = ""
        member.holds.clear()
        if self.partition.release(member.member_id):
            self.notes["left"] += 1
            self._pump()

    def _move(self) -> None:
        """Another leader: what members have is not known to it."""
        self.notes["moved"] += 1
        for operation, told in self.partition.end(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            assert operation.done is not None
            operation.done(told)
        # A write of the old leader may still come through before the new one reads.
        for partition, state in self.writes:
            if partition is self.partition and self.random.random() < 0.5:
                self._ask(self._request(state))
        self.writes.clear()
        self.leader_epoch += 1
        for member in self.members:
            member.holds.clear()
        for fate in self.fates.values():
            fate.owner = ""
        self.partition = self._load()
        self._pump()

    def _check(self) -> None:
        expected = self.partition.start_offset
        for run in self.partition.runs:
            if run.first != expected or run.last < run.first:
                raise Violation(f"the runs have holes: {self.partition.runs}")
            expected = run.last + 1
