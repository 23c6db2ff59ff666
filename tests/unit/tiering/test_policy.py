from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from appliance.base.errors import InvariantBroken
from appliance.base.randomness import SeededRandomness
from appliance.tiering.events import (
    DeleteObjects,
    Halted,
    LogRecovered,
    ManifestRead,
    ObjectsDeleted,
    PageRead,
    PageUploaded,
    ReadFailed,
    ReadManifest,
    ReadPage,
    Recovered,
    RecoverLog,
    RollSegment,
    SegmentUploaded,
    StartAt,
    SweepObjects,
    Swept,
    TieredTo,
    UploadConflict,
    UploadFailed,
    UploadPage,
    UploadSegment,
    UploadUndecided,
    WriteConfirmed,
    WriteManifest,
    WriteRefused,
    WriteUndecided,
)
from appliance.tiering.limits import TieringLimits
from appliance.tiering.manifest import Garbage, Manifest, PageItem, SegmentItem, encode_page, page_item
from appliance.tiering.names import ObjectName
from appliance.tiering.policy import State, TieringLeader
from tests.support.tier_objects import TOPIC, TOPIC_ID
from tests.support.tiering_facts import closed, log_facts

LIMITS = TieringLimits(
    upload_timeout_ms=1_000, backoff_ms=100, backoff_max_ms=800, delete_delay_ms=5_000, sweep_interval_ms=100_000
)


def leader_of(epoch: int = 5, *, recovering: bool = False) -> TieringLeader:
    return TieringLeader(TOPIC, TOPIC_ID, 0, "delete", epoch, LIMITS, SeededRandomness(1), recovering=recovering)


def segment_item(start: int, end: int, epoch: int = 1, *, base: int | None = None, size: int = 120) -> SegmentItem:
    name = str(ObjectName("seg", start if base is None else base, end, epoch, 0))
    return SegmentItem(start, end, name, size, 20, 1, end * 10, end - start)


def manifest_of(*bounds: int, epoch: int = 3, version: int = 7, **changes: Any) -> Manifest:
    items = tuple(segment_item(a, b) for a, b in pairwise(bounds))
    values: dict[str, Any] = {"items": items}
    return Manifest(TOPIC, TOPIC_ID, 0, "delete", version, epoch, bounds[0], bounds[-1], **{**values, **changes})


def seeded(leader: TieringLeader, facts: object, manifest: Manifest | None) -> TieringLeader:
    assert leader.tick(facts, 0) == [ReadManifest()]  # type: ignore[arg-type]
    leader.handle(ManifestRead(manifest, '"e"' if manifest else None), 0)
    return leader


def uploaded(request: object) -> SegmentUploaded:
    assert isinstance(request, UploadSegment)
    name = request.name
    return SegmentUploaded(
        SegmentItem(request.listed_from, name.end, str(name), 120, 20, 1, 0, name.end - request.listed_from)
    )


def the_write(effects: list[Any]) -> WriteManifest:
    (write,) = (effect for effect in effects if isinstance(effect, WriteManifest))
    return write


def claimed(leader: TieringLeader, facts: Any, manifest: Manifest | None) -> TieringLeader:
    """A leader that has uploaded and listed the first candidate."""
    seeded(leader, facts, manifest)
    (request,) = leader.tick(facts, 0)
    the_write(leader.handle(uploaded(request), 0))
    leader.handle(WriteConfirmed('"c"'), 0)
    assert leader.state is State.CLAIMED
    return leader


def test_an_idle_partition_costs_no_request() -> None:
    leader = leader_of()
    assert leader.tick(log_facts(active_records=10), 0) == []
    facts = log_facts(closed(0, 10))
    seeded(leader, facts, manifest_of(0, 10))
    for now_ms in range(0, 10_000_000, 1_000_000):
        assert leader.tick(facts, now_ms) == []
    assert leader.reason == ""


def test_a_closed_segment_is_uploaded_listed_and_only_then_told() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10), active_records=3)
    seeded(leader, facts, None)
    (request,) = leader.tick(facts, 50)
    assert request == UploadSegment(ObjectName("seg", 0, 10, 5, 0), 0, 1_000)
    assert leader.tick(facts, 60) == []
    write = the_write(leader.handle(uploaded(request), 70))
    assert (write.etag, write.manifest.version, write.manifest.leader_epoch) == (None, 1, 5)
    assert [(i.start, i.end) for i in write.manifest.items] == [(0, 10)]
    assert leader.tiered_end == 0
    assert leader.handle(WriteConfirmed('"1"'), 80) == [TieredTo(10)]
    assert leader.state is State.CLAIMED


