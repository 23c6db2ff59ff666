from __future__ import annotations

import uuid
from itertools import count

from appliance.base.errors import ErrorCode
from appliance.partition.replica_sessions import ReplicaSession, ReplicaSessions

KEY = (uuid.UUID(int=1), 0)


def sessions_of(limit: int = 10) -> ReplicaSessions:
    numbers = count(1)
    return ReplicaSessions(limit, lambda: next(numbers))


def opened(sessions: ReplicaSessions, replica_id: int = 2, broker_epoch: int = 5) -> ReplicaSession:
    session, _ = sessions.find(0, 0, replica_id, broker_epoch)
    assert isinstance(session, ReplicaSession)
    return session


def test_a_session_goes_on_with_the_next_epoch_of_the_same_broker_epoch_only() -> None:
    sessions = sessions_of()
    session = opened(sessions)
    assert sessions.find(session.session_id, 1, 2, 5)[0] is session
    assert sessions.find(session.session_id, 1, 2, 5)[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.find(session.session_id, 2, 2, 6)[0] is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.find(session.session_id, 2, 3, 5)[0] is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_process_of_a_broker_ends_the_sessions_of_the_old_one() -> None:
    sessions = sessions_of()
    old = opened(sessions, broker_epoch=5)
    _, ended = sessions.find(0, 0, 2, 6)
    assert ended == [old]


def test_sessions_are_bounded_and_the_one_that_was_used_longest_ago_goes() -> None:
    sessions = sessions_of(2)
    first, second = opened(sessions, 2), opened(sessions, 3)
    sessions.find(first.session_id, 1, 2, 5)
    _, ended = sessions.find(0, 0, 4, 5)
    assert ended == [second] and len(sessions) == 2


def test_a_partition_that_changes_is_ready_and_calls_the_fetch_that_waits() -> None:
    session = opened(sessions_of())
    followed = session.follow(KEY)
    session.ready.clear()
    called: list[bool] = []
    session.on_ready = lambda: called.append(True)
    followed.changed()
    assert list(session.ready) == [followed] and called == [True]
    assert session.forget(KEY) is followed and not session.ready


def test_a_follower_is_healthy_since_the_answer_that_its_newest_fetch_names() -> None:
    session = opened(sessions_of())
    session.answered(1_000)
    assert session.healthy_since_ms == -1
    session.fetched()
    session.answered(2_000)
    assert session.healthy_since_ms == 1_000


def test_a_fetch_sent_behind_one_that_waits_says_nothing_of_the_answer_in_between() -> None:
    session = opened(sessions_of())
    session.answered(1_000)
    session.fetched()

    def end_wait() -> None:
        session.end_wait = None
        session.answered(9_000)

    session.end_wait = end_wait
    session.fetched()
    assert session.healthy_since_ms == 1_000 and session.answer_left_ms == 9_000
