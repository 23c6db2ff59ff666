from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.partition.events import (
    AdvanceHighWatermark,
    Appended,
    FollowerFetched,
    IsrDecided,
    IsrRefused,
    MinInsyncReplicasSet,
    ProposeIsr,
    Refuse,
    ReplicasFenced,
    Tick,
)
from appliance.partition.leader import PartitionLeader

LAG_MS = 30_000


def leader_of(
    *replicas: int, isr: tuple[int, ...] | None = None, end_offset: int = 0, min_insync_replicas: int = 1
) -> PartitionLeader:
    return PartitionLeader(
        broker_id=replicas[0],
        leader_epoch=5,
        partition_epoch=7,
        isr=replicas if isr is None else isr,
        replicas=replicas,
        log_end_offset=end_offset,
        high_watermark=end_offset,
        min_insync_replicas=min_insync_replicas,
        replica_lag_time_max_ms=LAG_MS,
        started_ms=0,
    )


def fetched(replica_id: int, offset: int, *, leader_epoch: int = 5, broker_epoch: int = 1) -> FollowerFetched:
    return FollowerFetched(replica_id, broker_epoch, offset, leader_epoch)


def test_a_single_replica_commits_what_it_wrote() -> None:
    leader = leader_of(1)
    assert leader.appended(10) == 10
    assert leader.handle(Appended(12), now_ms=0) == [AdvanceHighWatermark(12)]


def test_data_is_committed_when_every_in_sync_replica_has_it() -> None:
    leader = leader_of(1, 2, 3)
    assert leader.handle(Appended(10), now_ms=0) == []
    assert leader.handle(fetched(2, 10), now_ms=1) == []
    assert leader.handle(fetched(3, 7), now_ms=2) == [AdvanceHighWatermark(7)]
    assert leader.handle(fetched(3, 10), now_ms=3) == [AdvanceHighWatermark(10)]


def test_a_replica_outside_the_isr_holds_nothing_back() -> None:
    leader = leader_of(1, 2, isr=(1,))
    assert leader.handle(Appended(10), now_ms=0) == [AdvanceHighWatermark(10)]


def test_the_high_watermark_never_goes_back() -> None:
    leader = leader_of(1, 2, isr=(1,))
    leader.handle(Appended(10), now_ms=0)
    leader.handle(IsrDecided(isr=(1, 2), partition_epoch=8, replicas=(1, 2)), now_ms=1)
    assert leader.high_watermark == 10
    assert leader.handle(Appended(20), now_ms=2) == []
    assert leader.high_watermark == 10


def test_the_high_watermark_stands_still_below_min_insync_replicas() -> None:
    leader = leader_of(1, 2, 3, isr=(1,), min_insync_replicas=2)
    assert not leader.enough_in_sync
    assert leader.handle(Appended(10), now_ms=0) == []
    leader.handle(fetched(2, 10), now_ms=1)
    assert leader.high_watermark == 0
    assert leader.handle(IsrDecided((1, 2), 8, (1, 2, 3)), now_ms=2) == [AdvanceHighWatermark(10)]


def test_fewer_replicas_than_min_insync_replicas_do_not_block_a_topic() -> None:
    leader = leader_of(1, min_insync_replicas=2)
    assert leader.enough_in_sync
    assert leader.appended(3) == 3


def test_lowering_min_insync_replicas_commits_what_waited() -> None:
    leader = leader_of(1, 2, 3, isr=(1,), min_insync_replicas=2)
    leader.handle(Appended(10), now_ms=0)
    assert leader.handle(MinInsyncReplicasSet(1), now_ms=1) == [AdvanceHighWatermark(10)]


def test_a_follower_that_caught_up_is_proposed_and_counts_from_then_on() -> None:
    leader = leader_of(1, 2, isr=(1,))
    leader.handle(Appended(10), now_ms=0)
    assert leader.handle(fetched(2, 9), now_ms=1) == []
    assert leader.handle(fetched(2, 10), now_ms=2) == [ProposeIsr((1, 2), 7)]
    # The controller's yes is still on its way, but replica 2 may count already: nothing it lacks is committed.
    assert leader.handle(Appended(20), now_ms=3) == []
    assert leader.high_watermark == 10


def test_one_proposal_is_in_flight_at_most() -> None:
    leader = leader_of(1, 2, 3, isr=(1,))
    leader.handle(Appended(10), now_ms=0)
    assert leader.handle(fetched(2, 10), now_ms=1) == [ProposeIsr((1, 2), 7)]
    assert leader.handle(fetched(3, 10), now_ms=1) == []


def test_a_refused_proposal_counts_until_a_higher_partition_epoch_is_read() -> None:
    leader = leader_of(1, 2, isr=(1,))
    leader.handle(Appended(10), now_ms=0)
    leader.handle(fetched(2, 10), now_ms=1)
    leader.handle(IsrRefused(), now_ms=2)
    assert leader.handle(Appended(20), now_ms=3) == []
    assert leader.handle(IsrDecided((1,), 8, (1, 2)), now_ms=4) == [AdvanceHighWatermark(20)]


def test_after_a_refusal_the_wish_of_the_day_is_sent_again() -> None:
    leader = leader_of(1, 2, isr=(1,))
    leader.handle(Appended(10), now_ms=0)
    leader.handle(fetched(2, 10), now_ms=1)
    leader.handle(IsrRefused(), now_ms=2)
    assert leader.handle(Tick(), now_ms=3) == [ProposeIsr((1, 2), 7)]


