from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_plan import ByteBudget, Source, leader_epoch_error, source_of
from appliance.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED, visible_end


@pytest.mark.parametrize(
    ("offset", "source"),
    [
        (9, Source.OUT_OF_RANGE),
        (10, Source.REMOTE),
        (19, Source.REMOTE),
        (20, Source.LOCAL),
        (29, Source.LOCAL),
        (30, Source.NOTHING),
        (40, Source.NOTHING),
        (41, Source.OUT_OF_RANGE),
    ],
)
def test_an_offset_has_one_place(offset: int, source: Source) -> None:
    found = source_of(offset, log_start_offset=10, local_log_start_offset=20, visible_end=30, log_end_offset=40)
    assert found is source


def test_followers_see_all_consumers_what_is_committed_and_read_committed_what_is_stable() -> None:
    ends = {"high_watermark": 20, "last_stable_offset": 10, "log_end_offset": 30}
    assert visible_end(3, READ_UNCOMMITTED, **ends) == 30
    assert visible_end(-2, READ_UNCOMMITTED, **ends) == 30
    assert visible_end(-1, READ_UNCOMMITTED, **ends) == 20
    assert visible_end(-1, READ_COMMITTED, **ends) == 10


def test_a_client_behind_is_fenced_and_one_ahead_must_wait() -> None:
    assert leader_epoch_error(-1, 5) == ErrorCode.NONE
    assert leader_epoch_error(5, 5) == ErrorCode.NONE
    assert leader_epoch_error(4, 5) == ErrorCode.FENCED_LEADER_EPOCH
    assert leader_epoch_error(6, 5) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_budget_is_shared_in_order() -> None:
    budget = ByteBudget(100)
    assert budget.share(60) == 60
    budget.taken(60)
    assert not budget.nothing_yet
    assert budget.share(60) == 40
    budget.taken(40)
    assert budget.share(60) == 0


def test_a_first_batch_above_the_limit_uses_the_budget_up() -> None:
    budget = ByteBudget(100)
    assert budget.share(50) == 50
    assert budget.nothing_yet
    budget.taken(1_000)
    assert budget.share(50) == 0
