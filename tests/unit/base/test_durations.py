"""Durations that Java's parser takes, and those that it refuses."""

from __future__ import annotations

import pytest

from appliance.base.durations import duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H30M", 5_400_000),
        ("P1DT0.25S", 86_400_250),
        ("pt1h", 3_600_000),
        ("+P1D", 86_400_000),
        ("PT1,5S", 1_500),
        ("PT2H-30M", 5_400_000),
        ("-PT-1S", 1_000),
        ("PT0.0009S", 0),
        ("P0D", 0),
    ],
)
def test_a_duration_is_read_as_java_reads_it(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["soon", "", "P", "PT", "P1DT", "-PT1H", "P-1D", "P1Y", "1D", "PT1.1234567890S"])
def test_what_is_no_duration_or_goes_back_is_none(text: str) -> None:
    assert duration_ms(text) is None


def test_a_duration_has_an_end() -> None:
    assert duration_ms(f"PT{2**63}S") is None
