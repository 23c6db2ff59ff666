"""Records of consumer groups: what is written is read back, also by Kafka's own formats."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.consumer_groups.records import decode_record, encode_record
from appliance.consumer_groups.stored import (
    AnyRecord,
    ClassicMember,
    Current,
    CurrentRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    PartitionMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    StoredAllGroups,
    TargetEpochRecord,
    TargetRecord,
)
from appliance.coordinator.loader import replaying
from appliance.groups.stored import GenerationRecord, OffsetRecord, StoredGeneration
from appliance.wire.schema import WireError

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
CLASSIC = ClassicMember(10_000, (("range", b"\0\1"), ("sticky", b"")))

RECORDS: list[AnyRecord] = [
    GroupEpochRecord("g", 7, -5),
    GroupEpochRecord("g", 7),
    GroupEpochRecord("g", None),
    MemberRecord("g", "m", MemberInfo("client", "/127.0.0.1", ("a", "b"), "r.*", 60_000, "range", "i1", "rack")),
    MemberRecord("g", "m", MemberInfo(classic=CLASSIC)),
    MemberRecord("g", "m", None),
    TargetEpochRecord("g", 7, 1_700_000_000_000),
    TargetEpochRecord("g", None),
    TargetRecord("g", "m", {T: (0, 2), U: (1,)}),
    TargetRecord("g", "m", {}),
    TargetRecord("g", "m", None),
    CurrentRecord("g", "m", Current(7, 6, MemberState.UNREVOKED_PARTITIONS, {T: {0: 3, 2: 7}}, {U: {1: 3}})),
    CurrentRecord("g", "m", Current(-2, 0)),
    CurrentRecord("g", "m", None),
    RegexRecord("g", "r.*", ResolvedRegex(("ra", "rb"), 9, 1_700_000_000_000)),
    RegexRecord("g", "r.*", None),
    PartitionMetadataRecord("g"),
    OffsetRecord("g", "t", 0, None),
    GenerationRecord("g", None),
]


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_what_is_written_is_read_back(record: AnyRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_the_bytes_are_kafkas() -> None:
    key, value = encode_record(GroupEpochRecord("g", 7, 5))
    assert key == bytes.fromhex("0003 0001 67")
    assert value == bytes.fromhex("0000 00000007 01 00 08 0000000000000005")
    key, value = encode_record(CurrentRecord("g", "m", Current(2, 1, MemberState.STABLE, {T: {0: 2}})))
    assert key == bytes.fromhex("0008 0001 67 0001 6d")
    row = "02" + T.hex + "02 00000000" + "01 00 05 02 00000002"
    assert value == bytes.fromhex(f"0000 00000002 00000001 00 {row} 01 00")


def test_a_current_assignment_without_epochs_has_the_members() -> None:
    value = bytes.fromhex("0000 00000002 00000001 00 02" + T.hex + "02 00000000 00 01 00")
    read = decode_record(bytes.fromhex("0008 0001 67 0001 6d"), value)
    assert read == CurrentRecord("g", "m", Current(2, 1, MemberState.STABLE, {T: {0: 2}}))


def test_a_state_that_nobody_knows_is_unknown() -> None:
    read = decode_record(bytes.fromhex("0008 0001 67 0001 6d"), bytes.fromhex("0000 00000002 00000001 09 01 01 00"))
    assert read == CurrentRecord("g", "m", Current(2, 1, MemberState.UNKNOWN))


def test_records_of_later_brokers_are_left_out() -> None:
    assert decode_record(bytes.fromhex("0063 0001 67"), b"\0\0") is None
    with pytest.raises(WireError):
        decode_record(bytes.fromhex("0003 0001 67"), bytes.fromhex("0009 00"))


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=40))
def test_no_bytes_are_too_strange(key: bytes, value: bytes | None) -> None:
    try:
        decode_record(key, value)
    except WireError:
        pass


def test_a_log_that_compaction_has_thinned_out_means_the_same() -> None:
    """The last record of each key, in the order of the log, is all that is left."""
    log = [encode_record(record) for record in RECORDS[:2] + RECORDS[3:4]]
    moved = Current(8, 7, MemberState.STABLE, {T: {0: 8}})
    log += [
        encode_record(CurrentRecord("g", "m", Current(7, 6, MemberState.STABLE, {T: {0: 7}}))),
        encode_record(MemberRecord("g", "n", MemberInfo())),
        encode_record(CurrentRecord("g", "m", Current(8, 7, MemberState.STABLE, {}))),
        encode_record(CurrentRecord("g", "n", moved)),
        encode_record(GenerationRecord("h", StoredGeneration("consumer", 1, None, None, 0, ()))),
    ]
    whole, thin = StoredAllGroups(), StoredAllGroups()
    for key, value in log:
        replaying(decode_record, whole)(key, value)
    last = {key: number for number, (key, _) in enumerate(log)}
    for number, (key, value) in enumerate(log):
        if last[key] == number:
            replaying(decode_record, thin)(key, value)
    assert whole == thin
    assert whole.consumer_groups["g"].owner(T, 0) == "n"


def test_nothing_is_left_of_a_group_that_has_ended() -> None:
    stored = StoredAllGroups()
    for record in RECORDS[:1] + RECORDS[3:4] + RECORDS[6:7] + RECORDS[8:9] + RECORDS[11:12] + RECORDS[14:15]:
        stored.replay(record)
    assert "g" in stored
    for record in stored.consumer_groups["g"].tombstones():
        stored.replay(record)
    assert "g" not in stored
    assert stored == StoredAllGroups()
