"""Kafka Streams with its own group protocol (KIP-1071): the broker makes the topics and assigns the tasks.

After a kill the group waits for the session to end, 45 seconds at the least.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.compat import Server, produce, wait_until
from tests.support.java_tools import tool
from tests.support.programs import needs_a_build
from tests.support.streams_programs import Start, counted, counts_of, end_well, lines, total

pytestmark = [pytest.mark.java, pytest.mark.compat, needs_a_build]

STREAMS_TOOL = "streams.StreamsGroupCommand"


def groups_tool(server: Server, *arguments: str) -> str:
    return tool(STREAMS_TOOL, "--bootstrap-server", server.bootstrap_servers, *arguments)


def test_words_are_counted_exactly_though_an_instance_is_killed_and_its_copies_take_over(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    source, target = server.new_topic(2), server.new_topic(2)
    at = ("--bootstrap-server", server.bootstrap_servers, "--entity-type", "groups", "--entity-name", group_id)
    tool("kafka.admin.ConfigCommand", *at, "--alter", "--add-config", "streams.num.standby.replicas=1")
    given = {"application": group_id, "from": source, "to": target, "protocol": "streams"}
    written = lines(400)
    produce(server, source, written[:200], None)
    first = start("words", state=tmp_path / "one", **given)
    first.until(lambda: total(server, target) >= 1_000)
    second = start("words", state=tmp_path / "two", **given)
    second.until(lambda: "RUNNING" in second.of("state"))

    def is_shared() -> bool:
        told = groups_tool(server, "--describe", "--group", group_id, "--members")
        rows = [row for row in told.splitlines() if row.startswith(group_id)]
        return len(rows) == 2 and all("ACTIVE" in row for row in rows) and any("STANDBY" in row for row in rows)

    second.until(is_shared)
    second.until(lambda: "Stable" in groups_tool(server, "--describe", "--group", group_id, "--state"))
    first.kill()
    produce(server, source, written[200:], None)
    second.until(lambda: total(server, target) >= 2_000)
    end_well(second)
    assert counted(server, target) == counts_of(written)


def test_the_tool_lists_describes_resets_and_deletes(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    source, target = server.new_topic(2), server.new_topic(2)
    written = lines(100)
    produce(server, source, written, None)
    given = {"application": group_id, "from": source, "to": target, "protocol": "streams"}
    running = start("words", state=tmp_path / "one", **given)
    running.until(lambda: total(server, target) >= 500)
    assert group_id in groups_tool(server, "--list").split()
    assert re.search(rf"{group_id}\s+Stable", groups_tool(server, "--list", "--state"))
    assert source in groups_tool(server, "--describe", "--group", group_id, "--offsets")
    assert "failed" in groups_tool(server, "--delete", "--group", group_id), "it is in use"
    end_well(running)
    assert counted(server, target) == counts_of(written)
    # It stays a member until its session is over: it might be back in a moment.
    wait_until(lambda: re.search(rf"{group_id}\s+Empty", groups_tool(server, "--list", "--state")), patience_s=180)
    options = ("--reset-offsets", "--group", group_id, "--input-topic", source, "--to-earliest", "--execute")
    assert re.search(rf"{source}\s+[01]\s+0\b", groups_tool(server, *options)), "topic, partition and new offset"
    groups_tool(server, "--delete", "--group", group_id)
    assert group_id not in groups_tool(server, "--list").split()
