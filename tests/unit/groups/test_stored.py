from __future__ import annotations

from appliance.groups.stored import CommittedOffset, GenerationRecord, OffsetRecord, StoredGeneration, StoredGroups

EMPTY = StoredGeneration("consumer", 1, None, None, 5, ())


def test_the_last_record_counts() -> None:
    stored = StoredGroups()
    for offset in (1, 3, 2):
        stored.replay(OffsetRecord("g", "t", 0, CommittedOffset(offset)))
    assert stored.offset("g", "t", 0) == CommittedOffset(2)


def test_nothing_is_left_of_a_group_whose_records_are_deleted() -> None:
    stored = StoredGroups()
    stored.replay(GenerationRecord("g", EMPTY))
    stored.replay(OffsetRecord("g", "t", 0, CommittedOffset(1)))
    assert "g" in stored
    stored.replay(OffsetRecord("g", "t", 0, None))
    stored.replay(GenerationRecord("g", None))
    assert "g" not in stored
    assert stored == StoredGroups()


def test_deleting_what_is_not_there_changes_nothing() -> None:
    stored = StoredGroups()
    stored.replay(OffsetRecord("g", "t", 0, CommittedOffset(1)))
    for record in (OffsetRecord("h", "t", 0, None), OffsetRecord("g", "u", 0, None), OffsetRecord("g", "t", 1, None)):
        stored.replay(record)
    stored.replay(GenerationRecord("g", None))
    assert list(stored.offsets_of("g")) == [("t", 0, CommittedOffset(1))]


def test_every_group_with_a_generation_or_an_offset_is_known() -> None:
    stored = StoredGroups()
    stored.replay(GenerationRecord("a", EMPTY))
    stored.replay(OffsetRecord("b", "t", 0, CommittedOffset(1)))
    stored.replay(OffsetRecord("a", "t", 0, CommittedOffset(1)))
    assert stored.group_ids() == ["a", "b"]
