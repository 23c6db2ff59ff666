"""What members of a share group say of records, and what becomes of it: here and on Apache Kafka."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compat import Server, produce, wait_until
from tests.support.java_tools import RunningTool, tool

pytestmark = [pytest.mark.java, pytest.mark.compat, pytest.mark.timeout(600)]

Start = Callable[..., RunningTool]
GROUPS = "consumer.group.ShareGroupCommand"
CONSOLE = "consumer.ConsoleShareConsumer"
READER = str(Path(__file__).with_name("ShareReader.java"))
PATIENCE_S = 120.0
LOCK_MS = 15_000
"""The shortest that a group may have."""


@pytest.fixture
def group(server: Server, group_id: str) -> str:
    """A group that begins with the first record, gives each three times at the most, and not for long."""
    entries = f"share.auto.offset.reset=earliest,share.delivery.count.limit=3,share.record.lock.duration.ms={LOCK_MS}"
    at = ("--bootstrap-server", server.bootstrap_servers, "--entity-type", "groups", "--entity-name", group_id)
    tool("kafka.admin.ConfigCommand", *at, "--alter", "--add-config", entries)
    return group_id


@pytest.fixture
def at(server: Server) -> tuple[str, str]:
    return "--bootstrap-server", server.bootstrap_servers


def deliveries(reader: RunningTool) -> dict[str, list[int]]:
    """What it was handed out, and which time it was."""
    seen: dict[str, list[int]] = defaultdict(list)
    for each in reader.of("record"):
        seen[each["value"]].append(each["deliveries"])
    return dict(seen)


def until(reader: RunningTool, condition: Callable[[], object]) -> None:
    def is_so() -> bool:
        assert reader.code is None, reader.errors
        return bool(condition())

    wait_until(is_so, patience_s=PATIENCE_S)


def offsets(at: tuple[str, str], group: str, topic: str) -> list[tuple[str, str]]:
    """Start offset and lag of each partition."""
    rows = [line.split() for line in tool(GROUPS, *at, "--describe", "--group", group).splitlines()]
    return [(row[3], row[4]) for row in rows if row[:2] == [group, topic]]


def lags(at: tuple[str, str], group: str, topic: str) -> list[str]:
    """A start offset moves with Kafka's next write; what is done with is no lag there, either."""
    return [lag for _, lag in offsets(at, group, topic)]


def test_a_record_comes_again_as_its_reader_says_and_at_most_as_often_as_it_may(
    server: Server, at: tuple[str, str], start: Start, group: str
) -> None:
    topic = server.new_topic(1)
    produce(server, topic, [b"accept-1", b"once-1", b"reject-1", b"release-1"])
    reader = start(READER, server.bootstrap_servers, group, topic)
    wanted = {"accept-1": [1], "once-1": [1, 2], "reject-1": [1], "release-1": [1, 2, 3]}
    until(reader, lambda: deliveries(reader) == wanted)
    wait_until(lambda: lags(at, group, topic) == ["0"], patience_s=PATIENCE_S)
    produce(server, topic, [b"accept-2"])
    until(reader, lambda: "accept-2" in deliveries(reader))
    assert deliveries(reader) == wanted | {"accept-2": [1]}
    assert {each["error"] for each in reader.of("committed")} == {""}


def test_a_record_that_is_held_for_too_long_is_somebody_elses(
    server: Server, start: Start, group: str, tmp_path: Path
) -> None:
    topic = server.new_topic(1)
    produce(server, topic, [b"hold-1"])
    slow = start(READER, server.bootstrap_servers, group, topic, str(tmp_path / "go on"))
    until(slow, lambda: deliveries(slow) == {"hold-1": [1]})
    other = start(READER, server.bootstrap_servers, group, topic)
    until(other, lambda: deliveries(other) == {"hold-1": [2]})
    until(other, lambda: [each["error"] for each in other.of("committed")] == [""])
    (tmp_path / "go on").touch()
    until(slow, lambda: slow.of("committed"))
    assert [each["error"] for each in slow.of("committed")] == [""], "it is done with, whoever did it"


