"""What the lake service has made, under names for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = ("topic", "partition")


class LakeNumbers(NamedTuple):
    """One partition with lake output."""

    topic: str
    partition: int
    rows: int
    dead: int
    files: int
    next_offset: int
    tiered_end: int
    problem: str

    @property
    def lag(self) -> int:
        """Offsets that are in the tier and not in files yet."""
        return max(0, self.tiered_end - self.next_offset)


class LakeCollector(Collector):
    """Asks for the numbers at each scrape, from the thread of whoever scrapes."""

    def __init__(self, numbers: Callable[[], Sequence[LakeNumbers]]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        families: list[tuple[CounterMetricFamily | GaugeMetricFamily, str]] = [
            (CounterMetricFamily("appliance_lake_rows", "Rows in files that count.", labels=LABELS), "rows"),
            (
                CounterMetricFamily("appliance_lake_dead_letters", "Records that did not parse.", labels=LABELS),
                "dead",
            ),
            (CounterMetricFamily("appliance_lake_files", "Files that count.", labels=LABELS), "files"),
            (GaugeMetricFamily("appliance_lake_next_offset", "Rows below are in files.", labels=LABELS), "next_offset"),
            (GaugeMetricFamily("appliance_lake_lag", "Tiered offsets without files.", labels=LABELS), "lag"),
        ]
        failing = GaugeMetricFamily("appliance_lake_failing", "1 while the last attempt failed.", labels=LABELS)
        for one in self._numbers():
            labels = [one.topic, str(one.partition)]
            for family, attribute in families:
                family.add_metric(labels, getattr(one, attribute))
            failing.add_metric(labels, int(bool(one.problem)))
        yield from (family for family, _ in families)
        yield failing
