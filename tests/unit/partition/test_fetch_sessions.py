from __future__ import annotations

from collections.abc import Iterator

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_sessions import FetchSessions, SessionPartition

EVICTION_MS = 1_000


def sessions_of(max_sessions: int = 10) -> FetchSessions:
    numbers: Iterator[int] = iter(range(1_000))
    return FetchSessions(max_sessions, EVICTION_MS, lambda: next(numbers))


def wanted(*names: str, offset: int = 0) -> list[SessionPartition]:
    return [SessionPartition((name, 0), offset, 1_000) for name in names]


def test_the_first_request_opens_a_session() -> None:
    context = sessions_of().context(0, 0, False, wanted("a", "b"), (), now_ms=0)
    assert context.session_id == 1, "0 means no session and is never given out"
    assert not context.is_incremental
    assert [partition.key[0] for partition in context.partitions] == ["a", "b"]


def test_a_reader_that_wants_no_session_gets_none() -> None:
    context = sessions_of().context(0, -1, False, wanted("a"), (), now_ms=0)
    assert context.session_id == 0
    assert len(context.partitions) == 1


def test_an_incremental_request_names_only_what_changed() -> None:
    sessions = sessions_of()
    session_id = sessions.context(0, 0, False, wanted("a", "b", "c"), (), now_ms=0).session_id
    context = sessions.context(session_id, 1, False, wanted("b", "d", offset=7), [("c", 0)], now_ms=1)
    assert context.is_incremental
    assert [(partition.key[0], partition.fetch_offset) for partition in context.partitions] == [
        ("a", 0),
        ("b", 7),
        ("d", 7),
    ]


def test_epochs_must_follow_each_other() -> None:
    sessions = sessions_of()
    session_id = sessions.context(0, 0, False, wanted("a"), (), now_ms=0).session_id
    assert sessions.context(session_id, 2, False, [], (), 1).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.context(session_id, 1, False, [], (), 1).error == ErrorCode.NONE
    assert sessions.context(session_id, 1, False, [], (), 1).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = sessions_of()
    context = sessions.context(0, 0, False, wanted("a"), (), now_ms=0)
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    assert sessions.context(context.session_id, 2**31 - 1, False, [], (), 1).error == ErrorCode.NONE
    assert sessions.context(context.session_id, 1, False, [], (), 1).error == ErrorCode.NONE


def test_an_unknown_session_is_an_error_and_names_and_ids_do_not_mix() -> None:
    sessions = sessions_of()
    assert sessions.context(99, 1, False, [], (), 0).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = sessions.context(0, 0, False, wanted("a"), (), now_ms=0).session_id
    assert sessions.context(session_id, 1, True, [], (), 1).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_request_or_the_last_epoch_ends_the_session() -> None:
    sessions = sessions_of()
    first = sessions.context(0, 0, False, wanted("a"), (), now_ms=0).session_id
    second = sessions.context(first, 0, False, wanted("a"), (), now_ms=1).session_id
    assert second != first
    assert sessions.context(first, 1, False, [], (), 2).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.context(second, -1, False, [], (), now_ms=3)
    assert len(sessions) == 0


def test_a_full_cache_gives_no_session_until_one_is_old_enough() -> None:
    sessions = sessions_of(max_sessions=2)
    first = sessions.context(0, 0, False, wanted("a"), (), now_ms=0).session_id
    second = sessions.context(0, 0, False, wanted("a"), (), now_ms=0).session_id
    assert sessions.context(0, 0, False, wanted("a"), (), now_ms=EVICTION_MS - 1).session_id == 0
    sessions.context(first, 1, False, [], (), now_ms=EVICTION_MS)
    assert sessions.context(0, 0, False, wanted("a"), (), now_ms=EVICTION_MS).session_id != 0
    assert sessions.context(first, 2, False, [], (), EVICTION_MS).error == ErrorCode.NONE
    assert sessions.context(second, 1, False, [], (), EVICTION_MS).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_brought_records_goes_behind_the_others() -> None:
    sessions = sessions_of()
    context = sessions.context(0, 0, False, wanted("a", "b", "c"), (), now_ms=0)
    assert context.session is not None
    context.session.served([("a", 0)])
    again = sessions.context(context.session_id, 1, False, [], (), now_ms=1)
    assert [partition.key[0] for partition in again.partitions] == ["b", "c", "a"]


def test_numbers_are_news_once() -> None:
    partition = wanted("a")[0]
    assert partition.news(5, 5, 0)
    assert not partition.news(5, 5, 0)
    assert partition.news(6, 5, 0)
    assert partition.news(6, 6, 0)
    assert partition.news(6, 6, 1)
