"""What clients push is read; what is no such thing is refused, and nothing else happens."""

from __future__ import annotations

import random

import pytest

from appliance.telemetry import otlp
from appliance.telemetry.otlp import BadTelemetry, Series, decode
from tests.support.otlp import gauge, histogram, metrics, number_point, part, total

WHOLE = metrics(
    [
        gauge("a.b", number_point(1.5, {"topic": "t", "n": -3, "yes": True, "half": 0.5}), number_point(-7, {})),
        total("a.total", number_point(12, {"partition": "0"})),
        histogram("a.time", 4, 9.5),
    ],
    {"group_id": "g", "client_rack": "r"},
)


def test_gauges_sums_and_histograms_are_read() -> None:
    pushed = decode(WHOLE)
    assert pushed.resource == (("group_id", "g"), ("client_rack", "r"))
    assert pushed.series == (
        Series("a.b", (("topic", "t"), ("n", "-3"), ("yes", "true"), ("half", "0.5")), 1.5),
        Series("a.b", (), -7),
        Series("a.total", (("partition", "0"),), 12),
        Series("a.time.count", (), 4),
        Series("a.time.sum", (), 9.5),
    )
    assert decode(b"") == ((), (), 0)


def test_what_is_unknown_is_passed_over() -> None:
    assert decode(part(99, b"x") + b"\x50\x01" + b"\x5d1234" + b"\x6112345678" + WHOLE) == decode(WHOLE)


def test_a_push_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "SERIES_MAX", 3)
    pushed = decode(
        metrics([gauge("g" * 9_999, *(number_point(n, {f"k{k}": "v" for k in range(99)}) for n in range(10)))])
    )
    assert len(pushed.series) == 3 and pushed.dropped == 7
    assert len(pushed.series[0].name) == otlp.TEXT_MAX
    assert len(pushed.series[0].attributes) == otlp.ATTRIBUTES_MAX


@pytest.mark.parametrize("data", [WHOLE[:-1], b"\x0a\xff", b"\xff" * 20, b"\x0b", b"\x0a\x05\x12", b"no protobuf"])
def test_what_is_no_metrics_is_refused(data: bytes) -> None:
    with pytest.raises(BadTelemetry):
        decode(data)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_is_read_or_refused(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(100):
        data = bytearray(WHOLE)
        for _ in range(source.randint(1, 5)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            decode(bytes(data[: source.randint(0, len(data))]))
        except BadTelemetry:
            continue
