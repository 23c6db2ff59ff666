"""Records of groups of Kafka Streams: what is written is read back, and old ones without epochs are, too."""

from __future__ import annotations

import pytest

from appliance.streams_groups.records import decode_record, encode_record
from appliance.streams_groups.stored import (
    Assignment,
    Current,
    CurrentRecord,
    EveryRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    StoredEveryGroup,
    TargetEpochRecord,
    TargetRecord,
    TopologyRecord,
)
from appliance.wire.codec import encode
from appliance.wire.messages.streams_group_records import StreamsGroupCurrentMemberAssignmentValue, TaskIds
from tests.support.streams_group_bench import subtopology, topology

TASKS = Assignment(frozenset({("0", 1), ("1", 0)}), frozenset({("0", 2)}), frozenset({("1", 5)}))
MEMBER = MemberInfo("client", "/127.0.0.1", "rack", 60_000, 3, "process", ("h", 9), (("zone", "a"),))

RECORDS: list[EveryRecord] = [
    GroupEpochRecord("g", 7, -5, 2, 1),
    GroupEpochRecord("g", None),
    TopologyRecord("g", topology(subtopology("0", ["t"], changelogs=["c"], sinks=["r"]), epoch=4)),
    TopologyRecord("g", topology(subtopology("0", ["t"], repartitions={"r": 3}, together=[([0], [0])]))),
    TopologyRecord("g", None),
    MemberRecord("g", "m", MEMBER),
    MemberRecord("g", "m", None),
    TargetEpochRecord("g", 7, 1_700_000_000_000),
    TargetEpochRecord("g", None),
    TargetRecord("g", "m", TASKS),
    TargetRecord("g", "m", Assignment()),
    TargetRecord("g", "m", None),
    CurrentRecord(
        "g",
        "m",
        Current(
            7, 6, MemberState.UNREVOKED_TASKS, TASKS, Assignment(frozenset({("0", 7)})),
            {("0", 1): 3, ("1", 0): 7, ("0", 7): 2},
        ),
    ),
    CurrentRecord("g", "m", None),
]  # fmt: skip


@pytest.mark.parametrize(
    "record", RECORDS, ids=[f"{type(record).__name__}-{number}" for number, record in enumerate(RECORDS)]
)
def test_what_is_written_is_read_back(record: EveryRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_an_active_task_without_an_epoch_was_given_in_the_members() -> None:
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=5, previous_member_epoch=4, state=1, active_tasks=[TaskIds(subtopology_id="0", partitions=[0, 2])]
    )
    key, _ = encode_record(CurrentRecord("g", "m", None))
    read = decode_record(key, b"\0\0" + encode(value, 0))
    assert isinstance(read, CurrentRecord) and read.current is not None
    assert read.current.epochs == {("0", 0): 5, ("0", 2): 5}


def test_tombstones_leave_nothing() -> None:
    stored = StoredEveryGroup()
    for record in RECORDS:
        if not isinstance(record, GroupEpochRecord) or record.epoch is not None:
            stored.replay(record)
    for record in stored.streams_groups["g"].tombstones():
        stored.replay(record)
    assert stored.streams_groups == {} and stored.group_ids() == []
