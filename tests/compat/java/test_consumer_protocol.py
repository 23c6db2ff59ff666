"""Java's consumers with `group.protocol=consumer` (KIP-848), and what Kafka's tools show of their group."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.compat import Server, produce
from tests.support.java_tools import RunningTool, tool

pytestmark = pytest.mark.java

PARTITIONS = 4
PATIENCE_S = 90.0
COMMAND = "consumer.group.ConsumerGroupCommand"


def until(condition: Callable[[], object]) -> None:
    """A JVM may take long to start."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "this does not happen"
        time.sleep(0.1)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def owned(member: RunningTool) -> int:
    """How many partitions it holds, after all that it was given and gave back."""
    given = sum(len(event["partitions"]) for event in member.of("partitions_assigned"))
    return given - sum(len(event["partitions"]) for event in member.of("partitions_revoked"))


def test_the_console_consumer_reads_as_a_member(server: Server, group_id: str) -> None:
    topic = server.new_topic(PARTITIONS)
    for number in range(PARTITIONS):
        produce(server, topic, [b"%d" % number, b"x%d" % number], partition=number)
    at = ("--bootstrap-server", server.bootstrap_servers)
    said = tool(
        "consumer.ConsoleConsumer", *at, "--topic", topic, "--group", group_id, "--from-beginning",
        "--max-messages", str(2 * PARTITIONS), "--timeout-ms", "30000",
        "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert sorted(said.split()) == sorted([f"{number}" for number in range(4)] + [f"x{number}" for number in range(4)])
    listed = tool(COMMAND, *at, "--list", "--state", "--type")
    assert [group_id, "Consumer", "Empty"] in rows(listed)
    described = rows(tool(COMMAND, *at, "--describe", "--group", group_id))
    assert sorted(row[2:6] for row in described if row[0] == group_id) == [
        [str(number), "2", "2", "0"] for number in range(PARTITIONS)
    ]
    assert "successful" in tool(COMMAND, *at, "--delete", "--group", group_id)


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_members_share_partitions_and_the_tool_shows_them(
    server: Server, group_id: str, start: Callable[..., RunningTool]
) -> None:
    topic = server.new_topic(PARTITIONS)
    at = ("--bootstrap-server", server.bootstrap_servers)
    member = (*at, "--topic", topic, "--group-id", group_id, "--group-protocol", "consumer")
    first = start("VerifiableConsumer", *member)
    until(lambda: owned(first) == PARTITIONS)
    second = start("VerifiableConsumer", *member)
    until(lambda: owned(first) == owned(second) == PARTITIONS // 2)
    until(lambda: "Stable" in tool(COMMAND, *at, "--describe", "--group", group_id, "--state"))
    state = rows(tool(COMMAND, *at, "--describe", "--group", group_id, "--state", "--verbose"))
    (row,) = [row for row in state if row[0] == group_id]
    assert "uniform" in row
    assert row[-1] == "2"
    shown = rows(tool(COMMAND, *at, "--describe", "--group", group_id, "--members"))
    counts = [row[row.index(group_id) + 4] for row in shown if row[0] == group_id]
    assert counts == ["2", "2"]
    first.stop()
    until(lambda: owned(second) == PARTITIONS)
    second.stop()
