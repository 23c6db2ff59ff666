"""A regular expression finds what the member may describe that has it looked at; and a config that may be altered."""

from __future__ import annotations

from typing import Any

from appliance.base.config import BrokerConfig
from appliance.consumer_groups.config import consumer_group_config
from appliance.coordinator.calls import Call
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.consumer_group_bench import ConsumerGroupBench


def joins(b: ConsumerGroupBench, member_id: str, *may_describe: str) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex="logs.*",
        topic_partitions=[],
    )
    call = Call(request, 1, "client", "/127.0.0.1", may_describe.__contains__)
    b.asked.append(call)
    b.shard.submit(call, b.now)
    b.pump()
    return b.answer(call)


def test_a_topic_that_the_member_may_not_describe_is_not_found() -> None:
    b = ConsumerGroupBench(logs_a=2, logs_b=2, other=1)
    response = joins(b, "m1", "logs_a", "other")
    b.advance(10_000)
    response = b.said("m1", response.member_epoch)
    assert b.assigned(response) == {"logs_a": [0, 1]}
    assert b.group.regexes["logs.*"].topics == ("logs_a",)


def test_the_least_time_between_targets_may_be_altered_while_the_broker_runs() -> None:
    key = "group.consumer.assignment.interval.ms"
    present = [BrokerConfig({key: "3000"})]
    config = consumer_group_config(lambda name: present[0].get(name))
    assert config.assignment_interval_of({}) == 3_000
    present[0] = present[0].with_dynamic({key: "0"}, {})
    assert config.assignment_interval_of({}) == 0
    assert config.assignment_interval_of({"consumer.assignment.interval.ms": "70"}) == 70
