"""What it means to decide: look at an image, name the records that must be committed, answer when they are.

Every request of the controller is a function from an image to a `Decision`. It changes nothing. The records become
true in `MetadataDelta`, today and after a take-over alike; `respond` sees the image with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from appliance.base.config import BrokerConfig
from appliance.base.randomness import Randomness
from appliance.controller.image import MetadataImage
from appliance.controller.records import Record
from appliance.wire.schema import Struct


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

    def config_of(self, image: MetadataImage) -> BrokerConfig:
        """With what was altered for all brokers since."""
        altered = image.broker_configs.get("")
        return self.config.with_dynamic({}, altered) if altered else self.config


def answer(response: Struct, records: Sequence[Record] = ()) -> Decision:
    """A decision whose answer is known already."""
    return Decision(records, lambda image: response)
