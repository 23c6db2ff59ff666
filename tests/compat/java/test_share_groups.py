"""Kafka's share consumers (KIP-932), and what kafka-share-groups shows of their group: here and on Apache Kafka."""

from __future__ import annotations

import pytest

from tests.support.compat import Server, produce
from tests.support.java_tools import tool

pytestmark = pytest.mark.java

COMMAND = "consumer.group.ShareGroupCommand"


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def configure(server: Server, group_id: str, *entries: str) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    of_group = ("--entity-type", "groups", "--entity-name", group_id)
    tool("kafka.admin.ConfigCommand", *at, "--alter", *of_group, "--add-config", ",".join(entries))


def test_the_console_share_consumer_reads_and_the_tool_shows_it(server: Server, group_id: str) -> None:
    topic = server.new_topic(2)
    for number in range(2):
        produce(server, topic, [b"%d" % number, b"x%d" % number], partition=number)
    configure(server, group_id, "share.auto.offset.reset=earliest")
    at = ("--bootstrap-server", server.bootstrap_servers)
    said = tool(
        "consumer.ConsoleShareConsumer", *at, "--topic", topic, "--group", group_id,
        "--max-messages", "4", "--timeout-ms", "60000",
    )  # fmt: skip
    assert sorted(said.split()) == ["0", "1", "x0", "x1"]
    assert [group_id] in rows(tool(COMMAND, *at, "--list"))
    described = rows(tool(COMMAND, *at, "--describe", "--group", group_id))
    lags = {(row[1], row[2]): row[-1] for row in described if row[0] == group_id}
    assert lags == {(topic, "0"): "0", (topic, "1"): "0"}


@pytest.mark.compat
@pytest.mark.timeout(600)
def test_offsets_are_reset_and_deleted_and_the_group_goes(server: Server, group_id: str) -> None:
    topic = server.new_topic(1)
    produce(server, topic, [b"a", b"b"])
    configure(server, group_id, "share.auto.offset.reset=earliest")
    at = ("--bootstrap-server", server.bootstrap_servers)
    read = ("consumer.ConsoleShareConsumer", *at, "--topic", topic, "--group", group_id, "--timeout-ms", "60000")
    assert tool(*read, "--max-messages", "2").split() == ["a", "b"]
    reset = (COMMAND, *at, "--reset-offsets", "--group", group_id, "--topic", topic)
    assert [group_id, topic, "0", "0"] in rows(tool(*reset, "--to-earliest", "--execute"))
    assert tool(*read, "--max-messages", "2").split() == ["a", "b"]
    state = [
        row for row in rows(tool(COMMAND, *at, "--describe", "--group", group_id, "--state")) if row[0] == group_id
    ]
    assert state[0][-2:] == ["Empty", "0"]
    assert [topic, "Successful"] in rows(tool(COMMAND, *at, "--delete-offsets", "--group", group_id, "--topic", topic))
    assert "successful" in tool(COMMAND, *at, "--delete", "--group", group_id)
    assert [group_id] not in rows(tool(COMMAND, *at, "--list"))
