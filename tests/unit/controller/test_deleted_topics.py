from __future__ import annotations

import uuid

from appliance.controller.deleted_topics import BACKOFF_MS, LOOK_AGAIN_MS, DeletedTopics
from appliance.controller.delta import image_of
from appliance.controller.records import TopicCreated, TopicDeleted, TopicObjectsGone
from appliance.controller.snapshots import records_of

FIRST, SECOND = uuid.UUID(int=1, version=4), uuid.UUID(int=2, version=4)
DELAY_MS = 1_000


def waiting(*ids: uuid.UUID) -> DeletedTopics:
    topics = DeletedTopics(DELAY_MS)
    topics.know({topic_id: f"t{topic_id.int & 7}" for topic_id in ids}, 0)
    return topics


def test_running_readers_have_their_delay() -> None:
    topics = waiting(FIRST)
    assert topics.next(DELAY_MS - 1) is None
    assert topics.next(DELAY_MS) == FIRST


def test_one_round_is_under_way_at_a_time_and_a_bounded_one_goes_on_at_once() -> None:
    topics = waiting(FIRST, SECOND)
    begun = topics.next(DELAY_MS)
    assert begun is not None and topics.next(DELAY_MS) is None
    assert not topics.done(begun, 1_000, False, DELAY_MS + 5)
    assert {topics.next(DELAY_MS + 5), begun} == {FIRST, SECOND}, "the other topic has waited for longer"
    assert topics.removed == 1_000


def test_a_topic_is_forgotten_when_two_looks_a_day_apart_find_nothing() -> None:
    topics = waiting(FIRST)
    now_ms = DELAY_MS
    for objects in (7, 0, 3, 0):
        assert topics.next(now_ms) == FIRST
        assert not topics.done(FIRST, objects, True, now_ms), "a late upload may still come"
        assert topics.next(now_ms + LOOK_AGAIN_MS - 1) is None
        now_ms += LOOK_AGAIN_MS
    assert topics.next(now_ms) == FIRST
    assert topics.done(FIRST, 0, True, now_ms)


def test_a_store_that_does_not_answer_is_asked_more_and_more_rarely_and_named() -> None:
    topics = waiting(FIRST)
    now_ms = DELAY_MS
    for attempt in range(3):
        assert topics.next(now_ms) == FIRST
        topics.failed(FIRST, "503", now_ms)
        assert topics.waits_for(now_ms) == "t1: 503"
        assert topics.next(now_ms + (BACKOFF_MS << attempt) - 1) is None
        now_ms += BACKOFF_MS << attempt
    assert topics.next(now_ms) == FIRST
    topics.done(FIRST, 1, True, now_ms)
    assert "in 86400 s" in topics.waits_for(now_ms)


def test_what_the_image_has_no_more_is_let_go_of_also_in_the_middle_of_a_round() -> None:
    topics = waiting(FIRST)
    assert topics.next(DELAY_MS) == FIRST
    topics.know({}, DELAY_MS)
    assert not topics.done(FIRST, 0, True, DELAY_MS)
    assert (topics.next(DELAY_MS), topics.waits_for(DELAY_MS)) == (None, "")


def test_the_image_keeps_deleted_ids_through_snapshots_until_their_objects_are_gone() -> None:
    deleted = image_of([TopicCreated("t", FIRST), TopicDeleted(FIRST)])
    assert dict(deleted.deleted_topics) == {FIRST: "t"}
    assert dict(image_of(records_of(deleted)).deleted_topics) == {FIRST: "t"}
    again = image_of([*records_of(deleted), TopicCreated("t", SECOND)])
    assert dict(again.deleted_topics) == {FIRST: "t"}, "a new topic of the old name has another id"
    assert not image_of([*records_of(again), TopicObjectsGone(FIRST)]).deleted_topics
    assert not image_of([*records_of(deleted), TopicCreated("t", FIRST)]).deleted_topics, "it was brought back"