def test_a_new_leader_takes_the_list_and_cuts_its_own_segment_at_the_tiered_end() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 8, 16), active_records=1)
    effects = leader.tick(facts, 0) + leader.handle(ManifestRead(manifest_of(0, 10), '"old"'), 0)
    assert effects == [ReadManifest(), StartAt(0), TieredTo(10)]
    (request,) = leader.tick(facts, 0)
    assert isinstance(request, UploadSegment)
    assert (request.name.start, request.name.end, request.listed_from) == (8, 16, 10)
    write = the_write(leader.handle(uploaded(request), 0))
    assert write.etag == '"old"'
    assert [(item.start, item.end) for item in write.manifest.items] == [(0, 10), (10, 16)]


def test_nothing_above_the_last_stable_offset_goes_up_and_the_reason_is_visible() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10), active_records=5, last_stable_offset=9)
    seeded(leader, facts, None)
    assert leader.tick(facts, 0) == []
    assert "[0, 10) ends above the last stable offset 9" in leader.reason


def test_a_higher_epoch_in_the_manifest_deposes() -> None:
    leader, facts = leader_of(epoch=5), log_facts(closed(0, 10))
    leader.tick(facts, 0)
    (halted,) = leader.handle(ManifestRead(manifest_of(0, 5, epoch=6), '"x"'), 0)
    assert isinstance(halted, Halted) and not halted.is_fault
    assert leader.state is State.DEPOSED
    assert leader.tick(facts, 99_999) == []


def test_an_undecided_write_is_sent_again_unchanged_until_it_is_decided() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, manifest_of(0, 4))
    (request,) = leader.tick(facts, 0)
    write = the_write(leader.handle(uploaded(request), 0))
    for now_ms in range(0, 10_000, 1_000):
        assert leader.handle(WriteUndecided("time-out"), now_ms) == []
        assert leader.state is State.UNDECIDED and "time-out" in leader.reason
        assert leader.tick(facts, now_ms) == []
        assert leader.tick(facts, now_ms + 900) == [write]
    assert leader.tiered_end == 4
    assert leader.handle(WriteConfirmed('"n"'), 10_000) == [TieredTo(10)]
    assert leader.reason == ""


def test_a_refused_write_that_is_there_was_ours() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, None)
    (request,) = leader.tick(facts, 0)
    write = the_write(leader.handle(uploaded(request), 0))
    assert leader.handle(WriteRefused(), 0) == [ReadManifest()]
    assert leader.handle(ManifestRead(write.manifest, '"mine"'), 0) == [TieredTo(10)]
    assert (leader.state, leader.etag) == (State.CLAIMED, '"mine"')


def test_a_write_lost_to_an_older_leader_takes_its_list_and_tries_with_a_new_name() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10), active_records=1)
    seeded(leader, facts, manifest_of(0, 4))
    (first,) = leader.tick(facts, 0)
    leader.handle(uploaded(first), 0)
    leader.handle(WriteRefused(), 0)
    effects = leader.handle(ManifestRead(manifest_of(0, 4, 7, epoch=4, version=8), '"n"'), 0)
    assert TieredTo(7) in effects and leader.state is State.SEEDED
    (second,) = leader.tick(facts, 0)
    assert isinstance(second, UploadSegment) and isinstance(first, UploadSegment)
    assert (second.listed_from, second.name.seq) == (7, first.name.seq + 1)


def test_a_write_lost_to_a_newer_leader_deposes() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, manifest_of(0, 4))
    (request,) = leader.tick(facts, 0)
    leader.handle(uploaded(request), 0)
    leader.handle(WriteRefused(), 0)
    leader.handle(ManifestRead(manifest_of(0, 10, epoch=6, version=8), '"n"'), 0)
    assert leader.state is State.DEPOSED


def test_a_read_that_fails_while_a_write_is_in_doubt_decides_nothing() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, manifest_of(0, 4))
    (request,) = leader.tick(facts, 0)
    leader.handle(uploaded(request), 0)
    leader.handle(WriteRefused(), 0)
    leader.handle(ReadFailed("503"), 0)
    assert leader.state is State.UNDECIDED
    assert leader.tick(facts, 1_000) == [ReadManifest()]


