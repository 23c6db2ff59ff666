"""Who may commit, see and delete offsets of a consumer group, and how long they are kept."""

from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.groups.config import GroupConfig
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.consumer_group_bench import ConsumerGroupBench

DAY_MS = 24 * 60 * 60 * 1_000


def bench() -> ConsumerGroupBench:
    b = ConsumerGroupBench(t=4)
    b.joined("m1")
    return b


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("m1", 2, 9, ErrorCode.NONE),
        ("m1", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("m2", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit(member_id: str, epoch: int, version: int, error: ErrorCode) -> None:
    b = bench()
    assert b.commit_error(7, member_id=member_id, generation_id=epoch, version=version, topic_id=b.ids["t"]) == error


def test_who_is_behind_may_commit_what_it_had_then_and_still_has() -> None:
    b = bench()
    b.advance(1_000)
    b.joined("m2")
    b.said("m1", 2)
    b.said("m1", 2, {b.ids["t"]: [0, 1]})
    late = {"member_id": "m1", "generation_id": 2, "topic_id": b.ids["t"]}
    assert b.commit_error(7, partition=0, **late) == ErrorCode.NONE
    assert b.commit_error(7, partition=3, **late) == ErrorCode.STALE_MEMBER_EPOCH


def test_anybody_commits_for_a_group_that_nobody_is_in() -> None:
    b = bench()
    b.said("m1", -1)
    assert b.commit_error(7) == ErrorCode.NONE
    assert b.commit_error(7, member_id="m1", generation_id=2) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("m1", 2, ErrorCode.NONE),
        ("m1", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_fetch(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    b = bench()
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
    assert b.machine.fetch_offsets(request).error_code == error


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("m1", 2, ErrorCode.NONE),
        ("", -1, ErrorCode.NONE),
        ("m1", 1, ErrorCode.ILLEGAL_GENERATION),
        ("m2", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit_in_a_transaction(member_id: str, epoch: int, error: ErrorCode) -> None:
    b = bench()
    rows = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    request = TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, member_id=member_id, generation_id=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=rows)],
    )  # fmt: skip
    response = b.answer(b.submit(request, 5))
    assert response.topics[0].partitions[0].error_code == error


def test_offsets_of_what_members_read_cannot_be_deleted() -> None:
    b = bench()
    b.commit(7, member_id="m1", generation_id=2, topic_id=b.ids["t"])
    deleted = b.answer(b.delete_offset()).topics[0].partitions[0]
    assert deleted.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    b.said("m1", -1)
    assert b.answer(b.delete_offset()).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert b.offset() == -1


def test_offsets_of_what_members_read_are_kept_and_the_others_go_with_the_group() -> None:
    patient = ConsumerGroupConfig(session_timeout_ms=9 * DAY_MS)
    b = ConsumerGroupBench(patient, GroupConfig(offsets_retention_ms=DAY_MS), t=1, u=1)
    assert b.commit_error(7, topic="t") == b.commit_error(7, topic="u") == ErrorCode.NONE
    b.joined("m1", "t")
    b.advance(2 * DAY_MS)
    assert (b.offset("t"), b.offset("u")) == (7, -1)
    b.said("m1", -1)
    b.advance(DAY_MS)
    assert "g" not in b.machine.stored
