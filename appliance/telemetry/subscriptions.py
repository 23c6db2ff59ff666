"""Which metrics a client is asked for, how often, and the number by which it names that (KIP-714): pure.

Each client-metrics resource is a subscription: `metrics` (prefixes of names; `*` for all), `interval.ms`, and `match`,
whose patterns must all meet the whole of what they are about. A client that several meet is asked for the metrics of
them all, as often as the most eager wants.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import NamedTuple

import crc32c

from appliance.base.config_definitions_resources import CLIENT_METRICS_CONFIGS, match_patterns
from appliance.base.config_types import BadValue
from appliance.base.ids import uuid_to_text
from appliance.consumer_groups.topic_regex import BadRegex, TopicRegex

_log = logging.getLogger(__name__)

INTERVAL_MS_DEFAULT = 300_000
"""Of clients that nobody asks for anything: they come again and ask."""
ALL_METRICS = "*"


class About(NamedTuple):
    """What is known of a client. The names of the first six, with `client_` before them, stand in `match`."""

    client_id: str = ""
    software_name: str = ""
    software_version: str = ""
    source_address: str = ""
    source_port: str = ""
    principal: str = ""


class Subscription(NamedTuple):
    """What one resource asks of whom."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, TopicRegex], ...]

    def meets(self, instance_id: uuid.UUID, about: About) -> bool:
        """Whether a client is asked."""
        return all(pattern.matches(_known(name, instance_id, about)) for name, pattern in self.patterns)


class Wanted(NamedTuple):
    """What one client is asked for."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


def subscription_of(name: str, entries: Mapping[str, str]) -> Subscription | None:
    """What a resource's configs ask for; None where nobody can be met by them."""
    values = {key: definition.default for key, definition in CLIENT_METRICS_CONFIGS.items()}
    try:
        for key, text in entries.items():
            if key in CLIENT_METRICS_CONFIGS:
                values[key] = CLIENT_METRICS_CONFIGS[key].parse(text)
        patterns = tuple((key, TopicRegex(text)) for key, text in match_patterns(values["match"]).items())
    except (BadValue, BadRegex) as error:
        _log.warning("client metrics %s ask nobody: %s", name, error)
        return None
    return Subscription(values["metrics"], values["interval.ms"], patterns)


def wanted_of(subscriptions: Mapping[str, Subscription], instance_id: uuid.UUID, about: About) -> Wanted:
    """What this client is asked for. All brokers must come to the same."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions.values():
        if subscription.meets(instance_id, about):
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Wanted(_subscription_id(names, interval_ms, instance_id), interval_ms, names)


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: uuid.UUID) -> int:
    """Kafka's: the CRC-32C of what is asked, mixed with the hash that Java has of the client's id."""
    crc = int(crc32c.crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode()))
    both = (instance_id.int >> 64) ^ (instance_id.int & 0xFFFF_FFFF_FFFF_FFFF)
    mixed = crc ^ (both >> 32) ^ (both & 0xFFFF_FFFF)
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _known(name: str, instance_id: uuid.UUID, about: About) -> str:
    if name == "client_instance_id":
        return uuid_to_text(instance_id)
    return str(getattr(about, name if name == "client_id" else name.removeprefix("client_")))