def test_a_manifest_of_my_own_epoch_that_i_did_not_write_stops() -> None:
    leader, facts = leader_of(epoch=5), log_facts(closed(0, 10))
    leader.tick(facts, 0)
    leader.handle(ManifestRead(manifest_of(0, 4, epoch=5), '"x"'), 0)
    assert leader.state is State.STOPPED and "written by another" in leader.reason


def test_a_hole_between_tier_and_log_stops() -> None:
    leader, facts = leader_of(), log_facts(closed(20, 30), log_start_offset=0)
    seeded(leader, facts, manifest_of(0, 10))
    (halted,) = leader.tick(facts, 0)
    assert isinstance(halted, Halted) and halted.is_fault
    assert leader.state is State.STOPPED and "hole" in leader.reason


def test_a_lost_manifest_is_not_taken_for_a_new_partition() -> None:
    leader, facts = leader_of(), log_facts(closed(20, 30), log_start_offset=0)
    seeded(leader, facts, None)
    assert leader.state is State.STOPPED and "no manifest" in leader.reason


def test_a_log_below_the_tiered_end_stops() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, manifest_of(0, 50))
    leader.tick(facts, 0)
    assert leader.state is State.STOPPED and "below the tiered end" in leader.reason


def test_an_upload_without_answer_keeps_its_name_for_some_attempts_and_then_gives_it_up() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, None)
    (first,) = leader.tick(facts, 0)
    for now_ms in range(1_000, 5_000, 1_000):
        assert leader.handle(UploadUndecided("reset"), now_ms) == []
        assert leader.tick(facts, now_ms + 900) == [first]
    leader.handle(UploadUndecided("reset"), 6_000)
    assert "given up" in leader.reason
    (second,) = leader.tick(facts, 7_000)
    assert isinstance(first, UploadSegment) and isinstance(second, UploadSegment)
    assert second.name == first.name._replace(seq=first.name.seq + 1)


def test_a_name_is_never_used_twice() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, None)
    names = set()
    for now_ms in range(0, 100_000, 1_000):
        (request,) = leader.tick(facts, now_ms)
        assert isinstance(request, UploadSegment)
        names.add(request.name)
        leader.handle(UploadFailed("disk"), now_ms)
    assert len(names) == 100


def test_waits_grow_up_to_their_limit_with_jitter() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    leader.tick(facts, 0)
    waits, now_ms = [], 0
    for _ in range(8):
        leader.handle(ReadFailed("503"), now_ms)
        start = now_ms
        while not leader.tick(facts, now_ms):
            now_ms += 1
        waits.append(now_ms - start)
    assert all(
        low / 2 <= wait <= low for wait, low in zip(waits, [100, 200, 400, 800, 800, 800, 800, 800], strict=True)
    )
    assert len(set(waits[3:])) > 1


def test_another_body_under_our_name_stops() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10))
    seeded(leader, facts, None)
    leader.tick(facts, 0)
    leader.handle(UploadConflict("seg/x has another body"), 0)
    assert leader.state is State.STOPPED


def test_the_oldest_record_rolls_the_segment_when_it_has_waited_long_enough() -> None:
    leader = leader_of()
    assert leader.tick(log_facts(active_records=1, active_first_append_ms=900_000, max_lag_ms=100_001), 0) == []
    due = log_facts(active_records=1, active_first_append_ms=900_000, max_lag_ms=100_000)
    assert leader.tick(due, 0) == [RollSegment()]
    off = log_facts(active_records=1, active_first_append_ms=900_000, max_lag_ms=100_000, copy_enabled=False)
    assert leader_of().tick(off, 0) == []


def test_a_store_outage_does_not_mince_the_log() -> None:
    leader = leader_of()
    old = {"active_first_append_ms": 0, "max_lag_ms": 10}
    two = log_facts(closed(0, 10, 20), active_records=1, **old)
    assert leader.tick(two, 0) == [ReadManifest()]
    leader.handle(ReadFailed("503"), 0)
    assert leader.tick(two, 1) == []
    one = log_facts(closed(0, 10), active_records=1, **old)
    assert leader.tick(one, 2) == [RollSegment()]