def test_what_a_killed_reader_had_comes_again(server: Server, start: Start, group: str, tmp_path: Path) -> None:
    topic = server.new_topic(1)
    produce(server, topic, [b"hold-1"])
    killed = start(READER, server.bootstrap_servers, group, topic, str(tmp_path / "never"))
    until(killed, lambda: deliveries(killed) == {"hold-1": [1]})
    killed.kill()
    other = start(READER, server.bootstrap_servers, group, topic)
    until(other, lambda: deliveries(other) == {"hold-1": [2]})


def test_the_console_releases_and_rejects(server: Server, at: tuple[str, str], group: str) -> None:
    topic = server.new_topic(1)
    produce(server, topic, [b"a", b"b"])
    read = (CONSOLE, *at, "--topic", topic, "--group", group, "--max-messages", "2", "--timeout-ms", "60000")
    assert tool(*read, "--release").split() == ["a", "b"]
    assert tool(*read, "--reject").split() == ["a", "b"]
    produce(server, topic, [b"c", b"d"])
    assert tool(*read).split() == ["c", "d"]
    wait_until(lambda: lags(at, group, topic) == ["0"], patience_s=PATIENCE_S)


def test_the_perf_tool_reads_everything(server: Server, at: tuple[str, str], group: str) -> None:
    topic = server.new_topic(2)
    for partition in range(2):
        produce(server, topic, [b"x" * 100] * 5_000, partition)
    said = tool("ShareConsumerPerformance", *at, "--topic", topic, "--group", group, "--num-records", "10000")
    assert re.search(r", 10000, ", said), said


def test_offsets_are_reset_as_asked_and_never_of_a_group_with_members(
    server: Server, at: tuple[str, str], start: Start, group: str
) -> None:
    topic = server.new_topic(2)
    for partition in range(2):
        produce(server, topic, [b"accept-1", b"accept-2"], partition)
    reset = (GROUPS, *at, "--reset-offsets", "--group", group, "--topic", topic)
    reader = start(READER, server.bootstrap_servers, group, topic)
    until(reader, lambda: sum(map(len, deliveries(reader).values())) == 4)
    refused = tool(*reset, "--to-earliest", "--execute", code=1)
    assert "it is in use" in refused or "not empty" in refused.lower(), refused
    reader.stop()
    wait_until(lambda: "Empty" in tool(GROUPS, *at, "--describe", "--group", group, "--state"), patience_s=PATIENCE_S)

    def told(*how: str) -> list[list[str]]:
        return sorted(line.split() for line in tool(*reset, *how).splitlines() if line.startswith(group))

    assert told("--to-earliest", "--dry-run") == [[group, topic, "0", "0"], [group, topic, "1", "0"]]
    wait_until(lambda: lags(at, group, topic) == ["0", "0"], patience_s=PATIENCE_S)
    assert told("--to-datetime", "2000-01-01T00:00:00.000", "--execute") == [
        [group, topic, "0", "0"], [group, topic, "1", "0"],
    ]  # fmt: skip
    assert sorted(offsets(at, group, topic)) == [("0", "2"), ("0", "2")]
    assert told("--to-latest", "--execute") == [[group, topic, "0", "2"], [group, topic, "1", "2"]]
    assert tool(CONSOLE, *at, "--topic", topic, "--group", group, "--timeout-ms", "4000", "--max-messages", "1") == ""


def test_offsets_of_what_is_not_there_are_not_deleted(server: Server, at: tuple[str, str], group: str) -> None:
    topic = server.new_topic(1)
    produce(server, topic, [b"a"])
    tool(CONSOLE, *at, "--topic", topic, "--group", group, "--max-messages", "1", "--timeout-ms", "60000")
    delete = (GROUPS, *at, "--delete-offsets", "--group", group)
    assert "Successful" not in tool(*delete, "--topic", f"no-{topic}")
    assert "Successful" in tool(*delete, "--topic", topic)
    assert offsets(at, group, topic) == []
