"""Cases about configs."""

from __future__ import annotations

import time
from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages import alter_configs as old
from appliance.wire.messages import incremental_alter_configs as new
from appliance.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.differential.sides import Side, case

UNKNOWN, TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SETTLING_S = 5.0


@case(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(side: Side) -> None:
    def ask(label: str, kind: int, name: str, keys: list[str] | None = None, **fields: Any) -> None:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        side.ask(label, DescribeConfigsRequest(resources=[resource], **fields))

    made = side.new_topic("t", retention_ms="1234", cleanup_policy="compact", min_insync_replicas="1")
    side.set_up(incremental(GROUP, side.named("group"), ("consumer.session.timeout.ms", SET, "50000")))
    ask("a topic", TOPIC, made.name)
    ask("a topic with synonyms", TOPIC, made.name, include_synonyms=True)
    ask("some keys of a topic", TOPIC, made.name, ["retention.ms", "unknown"], include_synonyms=True)
    ask("no keys of a topic", TOPIC, made.name, [])
    ask("a topic that is missing", TOPIC, side.named("missing"))
    ask("an illegal topic", TOPIC, "a/b")
    ask("a topic without a name", TOPIC, "")
    if side.version >= 3:
        ask("documentation", TOPIC, made.name, ["retention.ms"], include_documentation=True)
    ask("some keys of a broker", BROKER, "1", ["log.retention.ms", "num.io.threads", "log.segment.bytes", "node.id"])
    ask("synonyms of a broker", BROKER, "1", ["log.retention.ms", "compression.type"], include_synonyms=True)
    ask("the default of brokers", BROKER, "")
    ask("another broker", BROKER, "77")
    ask("a broker that is no number", BROKER, "one")
    ask("a group", GROUP, side.named("group"))
    ask("a group with synonyms", GROUP, side.named("group"), include_synonyms=True)
    ask("a group that is missing", GROUP, side.named("no-group"))
    ask("a group without a name", GROUP, "")
    ask("client metrics that are missing", CLIENT_METRICS, side.named("no-metrics"))
    ask("client metrics without a name", CLIENT_METRICS, "")
    ask("loggers of another broker", BROKER_LOGGER, "77")
    ask("a type that is none", 99, "1")
    ask("no type", UNKNOWN, "1")
    side.ask("nothing", DescribeConfigsRequest(resources=[]))
    twice = [DescribeConfigsResource(resource_type=TOPIC, resource_name=made.name, configuration_keys=["retention.ms"])]
    side.ask("twice", DescribeConfigsRequest(resources=twice * 2))


def replace(kind: int, name: str, **configs: str | None) -> old.AlterConfigsResource:
    rows = [old.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return old.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


@case(ApiKey.ALTER_CONFIGS)
def alter_configs(side: Side) -> None:
    def ask(label: str, *resources: old.AlterConfigsResource, **fields: Any) -> None:
        side.ask(label, old.AlterConfigsRequest(resources=list(resources), **fields))

    made = side.new_topic("t", retention_ms="1234")
    ask("looked at", replace(TOPIC, made.name, retention_bytes="77"), validate_only=True)
    _show(side, "after looking", TOPIC, made.name)
    ask("replaced", replace(TOPIC, made.name, retention_bytes="77"))
    _show(side, "after it was replaced", TOPIC, made.name, retention_bytes="77")
    ask("emptied", replace(TOPIC, made.name))
    _show(side, "after it was emptied", TOPIC, made.name, retention_bytes="-1")
    ask("nothing")
    ask("missing and there", replace(TOPIC, side.named("missing"), retention_ms="1"), replace(TOPIC, made.name))
    ask("a key that is none", replace(TOPIC, made.name, no_key="1"))
    ask("a value that is none", replace(TOPIC, made.name, retention_ms="long"))
    ask("null", replace(TOPIC, made.name, retention_ms=None))
    ask("a type that is none", replace(99, made.name, retention_ms="1"))
    ask("a broker that is missing", replace(BROKER, "77", log_retention_ms="1"))
    ask("a broker that is no number", replace(BROKER, "one", log_retention_ms="1"))
    ask("a broker's key that cannot change", replace(BROKER, "1", log_dirs="/x"))
    ask("a group", replace(GROUP, side.named("g"), consumer_session_timeout_ms="50000"))
    ask("a group without a name", replace(GROUP, "", consumer_session_timeout_ms="50000"))


def incremental(kind: int, name: str, *entries: tuple[str, int, str | None]) -> new.IncrementalAlterConfigsRequest:
    return new.IncrementalAlterConfigsRequest(resources=[changed(kind, name, *entries)])


def changed(kind: int, name: str, *entries: tuple[str, int, str | None]) -> new.AlterConfigsResource:
    rows = [new.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in entries]
    return new.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(side: Side) -> None:
    def ask(label: str, kind: int, name: str, *entries: tuple[str, int, str | None]) -> None:
        side.ask(label, incremental(kind, name, *entries))

    made = side.new_topic("t", retention_ms="1234")
    looking = incremental(TOPIC, made.name, ("retention.ms", SET, "5"))
    looking.validate_only = True
    side.ask("looked at", looking)
    ask("set", TOPIC, made.name, ("retention.bytes", SET, "77"), ("retention.ms", DELETE, None))
    _show(side, "after it was set", TOPIC, made.name, retention_bytes="77", retention_ms="604800000")
    ask("deleted what is not set", TOPIC, made.name, ("segment.ms", DELETE, None))
    ask("deleted with a value", TOPIC, made.name, ("retention.bytes", DELETE, "77"))
    ask("deleted what is none", TOPIC, made.name, ("no.key", DELETE, None))
    ask("appended", TOPIC, made.name, ("cleanup.policy", APPEND, "compact"))
    _show(side, "after it was appended", TOPIC, made.name, cleanup_policy="delete,compact")
    ask("appended again", TOPIC, made.name, ("cleanup.policy", APPEND, "compact"))
    ask("taken away", TOPIC, made.name, ("cleanup.policy", SUBTRACT, "delete"))
    _show(side, "after it was taken away", TOPIC, made.name, cleanup_policy="compact")
    ask("taken away what is not there", TOPIC, made.name, ("cleanup.policy", SUBTRACT, "delete"))
    ask("appended what is none", TOPIC, made.name, ("cleanup.policy", APPEND, "burn"))
    ask("appended to what is no list", TOPIC, made.name, ("retention.ms", APPEND, "1"))
    ask("appended to what is none", TOPIC, made.name, ("no.key", APPEND, "1"))
    ask("a key that is none", TOPIC, made.name, ("no.key", SET, "1"))
    ask("a value that is none", TOPIC, made.name, ("retention.ms", SET, "long"))
    ask("out of range", TOPIC, made.name, ("min.insync.replicas", SET, "0"))
    ask("null", TOPIC, made.name, ("retention.ms", SET, None))
    ask("an operation that is none", TOPIC, made.name, ("retention.ms", 9, "1"))
    ask("one key twice", TOPIC, made.name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    ask("a topic that is missing", TOPIC, side.named("missing"), ("retention.ms", SET, "1"))
    ask("a topic without a name", TOPIC, "", ("retention.ms", SET, "1"))
    ask("a type that is none", 99, made.name, ("retention.ms", SET, "1"))
    ask("no type", UNKNOWN, made.name, ("retention.ms", SET, "1"))
    ask("no entries", TOPIC, made.name)
    side.ask("nothing", new.IncrementalAlterConfigsRequest(resources=[]))
    two = [changed(TOPIC, made.name, ("retention.ms", SET, "1")), changed(TOPIC, made.name, ("segment.ms", SET, "1"))]
    side.ask("twice", new.IncrementalAlterConfigsRequest(resources=two))
    mixed = [changed(TOPIC, made.name, ("retention.ms", SET, "9")), changed(TOPIC, "none", ("retention.ms", SET, "1"))]
    side.ask("good and bad", new.IncrementalAlterConfigsRequest(resources=mixed))
    ask("a broker", BROKER, "1", ("log.retention.ms", SET, "604800001"))
    _show(side, "after the broker", BROKER, "1", "log.retention.ms", log_retention_ms="604800001")
    ask("a broker again", BROKER, "1", ("log.retention.ms", DELETE, None))
    ask("all brokers", BROKER, "", ("log.retention.ms", SET, "604800002"))
    _show(side, "after all brokers", BROKER, "", "log.retention.ms", log_retention_ms="604800002")
    ask("all brokers again", BROKER, "", ("log.retention.ms", DELETE, None))
    ask("a broker that is missing", BROKER, "77", ("log.retention.ms", SET, "1"))
    ask("a broker that is no number", BROKER, "one", ("log.retention.ms", SET, "1"))
    ask("a broker's key that cannot change", BROKER, "1", ("log.dirs", SET, "/x"))
    ask("a broker's key that is none", BROKER, "1", ("no.key", SET, "1"))
    ask("a group", GROUP, side.named("g"), ("consumer.session.timeout.ms", SET, "50000"))
    _show(side, "after the group", GROUP, side.named("g"), consumer_session_timeout_ms="50000")
    ask("a group's key that is none", GROUP, side.named("g"), ("no.key", SET, "1"))
    ask("a group's value out of range", GROUP, side.named("g"), ("consumer.session.timeout.ms", SET, "1"))
    ask("a group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    ask("the group again", GROUP, side.named("g"), ("consumer.session.timeout.ms", DELETE, None))


def _show(side: Side, label: str, kind: int, name: str, *keys: str, **values: str) -> None:
    """What is set, or the keys that are named, once they are so: Kafka's broker hears of changes a moment later."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    deadline = time.monotonic() + SETTLING_S
    while not _has(side.set_up(request), values) and time.monotonic() < deadline:
        time.sleep(0.02)
    side.ask(label, request, 4)


def _has(answer: Any, values: dict[str, str]) -> bool:
    rows = {row.name: row.value for result in answer.results for row in result.configs}
    return all(rows.get(name.replace("_", ".")) == value for name, value in values.items())
