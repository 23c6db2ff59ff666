"""When a new leader may begin: once nobody else can still be answering for the partition (P1). Pure.

Each earlier leader has to be quiet: registered anew, or dead; or fenced, so that its lease is over and only a soft one
could keep it, for which it would need this replica's fetches; or told of the new epoch by a question (P2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Earlier(NamedTuple):
    """A broker that led the partition before."""

    broker_id: int
    broker_epoch: int
    live: bool
    """Leadership was taken from it while it lived; else its lease had ended."""


class BrokerView(NamedTuple):
    """What the metadata says of a broker now."""

    broker_epoch: int
    fenced: bool
    dead: bool


class Waits(NamedTuple):
    """What a start waits for."""

    ask: tuple[int, ...]
    """Brokers to be asked for the end of an epoch, naming the new leader epoch."""
    wait_ms: int
    """How long a silence has to last still; 0 when none is waited for."""

    @property
    def over(self) -> bool:
        return not self.ask and not self.wait_ms


@dataclass(slots=True)
class LeaderStart:
    """The beginning of one leader epoch."""

    leader_epoch: int
    quiet_ms: int
    """Lease and margin: who was not fetched from for so long has no soft lease for the partition."""
    last_fetch_ms: Mapping[int, int]
    """When this replica's last fetch to a broker left, by broker id."""
    began_ms: int
    """When this process began: an earlier one of the same broker may have fetched until then."""
    earlier: tuple[Earlier, ...] = ()
    answered: set[int] = field(default_factory=set)
    """Brokers that have answered the question, so they know of the new epoch."""

    def follow(self, earlier: Iterable[Earlier]) -> None:
        """The committed list; an entry goes when its broker has registered anew or knows of the commit."""
        self.earlier = tuple(earlier)

    def waits(self, brokers: Mapping[int, BrokerView], now_ms: int) -> Waits:
        """What is still to be waited for at `now_ms`."""
        ask: list[int] = []
        wait_ms = 0
        for broker_id, broker_epoch, live in self.earlier:
            broker = brokers.get(broker_id)
            if broker is None or broker.broker_epoch != broker_epoch or broker.dead or broker_id in self.answered:
                continue
            if live and not broker.fenced:
                ask.append(broker_id)
            else:
                fetched_ms = self.last_fetch_ms.get(broker_id, self.began_ms)
                wait_ms = max(wait_ms, fetched_ms + self.quiet_ms - now_ms)
        return Waits(tuple(ask), wait_ms)
