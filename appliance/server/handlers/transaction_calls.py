"""From a request to the coordinator of its transactional id, and from a leader to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.partition.transaction_checks import NEW_EPOCH_AT_END
from appliance.server.context import Broker
from appliance.wire.messages import describe_transactions, list_transactions
from appliance.wire.schema import Struct

TRANSACTION_TOPIC = "__transaction_state"

Place = tuple[str, int]
"""Topic and partition."""


class Guard:
    """Watches a partition while a leader asks about a producer: a marker that comes meanwhile voids the answer."""

    __slots__ = ("epoch", "is_valid")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_valid = True


class Guards:
    """All guards of a broker, by topic, partition and producer id."""

    def __init__(self) -> None:
        self._watching: dict[tuple[str, int, int], list[Guard]] = {}

    def watch(self, topic: str, partition: int, producer_id: int, epoch: int) -> Guard:
        guard = Guard(epoch)
        self._watching.setdefault((topic, partition, producer_id), []).append(guard)
        return guard

    def end(self, topic: str, partition: int, producer_id: int, guard: Guard) -> bool:
        """Whether no marker came since it began to watch."""
        key = (topic, partition, producer_id)
        guards = self._watching.get(key, [])
        if guard in guards:
            guards.remove(guard)
            if not guards:
                del self._watching[key]
        return guard.is_valid

    def marker_comes(self, topic: str, partition: int, producer_id: int, epoch: int, transaction_version: int) -> None:
        """A transaction of this producer ends here: the one that is asked about, or the one before it.

        A producer that gets a new epoch with each end (KIP-890) begins with it while markers of the last transaction
        are still on their way; these carry the same epoch. Others begin when all markers are written.
        """
        for guard in self._watching.get((topic, partition, producer_id), ()):
            if epoch > guard.epoch or (epoch == guard.epoch and transaction_version < NEW_EPOCH_AT_END):
                guard.is_valid = False


class TransactionsView(Protocol):
    """The transactional ids of one partition, to be looked at."""

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState: ...

    def list_transactions(
        self, request: list_transactions.ListTransactionsRequest, now: Moment
    ) -> list[list_transactions.TransactionState]: ...


class TransactionCoordinators(Protocol):
    """`broker.transactions`: the coordinators of the partitions of `__transaction_state` that this broker leads."""

    guards: Guards

    def submit(self, transactional_id: str, call: Call, answer: Callable[[Struct], None]) -> None:
        """Let the id's coordinator decide; `answer` is called once, on the loop, perhaps at once."""

    def begin(self, transactional_id: str, call: Call, answer: Callable[[Struct], None]) -> None:
        """The same for InitProducerId, with a producer id at hand."""

    def ask(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        places: Sequence[Place],
        done: Callable[[Mapping[Place, ErrorCode]], None],
        *,
        add: bool,
    ) -> None:
        """Ask the id's coordinator, wherever it is, whether partitions are in the open transaction of `producer`.

        Args:
            producer: producer id and epoch.
            done: is called once, later.
            add: let them join it (KIP-890, second part).
        """

    def view(self, transactional_id: str) -> TransactionsView | ErrorCode:
        """The ids of the partition that this one belongs to, or why they cannot be looked at here."""

    def views(self) -> list[TransactionsView] | ErrorCode:
        """All ids that this broker coordinates."""

    def unknown_states(self, request: list_transactions.ListTransactionsRequest) -> list[str]:
        """Filters that name no state."""

    def moment(self) -> Moment:
        """The time on both clocks."""

    def create_topic(self, done: Callable[[], None]) -> None:
        """Have `__transaction_state` created; `done` is called when it is there, or could not be created."""


def transactions_of(broker: Broker) -> TransactionCoordinators:
    """The broker's coordinators of transactions."""
    return cast(TransactionCoordinators, cast(Any, broker).transactions)
