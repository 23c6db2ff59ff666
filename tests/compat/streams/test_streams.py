"""Kafka Streams with exactly_once_v2: results are exact although the program is killed and begun anew."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.compat import Sample, Server, produce, read_topic
from tests.support.programs import needs_a_build
from tests.support.streams_programs import TIME, Start, counted, counts_of, end_well, lines, total

pytestmark = [pytest.mark.java, needs_a_build]

WINDOW_MS = 5_000


def words_are_counted_exactly(server: Server, start: Start, state: Path, group_id: str, **options: object) -> None:
    """Each word's counts are 1, 2, 3 and so on: nothing is lost, counted twice or shown twice."""
    source, target = server.new_topic(2, retention_ms="-1"), server.new_topic(2, retention_ms="-1")
    given = {"application": group_id, "from": source, "to": target, "state": state / "one", **options}
    written = lines(600)
    produce(server, source, written[:400], None)
    first = start("words", **given)
    first.until(lambda: total(server, target) > 100)
    first.kill()
    produce(server, source, written[400:], None)
    second = start("words", **given)
    wanted = counts_of(written)
    second.until(lambda: total(server, target) >= sum(map(len, wanted.values())))
    end_well(second)
    assert counted(server, target) == wanted


@pytest.mark.compat
def test_words_are_counted_exactly_though_the_program_is_killed(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    """It is a static member, so that the group need not wait for its session to end."""
    words_are_counted_exactly(server, start, tmp_path, group_id, instance="one")


@pytest.mark.compat
def test_words_are_counted_exactly_by_several_threads_of_a_dynamic_member(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    words_are_counted_exactly(server, start, tmp_path, group_id, threads=2)


@pytest.mark.compat
def test_another_instance_takes_over_with_the_state_out_of_the_changelog(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    source, target = server.new_topic(2, retention_ms="-1"), server.new_topic(2, retention_ms="-1")
    given = {"application": group_id, "from": source, "to": target}
    written = lines(400)
    produce(server, source, written[:200], None)
    first = start("words", state=tmp_path / "one", **given)
    first.until(lambda: total(server, target) == 1_000)
    second = start("words", state=tmp_path / "two", **given)
    second.until(lambda: "RUNNING" in second.of("state"))
    first.kill()
    produce(server, source, written[200:], None)
    second.until(lambda: total(server, target) >= 2_000)
    end_well(second)
    assert counted(server, target) == counts_of(written)


@pytest.mark.compat
def test_what_lies_in_a_window_is_joined_exactly_though_the_program_is_killed(
    server: Server, start: Start, tmp_path: Path, group_id: str
) -> None:
    left, right, joined = (server.new_topic(2, retention_ms="-1") for _ in range(3))
    chance = random.Random(9)

    def side(name: str) -> list[Sample]:
        return [
            Sample(b"key-%d" % chance.randrange(10), f"{name}{number}".encode(), [], TIME + 200 * number)
            for number in range(300)
        ]

    ones, others = side("l"), side("r")
    wanted = Counter(
        (one.key, b"%b %b" % (one.value, other.value))
        for one in ones
        for other in others
        if one.key == other.key and abs(one.timestamp - other.timestamp) <= WINDOW_MS
    )
    given = {"application": group_id, "left": left, "right": right, "to": joined, "window": WINDOW_MS}

    def found() -> Counter[tuple[bytes | None, bytes | None]]:
        read = read_topic(server, joined, 2, isolation_level="read_committed")
        return Counter((message.key(), message.value()) for message in read)

    produce(server, left, ones[:150], None)
    produce(server, right, others[:150], None)
    first = start("join", state=tmp_path / "one", instance="one", **given)
    first.until(lambda: found().total() > 20)
    first.kill()
    produce(server, left, ones[150:], None)
    second = start("join", state=tmp_path / "one", instance="one", **given)
    produce(server, right, others[150:], None)
    second.until(lambda: found().total() >= wanted.total())
    end_well(second)
    assert found() == wanted
