"""Images of small clusters, and a shorthand for deciding and committing without a log."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from appliance.base.config import BrokerConfig
from appliance.base.randomness import SeededRandomness
from appliance.controller import brokers
from appliance.controller.decisions import Decision, Rules
from appliance.controller.delta import MetadataDelta, image_of
from appliance.controller.image import MetadataImage
from appliance.controller.records import (
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ControllerClaimed,
    Listener,
    LogState,
    Record,
    position_of,
)
from appliance.wire.messages.internal_metadata import (
    RegisterBrokerListener,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def rules(seed: int = 0, **properties: str) -> Rules:
    """Keys are given with underscores for dots."""
    return Rules(
        BrokerConfig({key.replace("_", "."): value for key, value in properties.items()}), SeededRandomness(seed)
    )


def incarnation(number: int) -> uuid.UUID:
    return uuid.UUID(int=number, version=4)


def cluster(*broker_ids: int, racks: Sequence[str] = ()) -> MetadataImage:
    """An image with these brokers registered and unfenced, one commit for each broker's registration."""
    image = image_of([ControllerClaimed(1, 0, "127.0.0.1", 1), ClusterCreated(CLUSTER_ID)])
    for at, broker_id in enumerate(broker_ids):
        listener = Listener("PLAINTEXT", "127.0.0.1", 9_000 + broker_id)
        rack = racks[at] if racks else None
        number = image.position + 1
        image = after(image, BrokerRegistered(broker_id, incarnation(broker_id), (listener,), rack))
        image = after(image, BrokerUnfenced(broker_id, position_of(number, 0)))
    return image


def after(image: MetadataImage, *records: Record) -> MetadataImage:
    """The image one commit later."""
    delta = MetadataDelta(image)
    delta.apply_commit(image.position + 1, records)
    return delta.build()


def committed(image: MetadataImage, decision: Decision) -> tuple[Any, MetadataImage]:
    """The answer of a decision and the image after its records."""
    image = after(image, *decision.records) if decision.records else image
    return decision.respond(image), image


def registration(broker_id: int, number: int, **fields: Any) -> RegisterBrokerRequest:
    """A request of the incarnation with that number."""
    defaults: dict[str, Any] = {
        "listeners": [RegisterBrokerListener(name="PLAINTEXT", host="127.0.0.1", port=9_000 + broker_id)],
        "log_state": LogState.SAME_BOOT,
    }
    return RegisterBrokerRequest(broker_id=broker_id, incarnation_id=incarnation(number), **{**defaults, **fields})


def registered(
    image: MetadataImage, broker_id: int, number: int, **fields: Any
) -> tuple[RegisterBrokerResponse, MetadataImage]:
    return committed(image, brokers.register(registration(broker_id, number, **fields), image, rules()))


def leaders(image: MetadataImage, topic: str) -> list[tuple[int, int]]:
    """(leader, leader epoch) of each partition."""
    return [(partition.leader, partition.leader_epoch) for partition in image.topics[topic].partitions]
