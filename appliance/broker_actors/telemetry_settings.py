"""A broker's part of client telemetry, which follows the configs of client metrics."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from appliance.base.config import BrokerConfig
from appliance.base.config_resources import CLIENT_METRICS
from appliance.base.randomness import Randomness
from appliance.controller.image import MetadataImage
from appliance.telemetry.clients import ClientTelemetry


def client_telemetry(
    config: BrokerConfig, randomness: Randomness, on_image: Callable[[Callable[[MetadataImage], None]], Any]
) -> ClientTelemetry:
    """Whom to ask changes with each image that has other configs."""
    telemetry = ClientTelemetry(
        config.get("telemetry.max.bytes"), lambda: uuid.UUID(bytes=randomness.random_bytes(16), version=4)
    )
    known: object = None

    def image_came(image: MetadataImage) -> None:
        nonlocal known
        wanted = {name: entries for (kind, name), entries in image.resource_configs.items() if kind == CLIENT_METRICS}
        if wanted != known:
            known = wanted
            telemetry.subscriptions_changed(wanted)

    on_image(image_came)
    return telemetry
