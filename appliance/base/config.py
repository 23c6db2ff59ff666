"""The configuration of brokers and topics: typed values, where they come from, and what DescribeConfigs says of them.

A topic's value is its own, else the broker's that its synonyms name, else the default. A broker's value is the dynamic
one for this broker, else the dynamic one for all, else the one of flags, environment and file, else the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import dropwhile
from typing import Any

from appliance.base.config_definitions_broker import KAFKA_BROKER_CONFIGS
from appliance.base.config_definitions_http import HTTP_CONFIGS
from appliance.base.config_definitions_own import OWN_BROKER_CONFIGS
from appliance.base.config_definitions_topic import TOPIC_CONFIGS
from appliance.base.config_types import BadValue, ConfigKey, ConfigSource, ConfigType, Value, table
from appliance.base.errors import ErrorCode, KafkaError, UserError

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigRow",
    "ConfigSynonym",
    "TopicConfig",
    "describe_broker",
    "describe_topic",
    "topic_config",
    "validate_broker_config",
    "validate_topic_config",
]

BROKER_CONFIGS: dict[str, ConfigKey] = table(
    *KAFKA_BROKER_CONFIGS.values(), *OWN_BROKER_CONFIGS.values(), *HTTP_CONFIGS.values()
)
"""All broker configs by name."""

LISTENER_PREFIX = "listener.name."
"""Before the name of a listener in lower case, a dot, perhaps a SASL mechanism, and a key: its value there."""
_MINUTE_MS = 60_000
_MS_PER_UNIT = {"minutes": _MINUTE_MS, "hours": 60 * _MINUTE_MS}


def definition_of(name: str) -> ConfigKey | None:
    """What defines an entry: the key of its name, or of the name behind a listener's prefix."""
    key = BROKER_CONFIGS.get(name)
    rest = name.removeprefix(LISTENER_PREFIX) if name.startswith(LISTENER_PREFIX) else ""
    while key is None and "." in rest:
        rest = rest.partition(".")[2]
        key = BROKER_CONFIGS.get(rest)
    return key


class BrokerConfig:
    """The typed configs of one broker. Immutable; a dynamic change makes a new one.

    Args:
        properties: entries of file, environment and flags, as text.
        dynamic: what was altered for this broker while it ran.
        dynamic_defaults: what was altered for all brokers.

    Raises:
        UserError: an unknown key (names the nearest one), or a value that its key does not take.
    """

    __slots__ = ("_values", "dynamic", "dynamic_defaults", "properties")

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
        dynamic_defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.properties = dict(properties or {})
        self.dynamic = dict(dynamic or {})
        self.dynamic_defaults = dict(dynamic_defaults or {})
        self._values: dict[str, Value] = {}
        for layer in (self.properties, self.dynamic_defaults, self.dynamic):
            for name, text in layer.items():
                self._values[name] = self._parse(name, text)
        self._check_inequalities()

    @staticmethod
    def _parse(name: str, text: str) -> Value:
        key = definition_of(name)
        if key is None:
            raise UserError(unknown_key_message(name, BROKER_CONFIGS))
        try:
            return key.parse(text)
        except BadValue as error:
            raise UserError(str(error)) from None

    def _check_inequalities(self) -> None:
        """What must hold between keys; the lease's are explained in docs/configuration.md."""
        heartbeat, stall = self.get("broker.heartbeat.interval.ms"), self.get("broker.loop.stall.max.ms")
        lease = self.get("broker.lease.ms")
        if 2 * heartbeat + stall >= lease:
            raise UserError(
                f"broker.lease.ms ({lease}) must be more than twice broker.heartbeat.interval.ms ({heartbeat}) plus "
                f"broker.loop.stall.max.ms ({stall}), else healthy brokers are fenced"
            )
        if self.get("controller.proof.interval.ms") >= self.get("controller.proof.max.ms"):
            raise UserError("controller.proof.max.ms must be more than controller.proof.interval.ms")
        if self.get("replica.fetch.wait.max.ms") > self.get("replica.lag.time.max.ms"):
            raise UserError("replica.lag.time.max.ms must not be less than replica.fetch.wait.max.ms")
        if self.get("group.min.session.timeout.ms") > self.get("group.max.session.timeout.ms"):
            raise UserError("group.max.session.timeout.ms must not be less than group.min.session.timeout.ms")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            for kind in ("group.consumer", "group.share", "group.streams"):
                self._check_bounds(kind, what)
        for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
            self._check_bounds("group.share", what)
        if self.get("group.streams.num.standby.replicas") > self.get("group.streams.max.standby.replicas"):
            raise UserError("group.streams.max.standby.replicas must be group.streams.num.standby.replicas or more")
        if self.get("tiering.retry.backoff.ms") > self.get("tiering.retry.backoff.max.ms"):
            raise UserError("tiering.retry.backoff.max.ms must not be less than tiering.retry.backoff.ms")

    def _check_bounds(self, kind: str, what: str) -> None:
        low, high = (self.get(f"{kind}.{end}.{what}") for end in ("min", "max"))
        if not low <= self.get(f"{kind}.{what}") <= high:
            raise UserError(f"{kind}.{what} must be from {low} to {high} ({kind}.min/max.{what})")

    def get(self, name: str) -> Any:
        """The value in the type of its key. Raises: KeyError when there is no such key (a mistake of ours)."""
        if name in self._values:
            return self._values[name]
        return BROKER_CONFIGS[name].default

    def get_for(self, listener: str, name: str, mechanism: str = "") -> Any:
        """The value for one listener: its own, or the one of all. SASL mechanisms may have their own of both kinds."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        of_mechanism = f"{mechanism.lower()}.{name}"
        for own in (prefix + of_mechanism, prefix + name, of_mechanism) if mechanism else (prefix + name,):
            if own in self._values:
                return self._values[own]
        return self.get(name)

    def is_set(self, name: str) -> bool:
        """Whether the value is not simply the default."""
        return name in self._values

    def with_dynamic(self, dynamic: Mapping[str, str], dynamic_defaults: Mapping[str, str]) -> BrokerConfig:
        """The same configuration with other dynamic values."""
        return BrokerConfig(self.properties, dynamic, dynamic_defaults)


def connections_per_host(config: BrokerConfig) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by host."""
    overrides: dict[str, int] = {}
    for entry in filter(None, map(str.strip, config.get("max.connections.per.ip.overrides").split(","))):
        host, _, most = entry.rpartition(":")
        overrides[host.strip()] = int(most)
    return overrides


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective configs of one topic. Attributes are the keys with underscores."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    lake_csv_delimiter: str
    lake_format: str
    lake_max_age_ms: int
    lake_max_bytes: int
    lake_partition_by: tuple[str, ...]
    lake_schema: str
    lake_time_field: str
    lake_time_format: str
    lake_value_format: str
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    """-2 follows `retention_bytes`; see `effective_local_retention_bytes`."""
    local_retention_ms: int
    """-2 follows `retention_ms`; see `effective_local_retention_ms`."""
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    """False also where the topic is compacted or tiering is off for the whole cluster."""
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    """`internal.segment.bytes` where that is set."""
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    tiering_max_lag_ms: int
    unclean_leader_election_enable: bool

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment takes appends: `segment_ms`, and not longer than a record may stay uncompacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def effective_local_retention_ms(self) -> int:
        """-1 is no limit."""
        return self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """-1 is no limit."""
        return self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes


