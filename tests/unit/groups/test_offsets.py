from __future__ import annotations

import struct
import uuid

import pytest

from appliance.base.errors import ErrorCode
from appliance.groups.config import GroupConfig
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup
from tests.support.group_bench import GroupBench

READS_T = struct.pack(">hih1si", 1, 1, 1, b"t", -1)
"""A consumer's subscription to the topic `t`."""


def test_a_committed_offset_comes_back_with_its_text_and_epoch() -> None:
    bench = GroupBench()
    assert bench.commit_error(42, metadata="a note") == ErrorCode.NONE
    fetched = bench.fetch()
    assert (fetched.committed_offset, fetched.metadata, fetched.committed_leader_epoch) == (42, "a note", -1)


def test_a_null_text_is_an_empty_one() -> None:
    bench = GroupBench()
    bench.commit(42, metadata=None)
    assert bench.fetch().metadata == ""


def test_where_nothing_was_committed_there_is_no_offset() -> None:
    bench = GroupBench()
    fetched = bench.fetch(group_id="nobody")
    assert (fetched.committed_offset, fetched.error_code, fetched.metadata) == (-1, ErrorCode.NONE, "")


def test_an_offset_is_shown_when_it_is_in_the_log() -> None:
    bench = GroupBench()
    bench.hold = True
    committing = bench.commit(42)
    assert bench.is_waiting(committing)
    assert bench.offset() == -1
    bench.release()
    assert bench.offset() == 42


def test_all_offsets_come_when_no_topic_is_named() -> None:
    bench = GroupBench()
    bench.commit(1)
    bench.commit(2, partition=3)
    bench.commit(3, topic="u")
    response = bench.machine.fetch_offsets(OffsetFetchRequestGroup(group_id="g", topics=None))
    assert [
        (topic.name, partition.partition_index, partition.committed_offset)
        for topic in response.topics
        for partition in topic.partitions
    ] == [("t", 0, 1), ("t", 3, 2), ("u", 0, 3)]


def test_a_long_text_is_refused_for_its_partition_alone() -> None:
    bench = GroupBench(GroupConfig(offset_metadata_max_bytes=4))
    assert bench.commit_error(1, metadata="12345") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert bench.commit_error(2, metadata="1234") == ErrorCode.NONE
    assert bench.offset() == 2


def test_a_member_commits_under_its_generation() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1)
    assert bench.commit_error(5, member_id=member.member_id, generation_id=1) == ErrorCode.NONE
    assert bench.commit_error(6, member_id=member.member_id, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit_error(7, member_id=member.member_id, generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit_error(8, member_id=member.member_id, generation_id=-1) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit_error(9, member_id="nobody", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.offset() == 5


def test_nobody_else_commits_while_members_are_there() -> None:
    bench = GroupBench()
    bench.stable_group(1)
    assert bench.commit_error(5) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_commits_for_a_group_that_was_left() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1)
    bench.leave((member.member_id, None))
    assert bench.commit_error(5) == ErrorCode.NONE
    assert bench.commit_error(6, member_id="old", generation_id=-1) == ErrorCode.NONE
    assert bench.commit_error(7, member_id=member.member_id, generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.offset() == 6


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_an_unknown_group_is_told_so(version: int, error: ErrorCode) -> None:
    bench = GroupBench()
    assert bench.commit_error(5, member_id="m", generation_id=3, version=version) == error


def test_members_may_commit_while_a_rebalance_is_prepared_but_not_before_they_know_their_assignments() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    bench.join(leader.member_id)
    assert bench.commit_error(5, member_id=follower.member_id, generation_id=1) == ErrorCode.NONE
    bench.join(follower.member_id)
    assert bench.state() == "CompletingRebalance"
    assert bench.commit_error(6, member_id=follower.member_id, generation_id=2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1, session_timeout_ms=6_000)
    for offset in range(4):
        bench.advance(5_000)
        assert bench.commit_error(offset, member_id=member.member_id, generation_id=1) == ErrorCode.NONE


def test_a_commit_that_cannot_be_written_fails_for_each_partition() -> None:
    bench = GroupBench()
    bench.hold = True
    committing = bench.commit(5)
    bench.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert bench.answer(committing).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert bench.offset() == -1


def test_an_offset_of_an_older_topic_of_that_name_is_not_shown() -> None:
    old, new = uuid.UUID(int=77), uuid.UUID(int=78)
    bench = GroupBench()
    bench.commit(5, topic_id=old)
    assert bench.fetch(topic_id=new).committed_offset == -1
    assert bench.fetch(topic_id=old).committed_offset == bench.fetch().committed_offset == 5


def test_offsets_of_a_topic_that_nobody_reads_may_be_deleted() -> None:
    bench = GroupBench()
    bench.stable_group(1, protocols=(("range", READS_T),))
    member_id = next(iter(bench.machine.groups["g"].members))
    for topic in ("t", "u"):
        bench.commit(5, topic=topic, member_id=member_id, generation_id=1)
    in_use, unused = bench.answer(bench.delete_offset("t")), bench.answer(bench.delete_offset("u"))
    assert in_use.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert unused.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (bench.offset("t"), bench.offset("u")) == (5, -1)


def test_where_subscriptions_cannot_be_read_every_topic_counts_as_read() -> None:
    bench = GroupBench()
    bench.stable_group(1, protocols=(("range", b"?"),))
    answer = bench.answer(bench.delete_offset("t"))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_other_groups_are_deleted_only_when_nobody_is_in_them() -> None:
    bench = GroupBench()
    bench.stable_group(1, protocol_type="connect")
    assert bench.answer(bench.delete_offset()).error_code == ErrorCode.NON_EMPTY_GROUP
    assert bench.answer(bench.delete_offset(group_id="nobody")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_deleting_what_is_not_there_succeeds() -> None:
    bench = GroupBench()
    bench.commit(5)
    before = len(bench.log)
    answer = bench.answer(bench.delete_offset("u"))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert len(bench.log) == before


def test_a_deletion_sees_the_commits_before_it() -> None:
    bench = GroupBench()
    bench.commit(4, partition=1)
    bench.hold = True
    bench.commit(5)
    deleting = bench.delete_offset()
    assert bench.is_waiting(deleting)
    bench.release()
    assert bench.answer(deleting).error_code == ErrorCode.NONE
    assert bench.offset() == -1


def test_offsets_go_with_their_topic_but_not_those_of_a_new_one_of_its_name() -> None:
    old, new = uuid.UUID(int=77), uuid.UUID(int=78)
    bench = GroupBench()
    bench.commit(1, group_id="old", topic_id=old)
    bench.commit(2, group_id="new", topic_id=new)
    bench.commit(3, group_id="unknown")
    bench.shard.decide(lambda: bench.machine.topics_deleted([("t", old), ("u", new)]), bench.now)
    bench.pump()
    assert [bench.offset(group_id=group_id) for group_id in ("old", "new", "unknown")] == [-1, 2, -1]
