"""What it means to decide: look at an image, name the records that must be committed, answer when they are.

Every request of the controller is a function from an image to a `Decision`. It changes nothing. The records become
true in `MetadataDelta`, today and after a take-over alike; `respond` sees the image with them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from appliance.base.config import BrokerConfig
from appliance.base.randomness import Randomness
from appliance.controller.image import MetadataImage
from appliance.controller.records import Record
from appliance.wire.schema import Struct


class LogEnd(NamedTuple):
    """How far the log of a replica goes that was asked before an unclean election."""

    leader_epoch: int
    """Of the partition that nobody leads, when it was asked: nothing comes to any log while that stays."""
    broker_epoch: int
    """The incarnation that was asked; another one may have lost its tail."""
    last_epoch: int = -1
    """Of its last record."""
    end_offset: int = -1
    """-1: it gave no answer in time. `UNUSABLE`: it has said that it cannot be used."""


UNUSABLE = -2

LogEnds: TypeAlias = Mapping[tuple[uuid.UUID, int, int], LogEnd]
"""By topic id, partition and broker."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to commit, and the answer once they stand; nothing to say for decisions of the controller's own."""

    records: Sequence[Record] = ()
    respond: Callable[[MetadataImage], Struct | None] = field(default=lambda image: None)


Operation: TypeAlias = Callable[[MetadataImage], Decision]


@dataclass(frozen=True, slots=True)
class Rules:
    """What decisions need beside the image."""

    config: BrokerConfig
    """As given to the controller at its start."""
    randomness: Randomness
    positions: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By broker id and epoch: the commit up to which it has said that it knows."""
    log_ends: LogEnds = field(default_factory=dict)
    """What replicas have said of their logs, for unclean elections (rule P10)."""

    def config_of(self, image: MetadataImage) -> BrokerConfig:
        """With what was altered for all brokers since."""
        altered = image.broker_configs.get("")
        return self.config.with_dynamic({}, altered) if altered else self.config


def answer(response: Struct, records: Sequence[Record] = ()) -> Decision:
    """A decision whose answer is known already."""
    return Decision(records, lambda image: response)
