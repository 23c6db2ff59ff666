"""How far the configs of one consumer group may go: the broker says so."""

from __future__ import annotations

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.config_resources import GROUP, describe_resource, validate_resource_config
from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.share_groups.config import share_group_config
from appliance.streams_groups.config import streams_group_config


@pytest.mark.parametrize(
    ("broker", "entries"),
    [
        ({}, {"consumer.session.timeout.ms": "44999"}),
        ({}, {"consumer.session.timeout.ms": "60001"}),
        ({}, {"consumer.heartbeat.interval.ms": "4999"}),
        ({}, {"consumer.assignment.interval.ms": "15001"}),
        ({"group.consumer.max.session.timeout.ms": "50000"}, {"consumer.session.timeout.ms": "50001"}),
        ({"group.consumer.min.session.timeout.ms": "1"}, {"consumer.session.timeout.ms": "5000"}),
        ({}, {"streams.session.timeout.ms": "44999"}),
        ({}, {"streams.num.standby.replicas": "3"}),
        ({"group.streams.max.standby.replicas": "1"}, {"streams.num.standby.replicas": "2"}),
        ({}, {"share.auto.offset.reset": "by_duration:P-1D"}),
    ],
)
def test_too_far(broker: dict[str, str], entries: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_resource_config(GROUP, entries, BrokerConfig(broker))
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_a_brokers_own_value_lies_within_its_limits() -> None:
    with pytest.raises(UserError, match="from 50000 to 60000"):
        BrokerConfig({"group.consumer.min.session.timeout.ms": "50000"})
    with pytest.raises(UserError, match="from 15000 to 60000"):
        BrokerConfig({"group.share.record.lock.duration.ms": "14000"})


@pytest.mark.parametrize(
    ("broker", "entries"),
    [
        ({}, {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "15000"}),
        ({}, {"consumer.assignment.interval.ms": "0"}),
        ({"group.consumer.min.session.timeout.ms": "6000"}, {"consumer.session.timeout.ms": "6000"}),
        ({"group.consumer.min.heartbeat.interval.ms": "1"}, {"consumer.heartbeat.interval.ms": "1"}),
        ({"group.streams.min.session.timeout.ms": "6000"}, {"streams.session.timeout.ms": "6000"}),
        ({}, {"streams.num.standby.replicas": "2", "streams.initial.rebalance.delay.ms": "0"}),
        ({}, {"share.auto.offset.reset": "by_duration:pt1h"}),
    ],
)
def test_not_too_far(broker: dict[str, str], entries: dict[str, str]) -> None:
    validate_resource_config(GROUP, entries, BrokerConfig(broker))


def test_values_are_told_as_kafka_writes_them() -> None:
    entries = {"share.renew.acknowledge.enable": "FALSE"}
    (row,) = describe_resource(GROUP, entries, BrokerConfig(), list(entries))
    assert [row.value, *(each.value for each in row.synonyms)] == ["false", "false", "true"]


def test_what_all_groups_have_between_two_targets_is_altered_while_they_live() -> None:
    config = BrokerConfig()
    kinds = {
        "share": share_group_config(lambda key: config.get(key)),
        "streams": streams_group_config(lambda key: config.get(key)),
    }
    for kind, of_groups in kinds.items():
        config = BrokerConfig({}, {}, {f"group.{kind}.assignment.interval.ms": "70"})
        assert of_groups.assignment_interval_of({}) == 70
        assert of_groups.assignment_interval_of({f"{kind}.assignment.interval.ms": "80"}) == 80
