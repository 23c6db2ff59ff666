"""What clients pushed of their metrics, and what old clients cost, for Prometheus.

Pushed metrics are one family, each value with the names that its client gave it.

Names come from outside, so they stand in labels: `metric` is the metric's, its attributes are labels of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from appliance.metrics.broker_numbers import BrokerNumbers

_BAD = re.compile(r"[^a-zA-Z0-9_]")


def of_clients(numbers: BrokerNumbers) -> Iterator[Metric]:
    pushes = CounterMetricFamily("appliance_client_pushes", "Pushes of clients' metrics.", labels=["outcome"])
    for outcome, count in numbers.telemetry.items():
        pushes.add_metric([outcome], count)
    yield pushes
    about = GaugeMetricFamily("appliance_client_info", "Clients that tell of themselves.")
    values = GaugeMetricFamily("appliance_client_metric", "What clients pushed last; sums since their start.")
    for client in numbers.clients:
        about.add_sample("appliance_client_info", _labels(client.about) | client.labels, 1)
        own = {name: client.labels[name] for name in ("client_instance_id", "client_id") if name in client.labels}
        for name, attributes, value in client.series:
            values.add_sample("appliance_client_metric", _labels(attributes) | own | {"metric": name}, value)
    yield about
    yield values


def of_conversions(numbers: BrokerNumbers) -> Iterator[Metric]:
    """Kafka's names, for what clients of before 2017 cost."""
    for name, text, counts in (
        ("producemessageconversions", "Records that came in message sets.", numbers.produce_conversions),
        ("fetchmessageconversions", "Records that left in message sets.", numbers.fetch_conversions),
    ):
        family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", text, labels=["topic"])
        for topic, count in sorted(counts.items()):
            family.add_metric([topic], count)
        yield family
    refused = numbers.conversions_refused
    yield CounterMetricFamily("appliance_conversions_refused", "Requests beyond message.conversion.max.bytes.", refused)
    yield GaugeMetricFamily("appliance_conversion_bytes", "Bytes that are being converted.", numbers.conversion_bytes)


def _labels(attributes: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Names with other signs than Prometheus takes have _ there; two underscores at the beginning are its own."""
    labels = {}
    for name, value in attributes:
        plain = _BAD.sub("_", name).lstrip("_")
        if plain:
            labels[plain if not plain[0].isdigit() else f"_{plain}"] = value
    return labels