_KEPT_CONFIGS_MAX = 1_000
_TOPIC_FIELDS = tuple((field.name, field.name.replace("_", ".")) for field in fields(TopicConfig))


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """The effective configs of a topic with these entries of its own on this broker.

    Entries that a newer or older version stored and that mean nothing here are passed over, so that a log stays usable.
    """
    values: dict[str, Any] = {}
    for attribute, name in _TOPIC_FIELDS:
        key = TOPIC_CONFIGS[name]
        if name in overrides:
            try:
                values[attribute] = key.parse(overrides[name])
                continue
            except BadValue:
                pass
        values[attribute] = _broker_default(key, broker)
    if values["internal_segment_bytes"] is not None:
        values["segment_bytes"] = values["internal_segment_bytes"]
    if not broker.get("remote.log.storage.system.enable"):
        values["remote_storage_enable"] = False
    return TopicConfig(**values)


class TopicConfigs:
    """Topics with the same entries share one object of configs. Any thread may ask."""

    def __init__(self) -> None:
        self._kept: tuple[BrokerConfig | None, dict[tuple[tuple[str, str], ...], TopicConfig]] = (None, {})

    def of(self, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The same as `topic_config`."""
        kept_for, kept = self._kept
        if kept_for is not broker or len(kept) >= _KEPT_CONFIGS_MAX:
            kept = {}
            self._kept = (broker, kept)
        entries = tuple(sorted(overrides.items()))
        config = kept.get(entries)
        if config is None:
            config = kept[entries] = topic_config(overrides, broker)
        return config


def _broker_default(key: ConfigKey, broker: BrokerConfig) -> Value:
    """The first synonym that has a value, in the unit of the topic's key."""
    for synonym in key.synonyms:
        value = broker.get(synonym)
        if value is not None:
            return _in_milliseconds(synonym, value)
    return key.default


def _in_milliseconds(broker_key: str, value: Value) -> Value:
    factor = _MS_PER_UNIT.get(broker_key.rpartition(".")[2])
    if factor is None:
        return value
    return -1 if value < 0 else value * factor


def validate_topic_config(overrides: Mapping[str, str | None], broker: BrokerConfig | None = None) -> None:
    """Check the entries that a topic is to have; None values are refused as Kafka does.

    Raises:
        KafkaError: INVALID_CONFIG with the reason.
    """
    broker = broker or _DEFAULTS
    texts: dict[str, str] = {}
    for name, text in overrides.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{_nearest(name, TOPIC_CONFIGS)}"
            )
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"a topic config has no null value: {name}")
        try:
            key.parse(text)
        except BadValue as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        texts[name] = text
    _validate_together(texts, topic_config(texts, broker), broker)