def test_expired_items_leave_the_list_for_the_garbage_and_the_log_start_rises_when_that_is_confirmed() -> None:
    leader = leader_of()
    facts = log_facts(closed(20, 30), log_start_offset=0, retention_ms=1_000_000 - 150)
    seeded(leader, facts, manifest_of(0, 10, 20, 30))
    assert leader.tick(facts, LIMITS.retention_interval_ms - 1) == []
    write = the_write(leader.tick(facts, LIMITS.retention_interval_ms))
    assert (write.manifest.start_offset, write.manifest.end_offset) == (10, 30)
    assert write.manifest.garbage == (Garbage(segment_item(0, 10).name, 1_000_000),)
    assert leader.handle(WriteConfirmed('"n"'), 0) == [StartAt(10)]


def test_records_that_come_with_old_times_expire_with_the_next_look_at_retention() -> None:
    leader = leader_of()
    nothing = log_facts((), active_records=0, retention_ms=1_000)
    assert leader.tick(nothing, 0) == []
    old = log_facts((), active_records=5, retention_ms=1_000, local_expired_end=5)
    interval_ms = LIMITS.retention_interval_ms
    assert leader.tick(old, interval_ms - 1) == []
    assert leader.rests_until_ms(interval_ms - 1) == interval_ms
    assert leader.tick(nothing, interval_ms) == []
    assert leader.tick(old, interval_ms + 1) == [], "between two looks"
    assert leader.tick(old, 2 * interval_ms) == [ReadManifest()]


def test_nothing_is_expired_before_the_leader_has_read_the_manifest() -> None:
    leader = leader_of()
    facts = log_facts(closed(20, 30), log_start_offset=0, retention_ms=0, retention_bytes=0)
    assert leader.tick(facts, 0) == [ReadManifest()]
    leader.handle(ReadFailed("503"), 0)
    assert leader.tick(facts, 50) == []


def test_deleted_records_beyond_the_tiered_end_leave_an_empty_list() -> None:
    leader = leader_of()
    facts = log_facts(closed(40, 50), log_start_offset=45, local_log_start_offset=40)
    seeded(leader, facts, manifest_of(0, 10, 20))
    write = the_write(leader.tick(facts, 0))
    assert (write.manifest.start_offset, write.manifest.end_offset, write.manifest.items) == (45, 45, ())
    leader.handle(WriteConfirmed('"n"'), 0)
    (request,) = leader.tick(facts, 0)
    assert isinstance(request, UploadSegment)
    assert (request.name.start, request.listed_from) == (40, 45)


def test_garbage_is_deleted_after_its_delay_and_forgotten_with_the_next_write() -> None:
    leader = leader_of()
    garbage = (Garbage("seg/old", 994_000), Garbage("seg/young", 999_000))
    segments = closed(0, 10, 20)
    seeded(leader, log_facts(segments), manifest_of(0, 10, garbage=garbage))
    facts = log_facts(segments)
    assert leader.tick(facts, 0) == [DeleteObjects(("seg/old",))]
    leader.handle(ObjectsDeleted(("seg/old",)), 0)
    (request,) = leader.tick(facts, 0)
    write = the_write(leader.handle(uploaded(request), 0))
    assert [entry.name for entry in write.manifest.garbage] == ["seg/young"]


def test_a_sweep_needs_a_claim_and_comes_once_after_it() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10), active_records=1)
    seeded(leader, facts, manifest_of(0, 10))
    assert leader.tick(facts, 10_000_000) == []
    leader, facts = leader_of(), log_facts(closed(0, 10), active_records=1)
    claimed(leader, facts, None)
    assert leader.tick(facts, 500) == []
    assert leader.tick(facts, 1_000) == [SweepObjects(leader.manifest, 5)]
    leader.handle(Swept(0), 1_000)
    assert leader.tick(facts, 10_000_000) == []


def test_a_given_up_name_is_swept_and_otherwise_only_after_days_with_writes() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10, 20), active_records=1)
    claimed(leader, facts, None)
    (request,) = leader.tick(facts, 1_000)
    leader.handle(uploaded(request), 1_000)
    leader.handle(WriteConfirmed('"2"'), 1_000)
    assert isinstance(leader.tick(facts, 1_000)[0], SweepObjects)
    leader.handle(Swept(1), 1_000)
    longer = log_facts(closed(0, 10, 20, 30), active_records=1)
    (request,) = leader.tick(longer, 2_000)
    leader.handle(UploadFailed("disk"), 2_000)
    (request,) = leader.tick(longer, 2_900)
    leader.handle(uploaded(request), 2_900)
    leader.handle(WriteConfirmed('"3"'), 2_900)
    assert leader.tick(longer, 2_999) == []
    assert isinstance(leader.tick(longer, 3_000)[0], SweepObjects)
    leader.handle(Swept(0), 3_000)
    longest = log_facts(closed(0, 10, 20, 30, 40), active_records=1)
    (request,) = leader.tick(longest, 4_000)
    leader.handle(uploaded(request), 4_000)
    leader.handle(WriteConfirmed('"4"'), 4_000)
    assert leader.tick(longest, 103_999) == []
    assert isinstance(leader.tick(longest, 104_000)[0], SweepObjects)


