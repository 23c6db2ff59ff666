"""The same requests to this broker and to Apache Kafka 4.3, in every version that both serve: the answers are the same.

Cases are in `tests/support/differential/`. What is meant to differ is listed in `meant.py` with its reason, and in
docs/differences.md; the run prints how many lines that are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.compat import AGAINST_KAFKA
from tests.support.differential import (
    all_cases,  # noqa: F401
    asked,
)
from tests.support.differential.meant import MEANT
from tests.support.differential.sides import CASES, Case, Difference, Side, differences, our_side, told
from tests.support.kafka_peer import KafkaPeer
from tests.support.repo import REPO

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(AGAINST_KAFKA, reason="it compares ours with Apache Kafka"),
]


COMPARED: Counter[str] = Counter()
"""Answers by the name of the case."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with our_side(tmp_path_factory.mktemp("ours")) as side:
        yield side


@pytest.fixture(scope="module")
def kafka(kafka_peer: KafkaPeer) -> Iterator[Side]:
    side = Side("kafka", kafka_peer.host, kafka_peer.port)
    yield side
    side.close()


def test_apache_kafka_serves_what_is_written_down(kafka: Side) -> None:
    asked.keep_served(kafka.served)


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.compat if one.is_for_compat else ()) for one in CASES],
    ids=[one.name for one in CASES],
)
def test_answers_are_those_of_apache_kafka(kafka: Side, ours: Side, case: Case) -> None:
    unexpected: list[Difference] = []
    compared = 0
    counted: asked.Tally = {}
    for version in case.versions_of(kafka, ours):
        for side in (kafka, ours):
            side.begin(f"{case.name.replace('_', '-')}-{version}", version)
            case.run(side)
            side.end()
        compared += len(ours.seen)
        COMPARED[case.name] += len(ours.seen)
        asked.add(counted, asked.tally(kafka.answered))
        for found in differences(kafka, ours):
            meant = next((one for one in MEANT if one.covers(found)), None)
            if meant is None:
                unexpected.append(found)
            else:
                meant.met.append(found)
    assert compared, "no version is served by both"
    assert not unexpected, f"{len(unexpected)} differences:\n{told(unexpected)}"
    asked.keep(case.name, counted)


def test_what_is_meant_to_differ_is_told(request: pytest.FixtureRequest) -> None:
    """Runs last: by then every case has met what it can meet."""
    page = (REPO / "docs" / "differences.md").read_text()
    assert [one.reason for one in MEANT if one.reason not in page] == []
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        met = sum(len(one.met) for one in MEANT)
        terminal.write_line("")
        terminal.write_line(f"{sum(COMPARED.values())} answers were compared with those of Apache Kafka")
        terminal.write_line(f"{len(MEANT)} differences are meant, and were met {met} times")
