"""How much may be converted for old clients at the same time."""

from __future__ import annotations

from appliance.server.conversions import OTHERS, TOPICS_MAX, Conversions


def test_beyond_the_limit_nothing_begins_but_for_one() -> None:
    conversions = Conversions(100)
    assert conversions.begin(1_000), "the first one in any case"
    assert not conversions.begin(1)
    conversions.end(1_000)
    assert conversions.begin(60) and conversions.begin(40)
    assert not conversions.begin(1)
    conversions.end(60)
    assert conversions.begin(1)
    assert (conversions.refused, conversions.bytes_under_way) == (2, 41)


def test_so_many_topics_are_counted_by_themselves() -> None:
    conversions = Conversions(1)
    for number in (*range(TOPICS_MAX + 5), 0):
        conversions.count(conversions.produced, f"t{number}", 2)
    assert len(conversions.produced) == TOPICS_MAX + 1
    assert (conversions.produced["t0"], conversions.produced[OTHERS]) == (4, 10)
