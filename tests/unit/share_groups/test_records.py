from __future__ import annotations

import uuid

import pytest

from appliance.share_groups.records import decode_record, encode_record
from appliance.share_groups.state_records import decode_record as decode_state
from appliance.share_groups.state_records import encode_record as encode_state
from appliance.share_groups.state_stored import (
    Batch,
    PartitionState,
    SnapshotRecord,
    StateKey,
    StateRecord,
    StoredStates,
    UpdateRecord,
    combined,
)
from appliance.share_groups.stored import (
    KnownState,
    KnownStateRecord,
    ShareCurrent,
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMember,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StoredShareGroups,
)
from appliance.wire.schema import WireError

T = uuid.UUID(int=1)
KEY = StateKey("g", T, 3)
RECORDS: list[ShareGroupRecord] = [
    ShareGroupEpochRecord("g", 3, -5),
    ShareMemberRecord("g", "m", ShareMember("client", "/127.0.0.1", ("a", "b"), "rack")),
    ShareTargetEpochRecord("g", 2, 1_700_000_000_000),
    ShareTargetRecord("g", "m", {T: (0, 2)}),
    ShareCurrentRecord("g", "m", ShareCurrent(3, 2, {T: (0,)})),
    KnownStateRecord("g", KnownState({T: ("a", (0, 1))}, {T: ("a", (2,))}, {uuid.UUID(int=2): "b"})),
]
ENDS: list[ShareGroupRecord] = [
    ShareCurrentRecord("g", "m", None),
    ShareTargetRecord("g", "m", None),
    ShareTargetEpochRecord("g", None),
    ShareMemberRecord("g", "m", None),
    KnownStateRecord("g", None),
    ShareGroupEpochRecord("g", None),
]
STATES: list[StateRecord] = [
    SnapshotRecord(KEY, PartitionState(2, 5, 1, 4, 3, (Batch(5, 7, 2, 1), Batch(9, 9, 0, 2)), 1, 2)),
    UpdateRecord(KEY, 4, 2, -1, 3, (Batch(8, 8, 4, 5),)),
    SnapshotRecord(KEY, None),
]


@pytest.mark.parametrize("record", [*RECORDS, *ENDS], ids=lambda each: type(each).__name__)
def test_records_of_groups_come_back_as_they_were(record: ShareGroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@pytest.mark.parametrize("record", STATES, ids=lambda each: type(each).__name__)
def test_records_of_states_come_back_as_they_were(record: StateRecord) -> None:
    assert decode_state(*encode_state(record)) == record


def test_a_group_begins_and_ends_with_its_records() -> None:
    stored = StoredShareGroups()
    for record in RECORDS:
        stored.replay(record)
    group = stored.groups["g"]
    assert (group.epoch, group.assignment_epoch, group.state_name) == (3, 2, "Stable")
    assert {type(record) for record in group.tombstones()} == {type(record) for record in ENDS}
    for record in group.tombstones():
        stored.replay(record)
    assert stored.groups == {}


def test_other_kinds_of_records_are_left_to_others() -> None:
    assert decode_record(b"\x00\x02\x00\x01g", None) is None
    assert decode_record(b"", None) is None
    assert decode_state(b"\x00\x09", b"\x00\x00") is None


@pytest.mark.parametrize("value", [b"\x00\x01rest", b"\x00\x00", b""])
def test_values_that_cannot_be_read_are_named(value: bytes) -> None:
    key, _ = encode_record(RECORDS[0])
    with pytest.raises(WireError):
        decode_record(key, value)
    key, _ = encode_state(STATES[0])
    with pytest.raises(WireError):
        decode_state(key, value)


def test_later_batches_lie_over_earlier_ones() -> None:
    before = [Batch(0, 9, 0, 1), Batch(12, 15, 2, 1)]
    after = [Batch(3, 4, 2, 2), Batch(14, 20, 4, 5)]
    assert combined(before, after, 1) == (
        Batch(1, 2, 0, 1), Batch(3, 4, 2, 2), Batch(5, 9, 0, 1), Batch(12, 13, 2, 1), Batch(14, 20, 4, 5),
    )  # fmt: skip
    assert combined([Batch(0, 4, 2, 1)], [Batch(5, 9, 2, 1)], 0) == (Batch(0, 9, 2, 1),)
    assert combined(before, after, 30) == ()


def test_an_update_counts_on_top_of_its_own_snapshot_only_and_the_log_is_needed_from_the_oldest() -> None:
    stored = StoredStates()
    other = StateKey("g", T, 4)
    stored.position = 10
    stored.replay(SnapshotRecord(KEY, PartitionState(1, 0)))
    stored.replay(SnapshotRecord(other, PartitionState(1, 0)))
    stored.replay(UpdateRecord(KEY, 0, 7, 3, 2, (Batch(1, 5, 2, 1),)))
    stored.replay(UpdateRecord(KEY, 9, 8, 5, 2, ()))
    state = stored.states[KEY]
    assert (state.leader_epoch, state.start_offset, state.batches) == (7, 3, (Batch(3, 5, 2, 1),))
    assert stored.needed_from == 10
    stored.replay(SnapshotRecord(KEY, state))
    assert stored.needed_from == 11
    stored.replay(SnapshotRecord(other, None))
    assert stored.needed_from == 14
