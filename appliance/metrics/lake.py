"""What the lake service has made, under names for Prometheus, on a port of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Thread
from typing import NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.base.errors import UserError

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


class LakeExporter:
    """Serves the text format of Prometheus until it is closed."""

    def __init__(self, host: str, port: int, numbers: Callable[[], Sequence[LakeNumbers]]) -> None:
        """Raises: UserError: the address cannot be had (exit code 3)."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(LakeCollector(numbers))
        ProcessCollector(registry=registry)
        try:
            started: tuple[WSGIServer, Thread] = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UserError(f"cannot serve metrics on {host}:{port}: {reason}", exit_code=3) from error
        self._server, self._thread = started
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