def test_a_long_list_gets_a_page_before_the_next_segment() -> None:
    leader = leader_of()
    bounds = list(range(0, 5_140, 10))
    facts = log_facts(closed(5_120, 5_130), log_start_offset=0)
    seeded(leader, facts, manifest_of(*bounds[:-1]))
    assert len(leader.manifest.items) == 512
    (request,) = leader.tick(facts, 0)
    assert isinstance(request, UploadSegment), "512 items are not too many"
    leader.handle(uploaded(request), 0)
    leader.handle(WriteConfirmed('"n"'), 0)
    longer = log_facts(closed(5_120, 5_130, 5_140), log_start_offset=0)
    (page,) = leader.tick(longer, 0)
    assert isinstance(page, UploadPage) and len(page.items) == 256
    data = encode_page(TOPIC_ID, 0, page.items)
    assert leader.handle(PageUploaded(page_item(str(page.name), data, page.items)), 0) == []
    (request,) = leader.tick(longer, 0)
    write = the_write(leader.handle(uploaded(request), 0))
    assert isinstance(write.manifest.items[0], PageItem)
    assert len(write.manifest.items) == 259


def test_retention_reads_a_page_before_it_enters_it() -> None:
    leader = leader_of()
    items = tuple(segment_item(n, n + 10) for n in range(0, 30, 10))
    data = encode_page(TOPIC_ID, 0, items)
    page = page_item(str(ObjectName("page", 0, 30, 2, 9)), data, items)
    manifest = manifest_of(0, 40, items=(page, segment_item(30, 40)))
    facts = log_facts(closed(30, 40), log_start_offset=0, retention_ms=1_000_000 - 150)
    seeded(leader, facts, manifest)
    assert leader.tick(facts, LIMITS.retention_interval_ms) == [ReadPage(page)]
    leader.handle(PageRead(page, items), LIMITS.retention_interval_ms)
    write = the_write(leader.tick(facts, LIMITS.retention_interval_ms))
    assert [(i.start, i.end) for i in write.manifest.items] == [(10, 20), (20, 30), (30, 40)]
    assert [entry.name for entry in write.manifest.garbage] == [page.name, items[0].name]


def test_turned_off_copying_is_written_into_the_manifest_once() -> None:
    leader, facts = leader_of(), log_facts(closed(0, 10, 20), copy_enabled=False)
    seeded(leader, facts, manifest_of(0, 10))
    write = the_write(leader.tick(facts, 0))
    assert write.manifest.copy == "paused"
    leader.handle(WriteConfirmed('"n"'), 0)
    assert leader.tick(facts, 10) == []
    assert leader.reason == "copying is turned off"


def test_a_recovering_leader_claims_before_it_touches_its_log() -> None:
    leader, facts = leader_of(recovering=True), log_facts()
    assert leader.tick(facts, 0) == [ReadManifest()]
    leader.handle(ManifestRead(manifest_of(0, 10), '"x"'), 0)
    write = the_write(leader.tick(facts, 0))
    assert (write.manifest.leader_epoch, write.manifest.end_offset) == (5, 10)
    leader.handle(WriteUndecided("time-out"), 0)
    assert leader.tick(facts, 1_000) == [write]
    leader.handle(WriteConfirmed('"y"'), 1_000)
    assert leader.tick(facts, 1_000) == [RecoverLog(leader.manifest)]
    assert leader.handle(LogRecovered(), 1_000) == [Recovered()]
    assert not leader.recovering


def test_a_recovering_leader_without_a_manifest_creates_an_empty_one() -> None:
    leader, facts = leader_of(recovering=True), log_facts()
    seeded(leader, facts, None)
    write = the_write(leader.tick(facts, 0))
    assert (write.etag, write.manifest.version, write.manifest.items) == (None, 1, ())


def test_an_answer_to_nothing_is_our_fault() -> None:
    with pytest.raises(InvariantBroken):
        leader_of().handle(WriteConfirmed('"x"'), 0)
