"""Configs: what a text means, where a value comes from, what DescribeConfigs says, and what is refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from appliance.base.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    TopicConfig,
    TopicConfigs,
    describe_broker,
    describe_topic,
    topic_config,
    validate_broker_config,
    validate_topic_config,
)
from appliance.base.config_types import BadValue, ConfigSource
from appliance.base.errors import ErrorCode, KafkaError, UserError

DEFAULTS = BrokerConfig()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("preallocate", " TRUE ", True),
        ("segment.ms", " 10 ", 10),
        ("retention.bytes", "-5", -5),
        ("retention.ms", "+7", 7),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("cleanup.policy", " delete , compact,delete", ("delete", "compact")),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("retention.ms", str(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_text_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert TOPIC_CONFIGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("preallocate", "yes"),
        ("segment.ms", ""),
        ("retention.ms", "1.5"),
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", "१२"),
        ("retention.ms", str(2**63)),
        ("retention.ms", "9" * 10_000),
        ("segment.bytes", "99999999999"),
        ("segment.bytes", "100"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "x"),
        ("cleanup.policy", "DELETE"),
        ("cleanup.policy", "delete,"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("leader.replication.throttled.replicas", "1:2,x"),
    ],
)
def test_a_text_that_kafka_refuses_is_refused_with_its_key(name: str, text: str) -> None:
    with pytest.raises(BadValue, match=name):
        TOPIC_CONFIGS[name].parse(text)


@pytest.mark.parametrize("key", [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()], ids=lambda key: key.name)
def test_every_default_is_a_value_of_its_key(key) -> None:  # type: ignore[no-untyped-def]
    if key.default is not None:
        assert key.parse(key.text(key.default)) == key.default


def test_a_topic_config_has_an_attribute_for_each_key() -> None:
    assert {field.name.replace("_", ".") for field in fields(TopicConfig)} == set(TOPIC_CONFIGS)


def test_every_synonym_is_a_broker_config() -> None:
    assert {name for key in TOPIC_CONFIGS.values() for name in key.synonyms} <= set(BROKER_CONFIGS)


def test_a_topics_own_entry_goes_before_the_brokers_and_that_before_the_default() -> None:
    broker = BrokerConfig({"log.retention.hours": "2"})
    assert topic_config({}, DEFAULTS).retention_ms == 604_800_000
    assert topic_config({}, broker).retention_ms == 7_200_000
    assert topic_config({"retention.ms": "5"}, broker).retention_ms == 5


def test_milliseconds_go_before_minutes_and_those_before_hours() -> None:
    hours = {"log.retention.hours": "2"}
    minutes = {**hours, "log.retention.minutes": "3"}
    assert topic_config({}, BrokerConfig(minutes)).retention_ms == 180_000
    assert topic_config({}, BrokerConfig({**minutes, "log.retention.ms": "4"})).retention_ms == 4
    assert topic_config({}, BrokerConfig({"log.retention.hours": "-1"})).retention_ms == -1
    assert topic_config({}, BrokerConfig({"log.roll.hours": "1"})).segment_ms == 3_600_000
    assert topic_config({}, BrokerConfig({"log.flush.scheduler.interval.ms": "9"})).flush_ms == 9


def test_dynamic_values_go_before_static_ones_and_a_brokers_own_before_all() -> None:
    broker = BrokerConfig({"log.retention.ms": "1"})
    everywhere = broker.with_dynamic({}, {"log.retention.ms": "2"})
    here = broker.with_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "2"})
    assert [config.get("log.retention.ms") for config in (broker, everywhere, here)] == [1, 2, 3]


def test_tests_may_have_segments_below_the_limit() -> None:
    assert topic_config({"internal.segment.bytes": "100"}, DEFAULTS).segment_bytes == 100


def test_topics_are_tiered_unless_they_or_the_cluster_say_no() -> None:
    assert topic_config({}, DEFAULTS).remote_storage_enable
    assert topic_config({"cleanup.policy": ""}, DEFAULTS).remote_storage_enable
    assert topic_config({"cleanup.policy": "compact,delete"}, DEFAULTS).remote_storage_enable
    assert not topic_config({"remote.storage.enable": "false"}, DEFAULTS).remote_storage_enable
    assert not topic_config({}, BrokerConfig({"remote.log.storage.system.enable": "false"})).remote_storage_enable


def test_local_retention_follows_the_whole_retention_unless_set() -> None:
    config = topic_config({"retention.ms": "9", "retention.bytes": "8"}, DEFAULTS)
    assert (config.effective_local_retention_ms, config.effective_local_retention_bytes) == (9, 8)
    config = topic_config({"local.retention.ms": "3", "local.retention.bytes": "4"}, DEFAULTS)
    assert (config.effective_local_retention_ms, config.effective_local_retention_bytes) == (3, 4)


def test_an_entry_that_means_nothing_here_does_not_make_a_log_unusable() -> None:
    assert topic_config({"retention.ms": "soon", "of.tomorrow": "1"}, DEFAULTS).retention_ms == 604_800_000


@pytest.mark.parametrize(
    "entries",
    [
        {"segment.byte": "1"},
        {"retention.ms": None},
        {"retention.ms": "x"},
        {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
        {"retention.ms": "5", "local.retention.ms": "10"},
        {"retention.bytes": "5", "local.retention.bytes": "10"},
        {"retention.ms": "5", "local.retention.ms": "-1"},
        {"remote.log.copy.disable": "true", "local.retention.ms": "5"},
    ],
    ids=str,
)
def test_topic_configs_that_cannot_be_are_refused(entries: dict[str, str | None]) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_topic_config(entries)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact", "remote.storage.enable": "true"},
        {"retention.ms": "-1", "local.retention.ms": "-1"},
        {"remote.storage.enable": "false", "local.retention.ms": "10", "retention.ms": "5"},
        {"remote.log.copy.disable": "true"},
    ],
    ids=str,
)
def test_topic_configs_that_can_be_are_taken(entries: dict[str, str | None]) -> None:
    validate_topic_config(entries)


def test_an_unknown_topic_config_names_the_nearest() -> None:
    with pytest.raises(KafkaError, match=r"segment\.byte; did you mean segment\.bytes\?"):
        validate_topic_config({"segment.byte": "1"})


def test_tiering_cannot_be_asked_for_where_the_cluster_has_none() -> None:
    broker = BrokerConfig({"remote.log.storage.system.enable": "false"})
    validate_topic_config({}, broker)
    with pytest.raises(KafkaError, match=r"remote\.log\.storage\.system\.enable"):
        validate_topic_config({"remote.storage.enable": "true"}, broker)


@pytest.mark.parametrize(
    "entries",
    [
        {"log.retention.hour": "1"},
        {"num.partitions": "0"},
        {"broker.lease.ms": "1000"},
        {"controller.proof.max.ms": "1000"},
        {"replica.lag.time.max.ms": "100"},
        {"group.max.session.timeout.ms": "10"},
        {"tiering.retry.backoff.max.ms": "10"},
    ],
    ids=str,
)
def test_broker_configs_that_cannot_be_are_an_error_of_the_user(entries: dict[str, str]) -> None:
    with pytest.raises(UserError) as refused:
        BrokerConfig(entries)
    assert refused.value.exit_code == 2


def test_only_dynamic_broker_configs_can_be_altered() -> None:
    validate_broker_config({"log.retention.ms": "5", "message.max.bytes": None}, DEFAULTS)
    with pytest.raises(KafkaError) as refused:
        validate_broker_config({"num.partitions": "5"}, DEFAULTS)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    for entries in ({"log.retention.ms": "x"}, {"no.such.key": "1"}):
        with pytest.raises(KafkaError) as refused:
            validate_broker_config(entries, DEFAULTS)
        assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_describing_a_topic_tells_value_source_and_synonyms() -> None:
    broker = BrokerConfig({"log.retention.hours": "2"}, dynamic_defaults={"log.retention.ms": "9"})
    (row,) = describe_topic({"retention.ms": "5"}, broker, ["retention.ms"])
    assert (row.value, row.source, row.read_only) == ("5", ConfigSource.TOPIC_CONFIG, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms] == [
        ("retention.ms", "5", ConfigSource.TOPIC_CONFIG),
        ("log.retention.ms", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    (row,) = describe_topic({}, DEFAULTS, ["retention.ms"])
    assert (row.value, row.source) == ("604800000", ConfigSource.DEFAULT_CONFIG)


def test_describing_everything_leaves_out_what_is_internal() -> None:
    assert [row.name for row in describe_topic({}, DEFAULTS)] == [
        name for name in TOPIC_CONFIGS if name != "internal.segment.bytes"
    ]
    names = {row.name for row in describe_broker(DEFAULTS)}
    assert "num.partitions" in names
    assert "producer.id.expiration.check.interval.ms" not in names
    assert describe_topic({}, DEFAULTS, ["no.such.key"]) == []


def test_describing_a_broker_tells_what_may_be_altered() -> None:
    rows = {row.name: row for row in describe_broker(BrokerConfig({"num.partitions": "3"}))}
    assert (rows["num.partitions"].value, rows["num.partitions"].source) == ("3", ConfigSource.STATIC_BROKER_CONFIG)
    assert rows["num.partitions"].read_only
    assert not rows["log.retention.ms"].read_only
    assert rows["log.retention.ms"].value is None
    assert rows["log.cleanup.policy"].value == "delete"


def test_topics_with_the_same_entries_share_one_object_of_configs() -> None:
    broker, configs = BrokerConfig({}), TopicConfigs()
    first = configs.of({"retention.ms": "1000", "segment.ms": "500"}, broker)
    assert configs.of({"segment.ms": "500", "retention.ms": "1000"}, broker) is first
    assert first == topic_config({"retention.ms": "1000", "segment.ms": "500"}, broker)
    assert configs.of({}, broker) == topic_config({}, broker)
    altered = broker.with_dynamic({}, {"log.retention.ms": "7"})
    assert configs.of({}, altered).retention_ms == 7
