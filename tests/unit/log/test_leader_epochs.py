"""Which leader epoch begins where, and where it ends."""

from __future__ import annotations

from appliance.log.leader_epochs import LeaderEpochCache


def cache_of(*entries: tuple[int, int], end: int = 1000) -> LeaderEpochCache:
    return LeaderEpochCache(lambda: end, entries)


def test_epochs_are_noted_in_order() -> None:
    cache = cache_of()
    cache.assign(0, 0)
    cache.assign(3, 50)
    assert cache.entries == [(0, 0), (3, 50)] and cache.latest == 3 and cache.unstored


def test_a_known_epoch_keeps_its_start() -> None:
    cache = cache_of((3, 50))
    cache.assign(3, 70)
    assert cache.entries == [(3, 50)] and not cache.unstored


def test_an_epoch_without_records_gives_way() -> None:
    cache = cache_of((1, 0), (2, 50))
    cache.assign(3, 50)
    assert cache.entries == [(1, 0), (3, 50)]


def test_an_older_epoch_that_a_leader_sends_replaces_what_was_believed_newer() -> None:
    cache = cache_of((1, 0), (5, 50))
    cache.assign(4, 40)
    assert cache.entries == [(1, 0), (4, 40)]


def test_batches_without_an_epoch_are_not_noted() -> None:
    cache = cache_of()
    cache.assign(-1, 0)
    assert cache.entries == []


def test_the_latest_epoch_ends_at_the_log_end() -> None:
    assert cache_of((1, 0), (4, 50)).end_offset_for(4) == (4, 1000)


def test_an_epoch_ends_where_the_next_begins() -> None:
    assert cache_of((1, 0), (4, 50), (6, 80)).end_offset_for(4) == (4, 80)


def test_for_a_skipped_epoch_the_one_below_answers() -> None:
    assert cache_of((1, 0), (4, 50), (6, 80)).end_offset_for(5) == (4, 80)
    assert cache_of((1, 0), (4, 50)).end_offset_for(3) == (1, 50)


def test_for_an_epoch_older_than_all_the_first_start_is_the_end() -> None:
    assert cache_of((4, 50), (6, 80)).end_offset_for(2) == (2, 50)


def test_nothing_is_known_of_a_newer_epoch() -> None:
    assert cache_of((4, 50)).end_offset_for(5) == (-1, -1)
    assert cache_of().end_offset_for(0) == (-1, -1)
    assert cache_of((4, 50)).end_offset_for(-1) == (-1, -1)


def test_the_epoch_of_a_record() -> None:
    cache = cache_of((1, 10), (4, 50))
    assert [cache.epoch_for(offset) for offset in (9, 10, 49, 50, 10**9)] == [-1, 1, 1, 4, 4]


def test_a_cut_forgets_epochs_that_begin_at_or_above_it() -> None:
    cache = cache_of((1, 0), (4, 50), (6, 80))
    cache.truncate_from_end(80)
    assert cache.entries == [(1, 0), (4, 50)] and cache.unstored


def test_a_higher_log_start_moves_the_oldest_epoch() -> None:
    cache = cache_of((1, 0), (4, 50), (6, 80))
    cache.truncate_from_start(60)
    assert cache.entries == [(4, 60), (6, 80)]
    cache.truncate_from_start(80)
    assert cache.entries == [(6, 80)]


def test_a_log_start_below_all_epochs_changes_nothing() -> None:
    cache = cache_of((4, 50))
    cache.truncate_from_start(20)
    cache.truncate_from_start(50)
    assert cache.entries == [(4, 50)] and not cache.unstored


def test_a_cleared_cache_is_empty() -> None:
    cache = cache_of((4, 50))
    cache.clear()
    assert cache.entries == [] and cache.latest == -1 and cache.unstored