def _validate_together(texts: Mapping[str, str], config: TopicConfig, broker: BrokerConfig) -> None:
    def refuse(message: str) -> None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)

    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        refuse(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) must not be more than "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    asked = texts.get("remote.storage.enable", "").strip().lower() == "true"
    if asked and not broker.get("remote.log.storage.system.enable"):
        refuse("remote.storage.enable: tiering is off in this cluster (remote.log.storage.system.enable)")
    if not config.remote_storage_enable:
        return
    for name, local, total in (
        ("retention.ms", config.local_retention_ms, config.retention_ms),
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        if total != -1 and local == -1:
            refuse(f"local.{name} must not be without limit (-1) while {name} is {total}")
        if total != -1 and local > total:
            refuse(f"local.{name} ({local}) must not be more than {name} ({total})")
        if config.remote_log_copy_disable and local not in (-2, total):
            refuse(f"while remote.log.copy.disable is true, local.{name} must be -2 or equal to {name}")


def validate_broker_config(dynamic: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Check the dynamic entries that a broker, or all of them, are to have.

    Raises:
        KafkaError: INVALID_REQUEST for a key that may not be altered while running, INVALID_CONFIG for the rest.
    """
    texts: dict[str, str] = {}
    for name, text in dynamic.items():
        key = BROKER_CONFIGS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key_message(name, BROKER_CONFIGS))
        if not key.dynamic:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be altered while the broker runs")
        if text is not None:
            texts[name] = text
    try:
        BrokerConfig(broker.properties, texts)
    except UserError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that was, or would have been, the key's."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One config as DescribeConfigs answers it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    type: ConfigType
    doc: str
    synonyms: list[ConfigSynonym]


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """Rows for a topic; of all keys that are not internal, or of the named ones that exist."""
    config = topic_config(overrides, broker)
    rows = []
    for key in _selected(TOPIC_CONFIGS, names):
        synonyms = []
        if key.name in overrides:
            synonyms.append(ConfigSynonym(key.name, overrides[key.name], ConfigSource.TOPIC_CONFIG))
        if key.synonyms:
            synonyms.extend(broker_synonyms(key.synonyms[0], broker))
        value = key.text(getattr(config, key.name.replace(".", "_")))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append(ConfigRow(key.name, value, source, False, key.is_sensitive, key.type, key.doc, synonyms))
    return rows


def describe_broker(broker: BrokerConfig, names: Iterable[str] | None = None) -> list[ConfigRow]:
    """Rows for a broker; of all keys that are not internal, or of the named ones that exist."""
    rows = []
    for key in _selected(BROKER_CONFIGS, names):
        synonyms = broker_synonyms(key.name, broker)
        value = None if key.is_sensitive else key.text(broker.get(key.name))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append(ConfigRow(key.name, value, source, not key.dynamic, key.is_sensitive, key.type, key.doc, synonyms))
    return rows


def _selected(definitions: Mapping[str, ConfigKey], names: Iterable[str] | None) -> list[ConfigKey]:
    if names is None:
        return [key for key in definitions.values() if not key.internal]
    return [definitions[name] for name in names if name in definitions]


def broker_synonyms(name: str, broker: BrokerConfig) -> list[ConfigSynonym]:
    """The values that a broker's key and those that stand for it have in each layer, the one that counts first.

    As in Kafka, what comes before the first of the key's own name is left out.
    """
    chain = next((key.synonyms for key in TOPIC_CONFIGS.values() if name in key.synonyms), (name,))
    keys = [BROKER_CONFIGS[each] for each in chain]
    synonyms = [
        ConfigSynonym(key.name, None if key.is_sensitive else layer[key.name], source)
        for layer, source in (
            (broker.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (broker.dynamic_defaults, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (broker.properties, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for key in keys
        if key.name in layer
    ]
    synonyms += [
        ConfigSynonym(key.name, key.text(key.default), ConfigSource.DEFAULT_CONFIG)
        for key in keys
        if key.default is not None
    ]
    return list(dropwhile(lambda synonym: synonym.name != name, synonyms))


def unknown_key_message(name: str, definitions: Mapping[str, ConfigKey]) -> str:
    """One line for a key that does not exist, with the nearest one that does."""
    return f"unknown configuration key {name}{_nearest(name, definitions)}"


def _nearest(name: str, definitions: Mapping[str, ConfigKey]) -> str:
    # Imported here: only a mistake needs it, and every process start would pay for it.
    import difflib

    nearest = difflib.get_close_matches(name, definitions, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]}?" if nearest else ""


_DEFAULTS = BrokerConfig()
