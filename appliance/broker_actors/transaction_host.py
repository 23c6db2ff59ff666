"""The coordinators of transactions on this broker: one for each partition of `__transaction_state` that it leads.

Thin: the deciding is in `appliance.transactions`. Markers are sent by `marker_sender`; leaders ask coordinators on
other brokers by `transaction_asker`. All methods are called on the loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.broker_actors.marker_sender import MarkerSender
from appliance.broker_actors.partition_coordinator import InternalPartition, PartitionCoordinator, SendAnswer
from appliance.broker_actors.transaction_asker import TransactionAsker
from appliance.coordinator.calls import Call
from appliance.coordinator.loader import LoadSummary, load, replaying
from appliance.coordinator.moment import Moment
from appliance.coordinator.partitioner import partition_for
from appliance.coordinator.shard import ShardLimits
from appliance.server.handlers.producer_ids import ProducerIds
from appliance.server.handlers.transaction_calls import TRANSACTION_TOPIC, Guards, Place
from appliance.transactions import admin
from appliance.transactions.config import transaction_config
from appliance.transactions.context import Ending, TransactionEffect
from appliance.transactions.machine import TransactionMachine
from appliance.transactions.records import decode_record
from appliance.transactions.refusals import refuse
from appliance.transactions.stored import StoredTransactions, TransactionRecord
from appliance.wire.messages.list_transactions import ListTransactionsRequest
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)


class TransactionCoordinatorHost:
    """`broker.transactions`."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.config = transaction_config(broker.config.get)
        self.background = broker.background
        self.guards = Guards()
        self.markers = MarkerSender(broker)
        self._asker = TransactionAsker(broker, self.submit)
        self._producer_ids = ProducerIds()
        self._coordinators: dict[int, TransactionCoordinator] = {}

    def start(self) -> None:
        """Follow the leadership of `__transaction_state` from now on."""
        self._broker.partitions.on_leadership(TRANSACTION_TOPIC, self._leadership)

    def close(self) -> None:
        """Send everybody who waits to another broker."""
        for coordinator in self._coordinators.values():
            coordinator.end()
        self._coordinators.clear()
        self.markers.close()
        self._asker.close()

    def moment(self) -> Moment:
        """The time on both clocks."""
        clock = self._broker.clock
        return Moment(clock.now_ms(), clock.monotonic_ms())

    def limits_of(self, hosted: InternalPartition) -> ShardLimits:
        """Bounds of the coordinator of this partition."""
        return ShardLimits(batch_max_bytes=hosted.config.max_message_bytes)

    def new_producer_id(self) -> int | None:
        """An id that nobody has; None when none is at hand just now."""
        return self._producer_ids.take(self._broker)

    # What handlers ask for

    def submit(self, transactional_id: str, call: Call, answer: SendAnswer) -> None:
        """Let the id's coordinator decide; `answer` is called once, perhaps at once."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            answer(refuse(call, ErrorCode.NOT_COORDINATOR))
        else:
            coordinator.submit(call, answer, transactional_id)

    def begin(self, transactional_id: str, call: Call, answer: SendAnswer) -> None:
        """The same for InitProducerId, with a producer id at hand."""
        self._producer_ids.when_at_hand(self._broker, lambda: self.submit(transactional_id, call, answer))

    def ask(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        places: Sequence[Place],
        done: Callable[[Mapping[Place, ErrorCode]], None],
        *,
        add: bool,
    ) -> None:
        """Ask the id's coordinator, wherever it is, about partitions; `done` is called once, later."""
        self._asker.ask(transactional_id, producer, places, done, add=add)

    def view(self, transactional_id: str) -> TransactionMachine | ErrorCode:
        """The ids of the partition that this one belongs to, or why they cannot be looked at here."""
        coordinator = self._coordinator_of(transactional_id)
        return ErrorCode.NOT_COORDINATOR if coordinator is None else coordinator.view()

    def views(self) -> list[TransactionMachine] | ErrorCode:
        """All ids that this broker coordinates."""
        views = [coordinator.view() for _, coordinator in sorted(self._coordinators.items())]
        if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in views:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [view for view in views if isinstance(view, TransactionMachine)]

    def unknown_states(self, request: ListTransactionsRequest) -> list[str]:
        """Filters that name no state."""
        return admin.unknown_states(request)

    def create_topic(self, done: Callable[[], None]) -> None:
        """Have `__transaction_state` created; `done` is called when it is there, or could not be created."""

        def created(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _log.warning("%s could not be created: %s", TRANSACTION_TOPIC, error.name)
            done()

        self._broker.create_internal_topic(TRANSACTION_TOPIC, created)

    def _coordinator_of(self, transactional_id: str) -> TransactionCoordinator | None:
        topic = self._broker.image.topics.get(TRANSACTION_TOPIC)
        if topic is None or not topic.partitions:
            return None
        return self._coordinators.get(partition_for(transactional_id, len(topic.partitions)))

    def _leadership(self, hosted: InternalPartition, leads: bool) -> None:
        before = self._coordinators.pop(hosted.partition, None)
        if before is not None:
            before.end()
        if leads:
            coordinator = self._coordinators[hosted.partition] = TransactionCoordinator(self, hosted)
            coordinator.load()


class TransactionCoordinator(PartitionCoordinator[TransactionMachine, TransactionRecord, StoredTransactions]):
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(self, host: TransactionCoordinatorHost, hosted: InternalPartition) -> None:
        super().__init__(host, hosted)
        self._transactions_host = host
        self.epoch = hosted.leader_epoch
        """Which markers carry: those of an earlier coordinator are refused."""

    def _read(self) -> tuple[StoredTransactions, LoadSummary]:
        stored = StoredTransactions()
        return stored, load(self._hosted.read_committed_batches(), replaying(decode_record, stored))

    def _begin(self, stored: StoredTransactions) -> TransactionMachine:
        host = self._transactions_host
        return TransactionMachine(host.config, stored, host.new_producer_id)

    def _refuse(self, call: Call, error: ErrorCode) -> Struct:
        return refuse(call, error)

    def _first_effects(self, machine: TransactionMachine, now: Moment) -> list[TransactionEffect]:
        return machine.loaded(now)

    def _after_step(self, machine: TransactionMachine) -> None:
        for ending in machine.take_markers():
            self._transactions_host.markers.send(self, ending)

    # For the sender of markers

    def wants(self, ending: Ending) -> bool:
        """Whether the markers of this transaction are still to be written by this coordinator."""
        return self._machine is not None and self._machine.wants_markers(ending)

    def marker_written(self, ending: Ending, topic: str, partition: int) -> None:
        """The partition has its marker, or is no more."""
        machine = self._machine
        if machine is not None:
            self._do(
                lambda shard, now: shard.decide(lambda: machine.marker_written(ending, topic, partition, now), now)
            )
