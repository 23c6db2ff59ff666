"""What is set for one group, or for client metrics: its check, and what DescribeConfigs says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from appliance.base.config import BrokerConfig, ConfigRow, ConfigSynonym, broker_synonyms
from appliance.base.config_definitions_resources import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from appliance.base.config_types import BadValue, ConfigKey, ConfigSource
from appliance.base.errors import ErrorCode, KafkaError

CLIENT_METRICS, GROUP = 16, 32
"""Types of resources as DescribeConfigs numbers them."""
_UNBOUNDED = (
    "initial.rebalance.delay.ms",
    "auto.offset.reset",
    "isolation.level",
    "renew.acknowledge.enable",
)
"""Of groups' configs: those for which the broker has no bounds."""


class ResourceKind(NamedTuple):
    """Resources whose entries are all that is known of them: each name has the defaults."""

    what: str
    definitions: Mapping[str, ConfigKey]
    source: ConfigSource
    unknown_key: ErrorCode


RESOURCES: dict[int, ResourceKind] = {
    CLIENT_METRICS: ResourceKind(
        "client metrics", CLIENT_METRICS_CONFIGS, ConfigSource.CLIENT_METRICS_CONFIG, ErrorCode.INVALID_REQUEST
    ),
    GROUP: ResourceKind("groups", GROUP_CONFIGS, ConfigSource.GROUP_CONFIG, ErrorCode.INVALID_CONFIG),
}


def validate_resource_config(resource_type: int, entries: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check all entries that a group, or client metrics, are to have.

    Raises:
        KafkaError: with the reason.
    """
    kind = RESOURCES[resource_type]
    values: dict[str, int] = {}
    for name, text in entries.items():
        key = kind.definitions.get(name)
        if key is None:
            raise KafkaError(kind.unknown_key, f"{kind.what} have no config {name}")
        try:
            values[name] = key.parse(text)
        except BadValue as error:
            raise KafkaError(kind.unknown_key, str(error)) from None
    for name, value in values.items() if resource_type == GROUP else ():
        if name.startswith(("consumer.", "share.", "streams.")):
            _check_limits(name, value, broker)
    for protocol in ("consumer", "share", "streams") if resource_type == GROUP else ():
        session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
        session_ms = values.get(session, broker.get(f"group.{session}"))
        heartbeat_ms = values.get(heartbeat, broker.get(f"group.{heartbeat}"))
        if session_ms <= heartbeat_ms:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be more than {heartbeat}")


def _check_limits(name: str, value: int, broker: BrokerConfig) -> None:
    """Raises: KafkaError."""
    protocol, _, what = name.partition(".")
    if what in _UNBOUNDED:
        return
    if what == "num.standby.replicas":
        low, high = 0, broker.get("group.streams.max.standby.replicas")
    else:
        low, high = (broker.get(f"group.{protocol}.{end}.{what}") for end in ("min", "max"))
    if not low <= value <= high:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be from {low} to {high}, not {value}")


def describe_resource(
    resource_type: int, entries: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """Rows of all keys, or of the named ones that exist."""
    _, definitions, own_source, _ = RESOURCES[resource_type]
    rows = []
    for name in definitions if names is None else [name for name in names if name in definitions]:
        key = definitions[name]
        synonyms = [ConfigSynonym(name, key.text(key.parse(entries[name])), own_source)] if name in entries else []
        for broker_key in key.synonyms:
            synonyms += broker_synonyms(broker_key, broker)
        if not key.synonyms:
            synonyms.append(ConfigSynonym(name, key.text(key.default), ConfigSource.DEFAULT_CONFIG))
        first = synonyms[0]
        rows.append(ConfigRow(name, first.value, first.source, False, False, key.type, key.doc, synonyms))
    return rows
