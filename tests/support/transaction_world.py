"""A world for transactions: producers, partitions that take data and markers, and a coordinator that moves.

With `offsets_class` one of the partitions holds offsets of groups, written by the groups' own coordinator.

Everything happens at virtual milliseconds out of one heap and one seed. The network delays, doubles and loses, writes
of the coordinator are slow or fail, and each new coordinator begins with what is in the log. Partitions do what a
leader does: an old epoch is refused, a first batch is added to (or looked up in) the transaction first, and a marker
ends what its producer has open. `World.check` names what must never happen (`Violation`, with the seed).

Without new epochs at each end (before KIP-890) a late or doubled request cannot be told from one of the next
transaction, by us as by Apache Kafka. So producers of that kind live behind a network that loses and no more.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import Batch, CoordinatorShard, ShardLimits
from appliance.transactions.config import TransactionConfig
from appliance.transactions.context import Ending
from appliance.transactions.machine import TransactionMachine
from appliance.transactions.records import decode_record
from appliance.transactions.stored import StoredTransactions
from appliance.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.schema import Struct
from tests.support.offsets_partition import OffsetsPartition
from tests.support.transaction_partition import Partition, Row, Violation

WALL_START_MS = 1_700_000_000_000
TIMEOUT_MS = 8_000
"""Of a transaction."""
RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
}


@dataclass
class Faults:
    """How bad a day is."""

    lost: float = 0.02
    doubled: float = 0.05
    latency_max_ms: int = 40
    late: float = 0.03
    failed_writes: float = 0.08
    slow_writes: float = 0.01
    moves_every_ms: int = 6_000
    producers_die: float = 0.02


class World:
    """One coordinator, its log, producers and partitions."""

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        machine_class: type[TransactionMachine] = TransactionMachine,
        offsets_class: type[OffsetsPartition] | None = None,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.now_ms = 0
        self.resting = False
        self.notes: list[str] = []
        self.log: list[bytes] = []
        self.partitions = {("t", n): Partition(("t", n)) for n in range(3)}
        self.offsets = None if offsets_class is None else offsets_class(self.random, lambda: self.moment)
        if self.offsets is not None:
            self.partitions[self.offsets.name] = self.offsets
        self.next_producer_id = 1_000
        self.wrote: dict[tuple[str, int, int], set[tuple[str, int]]] = {}
        self.asked: dict[tuple[str, int, int], bool] = {}
        """How its producer wanted a try to end."""
        self.told: dict[tuple[str, int, int], bool] = {}
        self._machine_class = machine_class
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._waiting: dict[Call, Callable[[Struct], None]] = {}
        self._generation = 0
        self._under_way: list[Batch] = []
        self._last_write_ends_ms = 0
        self._tick_ms = 0
        self._load()
        if self.faults.moves_every_ms:
            self.after(self.faults.moves_every_ms, self._move)

    # Time and network

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, event))

    def send(self, event: Callable[[], None], *, new_epochs: bool) -> None:
        """Over a network that is bad in every way; without new epochs only lossy."""
        if self.random.random() < self.faults.lost:
            return
        copies = 2 if new_epochs and self.random.random() < self.faults.doubled else 1
        for _ in range(copies):
            late = new_epochs and self.random.random() < self.faults.late
            delay_ms = self.random.randint(500, 6_000) if late else self.random.randint(0, self.faults.latency_max_ms)
            self.after(delay_ms, event)

    def run(self, until_ms: int) -> None:
        end_ms = self.now_ms + until_ms
        while self._events and self._events[0][0] <= end_ms:
            due_ms, _, event = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, due_ms)
            event()
        self.now_ms = end_ms

    @property
    def moment(self) -> Moment:
        return Moment(WALL_START_MS + self.now_ms, self.now_ms)

    # The coordinator

    def new_producer_id(self) -> int | None:
        if self.random.random() < self.faults.lost:
            return None
        self.next_producer_id += 1
        return self.next_producer_id

    def _load(self) -> None:
        stored = StoredTransactions()
        load(self.log, replaying(decode_record, stored))
        self.machine = self._machine_class(TransactionConfig(), stored, self.new_producer_id)
        self.shard = CoordinatorShard(self.machine, ShardLimits())
        self.shard.decide(lambda: self.machine.loaded(self.moment), self.moment)
        self._pump()

    def _move(self) -> None:
        self.after(self.random.randint(1, 2 * self.faults.moves_every_ms or 1), self._move)
        if not self.faults.moves_every_ms:
            return
        self.notes.append("moved")
        self._generation += 1
        self._tick_ms = 0
        for batch in self._under_way:
            # What was being written may have reached the next leader, in order, or not.
            if self.random.random() < 0.5:
                break
            self.log.append(batch.payload)
        self._under_way = []
        self.shard.unload()
        self._send_answers()
        self._waiting.clear()
        self._load()

    def request(self, call: Call, transactional_id: str, answer: Callable[[Struct], None], *, new_epochs: bool) -> None:
        """From a client or a leader, over the network both ways."""

        def arrive() -> None:
            mine = Call(call.request, call.version)
            self._waiting[mine] = lambda response: self.send(lambda: answer(response), new_epochs=new_epochs)
            self.shard.submit(mine, self.moment, after_writes_of=transactional_id)
            self._pump()

        self.send(arrive, new_epochs=new_epochs)

    def _pump(self) -> None:
        self._send_answers()
        generation = self._generation
        while (batch := self.shard.take_batch(self.moment)) is not None:
            self._under_way.append(batch)
            slow = self.random.random() < self.faults.slow_writes
            delay_ms = self.random.randint(4_000, 7_000) if slow else self.random.randint(0, 20)
            # Writes end in their order.
            self._last_write_ends_ms = max(self._last_write_ends_ms, self.now_ms + delay_ms)
            wait_ms = self._last_write_ends_ms - self.now_ms
            self.after(wait_ms, lambda batch=batch: self._written(batch, generation))
        for ending in self.machine.take_markers():
            for partition in sorted(ending.left):
                self._mark(ending, partition, generation)
        due = self.shard.next_due_ms()
        if due is not None and not self.now_ms < self._tick_ms <= due + 1:
            self._tick_ms = max(due, self.now_ms) + 1
            self.after(self._tick_ms - self.now_ms, lambda: self._tick(generation))

    def _tick(self, generation: int) -> None:
        if generation == self._generation:
            self._tick_ms = 0
            self.shard.tick(self.moment)
            self._pump()

    def _written(self, batch: Batch, generation: int) -> None:
        if generation != self._generation:
            return
        self._under_way.remove(batch)
        failed = self.random.random() < self.faults.failed_writes
        if failed:
            self.notes.append("write failed")
        else:
            self.log.append(batch.payload)
        error = ErrorCode.NOT_ENOUGH_REPLICAS if failed else ErrorCode.NONE
        self.shard.batch_done(batch, error, self.moment)
        self._pump()

    def _send_answers(self) -> None:
        for each in self.shard.take_answers():
            answer = self._waiting.pop(each.call, None)
            if answer is not None:
                answer(each.response)

    def _mark(self, ending: Ending, partition: tuple[str, int], generation: int) -> None:
        """Until it is written; a marker of a coordinator that has been replaced may still arrive."""
        if generation != self._generation or partition not in ending.left:
            return
        txn = ending.transaction
        commit = txn.state.name == "PREPARE_COMMIT"
        new_epochs = txn.client_version >= 2

        def arrive() -> None:
            marked = self.partitions[partition].mark(
                txn.producer_id, txn.producer_epoch, generation, commit, new_epochs
            )
            if marked:
                self.send(done, new_epochs=new_epochs)

        def done() -> None:
            if generation == self._generation:
                self.shard.decide(lambda: self.machine.marker_written(ending, *partition, self.moment), self.moment)
                self._pump()

        self.send(arrive, new_epochs=new_epochs)
        self.after(1_000, lambda: self._mark(ending, partition, generation))

    # Promises

    def heal(self) -> None:
        """From now on the days are good, and nobody begins a new transaction."""
        self.faults = Faults(0, 0, 5, 0, 0, 0, 0, 0)
        if self.offsets is not None:
            self.offsets.faulty = False
        self.resting = True

    def check(self) -> None:
        """What was written in one transaction has one outcome everywhere, and the one that its producer was told."""
        for tag, places in self.wrote.items():
            outcomes = {self.partitions[place].outcome.get(tag) for place in places} - {None}
            if True in outcomes and self.asked.get(tag) is not True:
                raise Violation(f"seed {self.seed}: {tag} is committed, which its producer never asked for")
            if len(outcomes) > 1:
                raise Violation(f"seed {self.seed}: {tag} is torn: {outcomes}")
            if tag in self.told and outcomes and outcomes != {self.told[tag]}:
                raise Violation(f"seed {self.seed}: {tag} was told {self.told[tag]}, but is {outcomes}")
        if self.offsets is not None:
            try:
                self.offsets.check()
            except Violation as broken:
                raise Violation(f"seed {self.seed}: {broken}") from broken

    def check_settled(self) -> None:
        """Nothing is left open, and everything that was told has happened."""
        self.check()
        for partition in self.partitions.values():
            if any(partition.open.values()):
                raise Violation(f"seed {self.seed}: {partition.name} has open transactions: {partition.open}")
        for tag, commit in self.told.items():
            for place in self.wrote.get(tag, ()):
                if self.partitions[place].outcome.get(tag) is not commit:
                    raise Violation(f"seed {self.seed}: {tag} was told {commit}, {place} does not have it")


class Producer:
    """Begins transactions under one id, writes to some partitions, and ends them; now and then dies and comes again."""

    def __init__(self, world: World, transactional_id: str, number: int, new_epochs: bool) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.number = number
        self.new_epochs = new_epochs
        self.producer_id, self.epoch = -1, -1
        self.turn = 0
        self.dead = False
        self._step = 0
        self._init()

    def _ask(self, request: Struct, version: int, answered: Callable[[Struct], None]) -> None:
        """Ask until there is an answer; an answer to an earlier step means nothing."""
        self._step += 1
        step = self._step

        def take(response: Struct) -> None:
            if step == self._step and not self.dead:
                self._step += 1
                answered(response)

        def again() -> None:
            if step == self._step and not self.dead:
                self.world.request(Call(request, version), self.transactional_id, take, new_epochs=self.new_epochs)
                self.world.after(2_000, again)

        again()

    def _retry(self, action: Callable[[], None]) -> None:
        self.world.after(self.world.random.randint(20, 200), lambda: None if self.dead else action())

    def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )

        def answered(response: Struct) -> None:
            if response.error_code in RETRIABLE:
                self._retry(self._init)
            elif response.error_code:
                self.world.notes.append("fenced")
                self._come_again()
            else:
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                self._begin()

        self._ask(request, 5, answered)

    def _come_again(self) -> None:
        self.producer_id, self.epoch = -1, -1
        self._retry(self._init)

    def _begin(self) -> None:
        world = self.world
        if world.resting:
            return
        self.turn += 1
        if world.random.random() < world.faults.producers_die:
            world.notes.append("died")
            self.dead = True
            world.after(world.random.randint(0, 3_000), lambda: _reborn(self))
            return
        names = sorted(world.partitions)
        chosen = world.random.sample(names, world.random.randint(0 if self.new_epochs else 1, len(names)))
        self._write(chosen)

    @property
    def tag(self) -> tuple[str, int, int]:
        return (self.transactional_id, self.number, self.turn)

    def _write(self, left: list[tuple[str, int]]) -> None:
        if not left:
            self._end(commit=self.world.random.random() < 0.7 and bool(self.world.wrote.get(self.tag)))
            return
        place, rest = left[0], left[1:]
        topic = AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])
        request = AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[topic],
        )

        def answered(response: Struct) -> None:
            code = response.topic_results[0].results_by_partition[0].partition_error_code
            if code in RETRIABLE:
                self._retry(lambda: self._write(left))
            elif code:
                self.world.notes.append("fenced")
                self._come_again()
            else:
                self._append(place)
                self._write(rest)

        self._ask(request, 5 if self.new_epochs else 3, answered)

    def _append(self, place: tuple[str, int]) -> None:
        if self.world.partitions[place].write(Row(self.tag, self.producer_id, self.epoch)):
            self.world.wrote.setdefault(self.tag, set()).add(place)

    def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        tag = self.tag
        self.world.asked[tag] = commit

        def answered(response: Struct) -> None:
            if response.error_code in RETRIABLE:
                self._retry(lambda: self._end(commit=commit))
            elif response.error_code:
                self.world.notes.append("fenced")
                self._come_again()
            else:
                self.world.notes.append("committed" if commit else "aborted")
                self.world.told[tag] = commit
                if self.new_epochs:
                    self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                self._begin()

        self._ask(request, 5 if self.new_epochs else 4, answered)


def _reborn(dead: Producer) -> Producer:
    return Producer(dead.world, dead.transactional_id, dead.number + 1, dead.new_epochs)
