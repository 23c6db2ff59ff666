from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.records.errors import CorruptBatch
from appliance.tiering.batch_range import wanted_batches
from tests.support.tier_objects import data_batch
from tests.support.tiered import offsets_of

BATCHES = [data_batch(2 * n, [b"a", b"b"]) for n in range(10)]
DATA = b"".join(BATCHES)
SIZE = len(BATCHES[0])


def test_batches_of_the_range_are_taken_whole() -> None:
    found = wanted_batches(DATA, 5, 9, 1_000_000, min_one=True)
    assert offsets_of(DATA[found.begin : found.stop]) == [4, 5, 6, 7, 8, 9]
    assert (found.next_offset, found.is_complete) == (10, True)


def test_the_first_batch_comes_whole_even_above_the_limit() -> None:
    found = wanted_batches(DATA, 4, 20, 1, min_one=True)
    assert (offsets_of(DATA[found.begin : found.stop]), found.is_complete) == ([4, 5], True)
    found = wanted_batches(DATA, 4, 20, 1, min_one=False)
    assert (found.begin, found.stop, found.is_complete) == (2 * SIZE, 2 * SIZE, True)


def test_a_limit_counts_whole_batches() -> None:
    found = wanted_batches(DATA, 0, 20, 3 * SIZE, min_one=True)
    assert (found.stop, found.is_complete) == (3 * SIZE, True)
    assert wanted_batches(DATA, 0, 20, 3 * SIZE - 1, min_one=True).stop == 2 * SIZE


def test_a_piece_without_wanted_batches_is_walked_over() -> None:
    found = wanted_batches(DATA, 50, 60, 1_000, min_one=True)
    assert (found.begin, found.stop, found.is_complete, found.next_offset) == (len(DATA), len(DATA), False, 50)


def test_other_bytes_are_no_batch() -> None:
    with pytest.raises(CorruptBatch):
        wanted_batches(bytes(100), 0, 10, 100, min_one=True)


@given(cuts=st.lists(st.integers(0, len(DATA)), max_size=6), start=st.integers(0, 19), length=st.integers(1, 20))
def test_pieces_of_any_size_give_the_same_batches(cuts: list[int], start: int, length: int) -> None:
    end = start + length
    edges = [0, *sorted(cuts), len(DATA)]
    held, found, cursor, done = b"", b"", start, False
    for low, high in pairwise(edges):
        held += DATA[low:high]
        wanted = wanted_batches(held, cursor, end, 1 << 40, min_one=not found)
        found += held[wanted.begin : wanted.stop]
        cursor, held, done = wanted.next_offset, held[wanted.stop :], done or wanted.is_complete
        if done:
            break
    assert offsets_of(found) == [o for o in range(20) if start // 2 * 2 <= o < (end + 1) // 2 * 2]
