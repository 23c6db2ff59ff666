"""Java's consumers in a group that rebalances step by step (KIP-429), under the load of Java's producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compat import Server, wait_until
from tests.support.java_tools import RunningTool

pytestmark = pytest.mark.java

PARTITIONS = 6
STRATEGY = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


def owned(member: RunningTool) -> int:
    """How many partitions it holds, after all that it was given and gave back."""
    given = sum(len(event["partitions"]) for event in member.of("partitions_assigned"))
    return given - sum(len(event["partitions"]) for event in member.of("partitions_revoked"))


def committed(member: RunningTool) -> list[tuple[int, int]]:
    """Partition and offset of all records that it read and committed.

    A commit in the middle of a rebalance is refused, and this tool does not try again. What it gives back after that
    is another member's to read.
    """
    done: list[tuple[int, int]] = []
    read: dict[int, list[int]] = {}
    for event in list(member.events):
        if event["name"] == "records_consumed":
            for part in event["partitions"]:
                read.setdefault(part["partition"], []).extend(range(part["minOffset"], part["maxOffset"] + 1))
        elif event["name"] == "partitions_revoked":
            for part in event["partitions"]:
                read.pop(part["partition"], None)
        elif event["name"] == "offsets_committed" and event["success"]:
            for part in event["offsets"]:
                offsets = read.pop(part["partition"], [])
                done += [(part["partition"], offset) for offset in offsets if offset < part["offset"]]
                read[part["partition"]] = [offset for offset in offsets if offset >= part["offset"]]
    return done


def test_the_group_reads_every_record_once_while_members_come_and_go(
    server: Server, group_id: str, start: Callable[..., RunningTool], tmp_path: Path
) -> None:
    topic = server.new_topic(PARTITIONS)
    config = tmp_path / "consumer.properties"
    config.write_text("heartbeat.interval.ms=200\n")
    at = ("--bootstrap-server", server.bootstrap_servers, "--topic", topic)
    group = ("--group-id", group_id, "--session-timeout", "6000", "--assignment-strategy", STRATEGY)
    member = (*at, *group, "--command-config", str(config))
    first = start("VerifiableConsumer", *member)
    producer = start("VerifiableProducer", *at, "--throughput", "500")
    wait_until(lambda: owned(first) == PARTITIONS and len(committed(first)) > 50)
    second = start("VerifiableConsumer", *member)
    wait_until(lambda: owned(first) == owned(second) == PARTITIONS // 2)
    wait_until(lambda: committed(second))
    first.stop()
    wait_until(lambda: owned(second) == PARTITIONS)
    producer.stop()
    (told,) = producer.of("tool_data")
    assert told["sent"] == told["acked"] > 0, producer.errors
    wait_until(lambda: len(committed(first)) + len(committed(second)) >= told["acked"])
    times = Counter(committed(first) + committed(second))
    assert set(times.values()) == {1}
    assert sorted(times) == sorted(
        (event["partition"], event["offset"]) for event in producer.of("producer_send_success")
    )
    assert len(first.of("partitions_revoked")[0]["partitions"]) < PARTITIONS, "what stayed was not given back"
    second.stop()
