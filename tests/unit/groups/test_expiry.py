from __future__ import annotations

import struct

from appliance.groups import expiry
from appliance.groups.config import GroupConfig
from appliance.groups.stored import GenerationRecord
from tests.support.group_bench import GroupBench

HOUR_MS = 3_600_000
READS_T = struct.pack(">hih1si", 1, 1, 1, b"t", -1)


def bench_of(retention_hours: int = 24) -> GroupBench:
    return GroupBench(
        GroupConfig(offsets_retention_ms=retention_hours * HOUR_MS, offsets_retention_check_interval_ms=HOUR_MS)
    )


def test_offsets_without_a_group_expire_after_their_commit() -> None:
    bench = bench_of()
    bench.commit(1)
    bench.advance(12 * HOUR_MS)
    bench.commit(2, partition=1)
    bench.advance(13 * HOUR_MS)
    assert (bench.offset(), bench.offset("t", 1)) == (-1, 2)
    bench.advance(12 * HOUR_MS)
    assert bench.offset("t", 1) == -1
    assert bench.state() == "Dead"


def test_offsets_of_a_group_expire_after_it_became_empty_and_the_group_with_them() -> None:
    bench = bench_of()
    (member,) = bench.stable_group(1)
    bench.commit(1, member_id=member.member_id, generation_id=1)
    for _ in range(30 * 360):
        bench.advance(10_000 - 1)
        bench.heartbeat(member.member_id, 1)
    bench.leave((member.member_id, None))
    bench.advance(23 * HOUR_MS)
    assert bench.offset() == 1
    bench.advance(3 * HOUR_MS)
    assert bench.offset() == -1
    assert bench.state() == "Dead"
    assert bench.machine.stored.group_ids() == []


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    bench = bench_of()
    (member,) = bench.stable_group(1)
    bench.leave((member.member_id, None))
    assert bench.state() == "Empty"
    bench.advance(HOUR_MS)
    assert bench.state() == "Dead"


def test_while_members_read_only_topics_that_none_of_them_reads_expire() -> None:
    bench = bench_of(retention_hours=1)
    (member,) = bench.stable_group(1, protocols=(("range", READS_T),), session_timeout_ms=1_800_000)
    for topic in ("t", "u"):
        bench.commit(1, topic=topic, member_id=member.member_id, generation_id=1)
    for _ in range(8):
        bench.advance(HOUR_MS // 3)
        bench.heartbeat(member.member_id, 1)
    assert (bench.offset("t"), bench.offset("u")) == (1, -1)


def test_offsets_of_a_group_in_a_rebalance_or_of_another_type_are_kept() -> None:
    bench = bench_of(retention_hours=1)
    (member,) = bench.stable_group(1, protocol_type="connect", session_timeout_ms=1_800_000)
    bench.commit(1, member_id=member.member_id, generation_id=1)
    for _ in range(8):
        bench.advance(HOUR_MS // 3)
        bench.heartbeat(member.member_id, 1)
    assert bench.offset() == 1


def test_a_client_may_say_how_long_an_offset_is_kept() -> None:
    bench = bench_of()
    bench.commit(1, retention_time_ms=2 * HOUR_MS, version=4)
    bench.advance(HOUR_MS)
    assert bench.offset() == 1
    bench.fail_over()
    bench.advance(3 * HOUR_MS)
    assert bench.offset() == -1


def test_a_commit_that_is_under_way_is_not_overtaken() -> None:
    bench = bench_of()
    bench.commit(1)
    bench.advance(24 * HOUR_MS - 1)
    bench.hold = True
    bench.commit(2)
    for _ in range(3 * 1_000):
        bench.advance(1_000)
    bench.release()
    assert bench.offset() == 2


def test_many_groups_are_looked_at_a_few_at_a_time() -> None:
    bench = bench_of()
    count = 2 * expiry.GROUPS_AT_ONCE + 1
    for number in range(count):
        bench.commit(number, group_id=f"g{number}")
    bench.advance(24 * HOUR_MS)
    left: list[int] = []
    while bench.machine.stored.group_ids():
        due_ms = bench.shard.next_due_ms()
        assert due_ms is not None
        bench.advance(max(due_ms - bench.now_ms, 0))
        left.append(len(bench.machine.stored.group_ids()))
    assert [number for number in left if number < count] == [count - expiry.GROUPS_AT_ONCE, 1, 0]


def test_a_group_with_many_offsets_goes_in_several_writes() -> None:
    bench = bench_of()
    for partition in range(expiry.RECORDS_PER_WRITE + 1):
        bench.commit(1, partition=partition)
    (member,) = bench.stable_group(1)
    bench.leave((member.member_id, None))
    bench.advance(26 * HOUR_MS)
    assert bench.machine.stored.group_ids() == []


def test_who_joins_while_the_group_is_being_removed_gets_in() -> None:
    bench = bench_of()
    (member,) = bench.stable_group(1)
    bench.leave((member.member_id, None))
    bench.hold = True
    bench.advance(HOUR_MS - 10_000)
    while not bench.held:
        bench.advance(1_000)
    removal = bench.held[0].parts[0].write.records
    assert removal == (GenerationRecord("g", None),)
    required = bench.answer(bench.join())
    joining = bench.join(required.member_id)
    bench.release()
    bench.advance(3_000)
    assert bench.answer(joining).generation_id == 3