def test_an_answer_of_an_old_partition_epoch_changes_nothing() -> None:
    leader = leader_of(1, 2)
    assert leader.handle(IsrDecided((1,), 7, (1, 2)), now_ms=0) == []
    assert leader.isr == (1, 2)


def test_a_laggard_is_proposed_away_but_counts_until_that_is_committed() -> None:
    leader = leader_of(1, 2)
    leader.handle(Appended(10), now_ms=0)
    assert leader.handle(Tick(), now_ms=LAG_MS) == []
    assert leader.handle(Tick(), now_ms=LAG_MS + 1) == [ProposeIsr((1,), 7)]
    assert leader.high_watermark == 0
    assert leader.handle(IsrDecided((1,), 8, (1, 2)), now_ms=LAG_MS + 2) == [AdvanceHighWatermark(10)]


def test_a_follower_under_load_that_reaches_its_last_goal_is_no_laggard() -> None:
    leader = leader_of(1, 2)
    now_ms = 0
    for end_offset in range(10, 100, 10):
        leader.handle(Appended(end_offset), now_ms)
        # Each fetch reaches the end that the leader had at the fetch before, never the newest one.
        leader.handle(fetched(2, end_offset - 10), now_ms)
        now_ms += LAG_MS // 2
        assert leader.handle(Tick(), now_ms) == []


def test_a_quiet_partition_loses_nobody() -> None:
    leader = leader_of(1, 2)
    leader.handle(Appended(10), now_ms=0)
    leader.handle(fetched(2, 10), now_ms=1)
    assert leader.handle(Tick(), now_ms=10 * LAG_MS) == []


def test_requests_of_another_epoch_or_of_strangers_are_refused() -> None:
    leader = leader_of(1, 2)
    leader.handle(Appended(10), now_ms=0)
    assert leader.handle(fetched(2, 3, leader_epoch=4), 1) == [Refuse(2, ErrorCode.FENCED_LEADER_EPOCH)]
    assert leader.handle(fetched(2, 3, leader_epoch=6), 1) == [Refuse(2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    assert leader.handle(fetched(9, 3), 1) == [Refuse(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert leader.handle(fetched(2, 11), 1) == [Refuse(2, ErrorCode.OFFSET_OUT_OF_RANGE)]
    leader.handle(fetched(2, 3, broker_epoch=5), 1)
    assert leader.handle(fetched(2, 3, broker_epoch=4), 1) == [Refuse(2, ErrorCode.STALE_BROKER_EPOCH)]


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    leader = leader_of(1, 2, end_offset=50)
    assert leader.epoch_start_offset == 50
    assert leader.handle(Appended(60), now_ms=0) == []
    # Below the start of its epoch a follower may hold what was never committed.
    assert leader.handle(fetched(2, 60), now_ms=1) == [AdvanceHighWatermark(60)]


def test_replicas_come_and_go_with_the_partition_record() -> None:
    leader = leader_of(1, 2)
    leader.handle(IsrDecided((1,), 8, (1, 3)), now_ms=5)
    assert list(leader.followers) == [3]
    assert leader.handle(fetched(2, 0), 6) == [Refuse(2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_fenced_replica_leaves_at_once_and_counts_until_the_commit_is_known() -> None:
    leader = leader_of(1, 2, 3)
    leader.handle(Appended(10), now_ms=0)
    leader.handle(fetched(2, 10), now_ms=1)
    assert leader.handle(ReplicasFenced((3,)), now_ms=2) == [ProposeIsr((1, 2), 7)]
    assert leader.high_watermark == 0
    assert leader.handle(IsrDecided((1, 2), 8, (1, 2, 3)), now_ms=3) == [AdvanceHighWatermark(10)]


def test_a_fenced_replica_does_not_join_before_it_is_unfenced() -> None:
    leader = leader_of(1, 2, isr=(1,))
    leader.handle(ReplicasFenced((2,)), now_ms=0)
    assert leader.handle(fetched(2, 0), now_ms=1) == []
    assert leader.handle(ReplicasFenced(()), now_ms=2) == [ProposeIsr((1, 2), 7)]


def test_a_refused_wish_for_a_replica_that_is_fenced_now_is_withdrawn() -> None:
    leader = leader_of(1, 2, isr=(1,))
    assert leader.handle(fetched(2, 0), now_ms=0) == [ProposeIsr((1, 2), 7)]
    leader.handle(IsrRefused(), now_ms=1)
    assert leader.handle(ReplicasFenced((2,)), now_ms=2) == [ProposeIsr((1,), 7)]
    assert leader.max_isr == (1, 2), "until a higher partition epoch is known"


def test_an_idle_follower_has_its_full_time_when_records_come_again() -> None:
    leader = leader_of(1, 2)
    assert leader.handle(fetched(2, 0), now_ms=0) == []
    assert leader.handle(Tick(), now_ms=10 * LAG_MS) == []
    leader.handle(Appended(5), now_ms=10 * LAG_MS + 1)
    assert leader.handle(Tick(), now_ms=11 * LAG_MS) == []
    assert leader.handle(Tick(), now_ms=11 * LAG_MS + 1) == [ProposeIsr((1,), 7)]
