from __future__ import annotations

from collections.abc import Iterator

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_sessions import FetchContext, FetchSession, FetchSessions, SessionPartition
from appliance.partition.purgatory import Waiter

EVICTION_MS = 1_000


class WatchedPartition:
    """A partition that only has waiters."""

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}

    def change(self) -> None:
        for waiter in list(self.waiters):
            waiter.woken(self)


class WaitingReader:
    """A fetch that waits, and what it was told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.was_superseded = False

    def changed(self, partition: SessionPartition) -> None:
        self.seen.append(str(partition.key[0]))

    def superseded(self) -> None:
        self.was_superseded = True


def sessions_of(max_sessions: int = 10) -> FetchSessions:
    numbers: Iterator[int] = iter(range(1_000))
    return FetchSessions(max_sessions, EVICTION_MS, lambda: next(numbers))


def wanted(*names: str, offset: int = 0) -> list[SessionPartition]:
    return [SessionPartition((name, 0), offset, 1_000) for name in names]


def opened(sessions: FetchSessions, *names: str, now_ms: int = 0, is_privileged: bool = False) -> FetchSession:
    """A full fetch, and what its answer does."""
    context = sessions.context(0, 0, False, wanted(*names or ("a",)), (), now_ms, is_privileged)
    sessions.open(context.session, now_ms)
    return context.session


def continued(sessions: FetchSessions, session: FetchSession, epoch: int, now_ms: int = 1) -> FetchContext:
    return sessions.context(session.session_id, epoch, False, [], (), now_ms)


def names_of(partitions: list[SessionPartition]) -> list[str]:
    return [str(partition.key[0]) for partition in partitions]


def test_the_answer_to_a_full_fetch_opens_a_session() -> None:
    sessions = sessions_of()
    context = sessions.context(0, 0, False, wanted("a", "b"), (), now_ms=0)
    assert context.wants_session
    assert not context.is_incremental
    assert names_of(context.session.in_turn()) == ["a", "b"]
    assert len(sessions) == 0
    assert sessions.open(context.session, now_ms=0) == 1, "0 means no session and is never given out"
    assert len(sessions) == 1


def test_a_reader_that_wants_no_session_gets_none() -> None:
    context = sessions_of().context(0, -1, False, wanted("a"), (), now_ms=0)
    assert not context.wants_session
    assert names_of(context.session.in_turn()) == ["a"]


def test_a_partition_that_is_named_twice_is_served_once_as_named_last() -> None:
    context = sessions_of().context(0, -1, False, [*wanted("a"), *wanted("b"), *wanted("a", offset=7)], (), now_ms=0)
    assert [(str(each.key[0]), each.fetch_offset) for each in context.session.in_turn()] == [("a", 7), ("b", 0)]


def test_only_partitions_that_changed_are_looked_at() -> None:
    sessions = sessions_of()
    session = opened(sessions, "a", "b", "c")
    partitions = {name: WatchedPartition() for name in ("a", "b", "c")}
    for key, partition in session.partitions.items():
        partition.watch(partitions[str(key[0])])
    session.changed.clear()
    assert continued(sessions, session, 1).session.in_turn() == []
    partitions["b"].change()
    assert names_of(continued(sessions, session, 2).session.in_turn()) == ["b"]


def test_what_a_request_names_is_looked_at() -> None:
    sessions = sessions_of()
    session = opened(sessions, "a", "b", "c")
    session.changed.clear()
    context = sessions.context(session.session_id, 1, False, wanted("b", "d", offset=7), [("c", 0)], now_ms=1)
    assert context.is_incremental
    assert [(str(each.key[0]), each.fetch_offset) for each in context.session.in_turn()] == [("b", 7), ("d", 7)]
    assert list(session.partitions) == [("a", 0), ("b", 0), ("d", 0)]


def test_a_forgotten_partition_tells_nothing_more() -> None:
    sessions = sessions_of()
    session = opened(sessions, "a", "b")
    partition = WatchedPartition()
    session.partitions["a", 0].watch(partition)
    sessions.context(session.session_id, 1, False, [], [("a", 0)], now_ms=1)
    assert not partition.waiters
    assert names_of(session.in_turn()) == ["b"]


def test_a_waiting_fetch_is_told_which_of_its_partitions_changed() -> None:
    session = opened(sessions_of(), "a", "b")
    reader = session.reader = WaitingReader()
    partition = WatchedPartition()
    session.partitions["b", 0].watch(partition)
    partition.change()
    assert reader.seen == ["b"]


def test_who_brought_records_goes_behind_the_others() -> None:
    sessions = sessions_of()
    session = opened(sessions, "a", "b", "c")
    session.served(session.partitions["a", 0])
    assert names_of(continued(sessions, session, 1).session.in_turn()) == ["b", "c", "a"]
    session.served(session.partitions["c", 0])
    assert names_of(session.in_turn()) == ["b", "a", "c"]


def test_epochs_must_follow_each_other() -> None:
    sessions = sessions_of()
    session = opened(sessions)
    assert continued(sessions, session, 2).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert continued(sessions, session, 1).error == ErrorCode.NONE
    assert continued(sessions, session, 1).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = sessions_of()
    session = opened(sessions)
    session.epoch = 2**31 - 1
    assert continued(sessions, session, 2**31 - 1).error == ErrorCode.NONE
    assert continued(sessions, session, 1).error == ErrorCode.NONE


def test_a_fetch_that_waits_hears_that_another_has_gone_on_with_its_session() -> None:
    sessions = sessions_of()
    session = opened(sessions)
    first = continued(sessions, session, 1)
    reader = session.reader = WaitingReader()
    second = continued(sessions, session, 2)
    assert reader.was_superseded
    assert first.is_superseded
    assert not second.is_superseded


def test_an_unknown_session_is_an_error_and_names_and_ids_do_not_mix() -> None:
    sessions = sessions_of()
    assert sessions.context(99, 1, False, [], (), 0).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = opened(sessions).session_id
    assert sessions.context(session_id, 1, True, [], (), 1).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_request_or_the_last_epoch_ends_the_session() -> None:
    sessions = sessions_of()
    first = opened(sessions)
    partition = WatchedPartition()
    first.partitions["a", 0].watch(partition)
    first.is_watching = True
    second = sessions.context(first.session_id, 0, False, wanted("a"), (), now_ms=1).session
    assert not partition.waiters, "a session that has ended watches nothing"
    assert sessions.open(second, 1) not in (0, first.session_id)
    assert continued(sessions, first, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.context(second.session_id, -1, False, [], (), now_ms=3)
    assert len(sessions) == 0


def test_a_session_without_partitions_ends() -> None:
    sessions = sessions_of()
    session = opened(sessions, "a")
    context = sessions.context(session.session_id, 1, False, [], [("a", 0)], now_ms=1)
    assert (context.is_incremental, context.session.session_id, len(sessions)) == (False, 0, 0)


def test_a_full_cache_gives_no_session_until_one_was_idle_for_long_enough() -> None:
    sessions = sessions_of(max_sessions=2)
    first, second = opened(sessions), opened(sessions)
    assert opened(sessions, now_ms=EVICTION_MS).session_id == 0
    continued(sessions, first, 1, EVICTION_MS + 1)
    assert opened(sessions, now_ms=EVICTION_MS + 1).session_id != 0
    assert sessions.evictions == 1
    assert continued(sessions, first, 2, EVICTION_MS + 1).error == ErrorCode.NONE
    assert continued(sessions, second, 1, EVICTION_MS + 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_old_session_in_use_gives_way_to_one_with_more_partitions() -> None:
    sessions = sessions_of(max_sessions=2)
    small, large = opened(sessions, "a"), opened(sessions, "a", "b", "c")
    later = EVICTION_MS + 1
    for session in (small, large):
        continued(sessions, session, 1, later)
    assert opened(sessions, "x", now_ms=later).session_id == 0, "no more partitions than the smallest"
    assert opened(sessions, "x", "y", now_ms=later).session_id != 0
    assert continued(sessions, small, 2, later).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert continued(sessions, large, 2, later).error == ErrorCode.NONE


def test_a_young_session_gives_way_to_followers_only() -> None:
    sessions = sessions_of(max_sessions=1)
    consumer = opened(sessions, "a", "b")
    assert opened(sessions, "a", "b", "c").session_id == 0
    follower = opened(sessions, "a", is_privileged=True)
    assert follower.session_id != 0
    assert continued(sessions, consumer, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, "a", "b", is_privileged=True).session_id == 0, "young, and a follower's itself"
    continued(sessions, follower, 1, EVICTION_MS + 1)
    assert opened(sessions, *map(str, range(9)), now_ms=EVICTION_MS + 1).session_id == 0, "consumers do not displace it"


def test_numbers_are_news_once() -> None:
    partition = wanted("a")[0]
    assert partition.news(5, 0)
    assert not partition.news(5, 0)
    assert partition.news(6, 0)
    assert partition.news(6, 1)
    assert not partition.news(6, 1)
