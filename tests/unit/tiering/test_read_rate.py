"""The rate of reads of the tier, as Apache Kafka measures it."""

from __future__ import annotations

from appliance.tiering.read_rate import UNLIMITED, ReadRate

LIMIT, WINDOWS, WINDOW_MS = 1_000, 11, 1_000


def rate_of(limit: int = LIMIT) -> ReadRate:
    return ReadRate(limit, WINDOWS, WINDOW_MS)


def test_without_a_limit_nobody_waits() -> None:
    rate = rate_of(UNLIMITED)
    rate.read(1 << 40, 0)
    assert rate.wait_ms(0) == 0


def test_what_is_within_the_limit_waits_for_nothing() -> None:
    rate = rate_of()
    assert rate.wait_ms(0) == 0
    rate.read(LIMIT, 0)
    assert rate.wait_ms(0) == rate.wait_ms(500) == 0


def test_a_large_read_is_paid_for_before_the_next_begins() -> None:
    """Five seconds' worth: it counts as that much in one second, for the rate is never measured over less."""
    rate = rate_of()
    rate.read(5 * LIMIT, 0)
    assert [rate.wait_ms(now_ms) for now_ms in (0, 1_000, 4_000, 4_999)] == [4_000, 4_000, 1_000, 1]
    assert rate.wait_ms(5_000) == 0


def test_the_rate_is_that_since_the_oldest_window_began() -> None:
    rate = rate_of()
    for second in range(4):
        rate.read(2 * LIMIT, second * 1_000)
    assert rate.wait_ms(4_000) == 4_000, "8 seconds' worth in 4"
    assert rate.wait_ms(8_000) == 0


def test_windows_are_forgotten_when_their_last_read_is_old() -> None:
    rate = rate_of()
    rate.read(1_000 * LIMIT, 0)
    rate.read(1, 999)
    assert rate.wait_ms(WINDOWS * WINDOW_MS) > 0
    assert rate.wait_ms(WINDOWS * WINDOW_MS + 998) > 0
    assert rate.wait_ms(WINDOWS * WINDOW_MS + 999) == 0
    rate.read(LIMIT, 20_000)
    assert rate.wait_ms(20_000) == 0, "nothing is left of it"


def test_another_limit_holds_for_what_was_read_before() -> None:
    rate = rate_of()
    rate.read(5 * LIMIT, 0)
    rate.max_bytes_per_second = 5 * LIMIT
    assert rate.wait_ms(0) == 0
    rate.max_bytes_per_second = LIMIT // 2
    assert rate.wait_ms(0) == 9_000


def test_waits_are_told_for_a_minute() -> None:
    waits = rate_of().waits
    assert waits.average_and_longest_ms(0) == (0.0, 0)
    waits.record(100, 0)
    waits.record(300, 29_999)
    waits.record(800, 30_000)
    assert waits.average_and_longest_ms(59_999) == (400.0, 800)
    assert waits.average_and_longest_ms(60_000) == (800.0, 800)
    assert waits.average_and_longest_ms(90_000) == (0.0, 0)
