"""How operations share commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from appliance.controller import commit_queue
from appliance.controller.commit_queue import COMMITS_AT_ONCE, MAX_RECORDS_BYTES, CommitQueue, split
from appliance.controller.commits import MAX_COMMIT_BYTES, NO_NONCE, Commit, encode_commit
from appliance.controller.decisions import Decision
from appliance.controller.image import MetadataImage
from appliance.controller.records import ProducerIdsAllocated, Record, TopicCreated
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from tests.support.metadata import after, cluster

NEVER = 1 << 40


def next_block(image: MetadataImage) -> Decision:
    first = image.next_producer_id
    return Decision(
        [ProducerIdsAllocated(1, 1, first + 1_000)], lambda _: AllocateProducerIdsResponse(producer_id_start=first)
    )


def bulk(count: int) -> Callable[[MetadataImage], Decision]:
    records: list[Record] = [TopicCreated("x" * 200 + str(number), uuid.uuid4()) for number in range(count)]
    return lambda image: Decision(records)


def test_operations_that_wait_share_a_commit_and_see_each_other() -> None:
    queue, image = CommitQueue(), cluster(1)
    for token in "abc":
        assert queue.submit(next_block, token, NEVER)
    assert queue.delay_ms(0) == 0
    batch = queue.next_batch(image)
    (records,) = batch.commits
    assert [record.next_producer_id for record in records] == [1_000, 2_000, 3_000]  # type: ignore[union-attr]
    answers = queue.settled(after(image, *records))
    assert [(answer.token, answer.result.producer_id_start) for answer in answers] == [  # type: ignore[union-attr]
        ("a", 0),
        ("b", 1_000),
        ("c", 2_000),
    ]


def test_nothing_is_decided_while_a_batch_is_under_way() -> None:
    queue, image = CommitQueue(), cluster(1)
    queue.submit(next_block, "a", NEVER)
    batch = queue.next_batch(image)
    queue.submit(next_block, "b", NEVER)
    assert queue.delay_ms(0) is None
    queue.settled(after(image, *batch.commits[0]))
    assert queue.delay_ms(0) == 0


def test_an_operation_that_fails_answers_for_itself_alone() -> None:
    def fail(image: MetadataImage) -> Decision:
        raise ValueError("a mistake of ours")

    queue, image = CommitQueue(), cluster(1)
    for token, operation in (("a", next_block), ("b", fail), ("c", next_block)):
        queue.submit(operation, token, NEVER)
    batch = queue.next_batch(image)
    results = [answer.result for answer in queue.settled(after(image, *batch.commits[0]))]
    assert isinstance(results[1], ValueError)
    assert [result.producer_id_start for result in results[::2]] == [0, 1_000]  # type: ignore[union-attr]


def test_a_batch_without_records_needs_no_commit() -> None:
    queue, image = CommitQueue(), cluster(1)
    queue.submit(lambda image: Decision(), "a", NEVER)
    assert queue.next_batch(image).commits == []
    assert [answer.token for answer in queue.settled(image)] == ["a"]


def test_what_does_not_fit_waits_for_the_next_commit() -> None:
    queue, image = CommitQueue(), cluster(1)
    for token in "ab":
        queue.submit(bulk(3_000), token, NEVER)
    first = queue.next_batch(image)
    assert [token for token, _ in first.decided] == ["a"]
    assert len(first.commits) == 1
    queue.settled(after(image, *first.commits[0]))
    assert len(queue) == 1


def test_one_event_that_is_too_large_is_split() -> None:
    queue, image = CommitQueue(), cluster(1)
    queue.submit(bulk(10_000), "a", NEVER)
    batch = queue.next_batch(image)
    assert len(batch.commits) == 3
    assert sum(map(len, batch.commits)) == 10_000
    for records in batch.commits:
        commit = Commit(1, 1, 1, 0, NO_NONCE, NO_NONCE, tuple(records))
        assert len(encode_commit(commit)) <= MAX_COMMIT_BYTES


def test_records_are_split_in_their_order() -> None:
    records = [TopicCreated("x" * 200, uuid.uuid4()) for _ in range(6_000)]
    parts = split(records)
    assert [record for part in parts for record in part] == records
    assert split([]) == []
    assert MAX_RECORDS_BYTES < MAX_COMMIT_BYTES


def test_an_idle_controller_commits_at_once_and_a_busy_one_ten_times_a_second() -> None:
    queue, image, now_ms, commits = CommitQueue(), cluster(1), 0, 0
    while now_ms < 60_000:
        queue.submit(next_block, "a", NEVER)
        delay_ms = queue.delay_ms(now_ms)
        assert delay_ms is not None
        assert commits >= COMMITS_AT_ONCE or delay_ms == 0
        now_ms += delay_ms
        batch = queue.next_batch(image)
        image = after(image, *batch.commits[0])
        queue.settled(image)
        commits += 1
        now_ms += 5
    assert 600 <= commits <= 600 + COMMITS_AT_ONCE + 10


def test_what_has_waited_for_too_long_is_given_up() -> None:
    queue = CommitQueue()
    queue.submit(next_block, "a", 100)
    queue.submit(next_block, "b", 200)
    assert queue.expired(99) == []
    assert queue.expired(100) == ["a"]
    assert len(queue) == 1


def test_the_queue_is_bounded() -> None:
    queue = CommitQueue()
    accepted = [queue.submit(next_block, number, NEVER) for number in range(commit_queue.QUEUE_LIMIT + 1)]
    assert accepted.count(False) == 1


def test_an_answer_that_fails_is_an_exception_and_not_silence() -> None:
    def respond(image: MetadataImage) -> None:
        raise KeyError("a mistake of ours")

    queue, image = CommitQueue(), cluster(1)
    queue.submit(lambda image: Decision((), respond), "a", NEVER)
    queue.next_batch(image)
    assert isinstance(queue.settled(image)[0].result, KeyError)
