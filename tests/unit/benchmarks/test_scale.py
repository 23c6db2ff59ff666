"""What the benchmark of many partitions writes down, from measurements that are made up."""

from __future__ import annotations

from tests.benchmarks.run import DOCUMENT
from tests.benchmarks.scale import BEGIN, END, PARTITIONS, Measured, section
from tests.benchmarks.scale_client import PARTITIONS_PER_TOPIC, names_of


def measured(name: str, value: float) -> Measured:
    result = Measured(name)
    result.note("memory, MiB", value, 0)
    return result


def test_two_servers_stand_beside_each_other_with_their_ratio() -> None:
    text = section([("Commit", "abc")], [measured("Kafka", 1000), measured("ours", 250)])
    assert text.startswith(BEGIN) and text.endswith(END)
    assert "| memory, MiB | 1,000 | 250 | 0.25 |" in text


def test_one_server_alone_has_no_ratio() -> None:
    assert "| memory, MiB | 250 |\n" in section([], [measured("ours", 250)])


def test_partitions_are_spread_over_topics_of_a_hundred() -> None:
    names = names_of(PARTITIONS)
    assert len(set(names)) == PARTITIONS
    assert {partition for _, partition in names} == set(range(PARTITIONS_PER_TOPIC))


def test_the_document_has_a_place_for_the_figures() -> None:
    text = DOCUMENT.read_text()
    assert text.index(BEGIN) < text.index(END)
