"""A log under any sequence of operations is what a list of batches says that it should be.

Appends in all codecs, by idempotent and transactional producers, of several leaders; writes that fail; rolls, cuts, new
beginnings, retention, DeleteRecords, compaction, lost and damaged indexes, starts after clean and unclean ends. After
each of them the records, the offsets, the producers, the transactions, the epochs, the times and the indexes are
compared with the list (`log_model.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.log import cut_log, partition_log
from appliance.log.indexes import OffsetIndex, TimeIndex
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.log.producer_state import ProducerState
from appliance.log.segment import Segment
from tests.support.log_world import World
from tests.support.seeds import seeds

STEPS = 40


def live(seed: int, steps: int = STEPS) -> World:
    world = World(seed)
    done: list[str] = []
    try:
        for _ in range(steps):
            deed = world.random.choice(world.deeds)
            done.append(deed.__name__)
            deed()
            world.check()
    except Exception as error:
        raise AssertionError(f"seed {seed} after {done}") from error
    return world


@pytest.mark.parametrize("seed", seeds(60))
def test_a_log_is_what_the_list_of_its_batches_says(seed: int) -> None:
    live(seed)


# The test above can fail


def an_index_entry_names_the_batch_before(monkeypatch: pytest.MonkeyPatch) -> None:
    real = OffsetIndex.append
    monkeypatch.setattr(OffsetIndex, "append", lambda index, offset, position: real(index, offset - 1, position))


def a_cut_leaves_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderEpochCache, "truncate_from_end", lambda cache, offset: None)


def a_cut_leaves_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_log, "recover_producers", lambda directory, found, state, now_ms: None)


def retention_takes_a_segment_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(segments: list[Segment], **limits: int) -> int:
        return segments[-1].base_offset

    monkeypatch.setattr(partition_log, "expired_end", too_much)


def a_time_is_looked_for_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeIndex, "offset_before", lambda index, timestamp: index.offsets[-1] if len(index) else 0)


def a_failed_write_leaves_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "take_back", lambda state, end_offset: None)


BROKEN = [
    an_index_entry_names_the_batch_before,
    a_cut_leaves_the_epochs,
    a_cut_leaves_the_producers,
    retention_takes_a_segment_too_many,
    a_time_is_looked_for_too_late,
    a_failed_write_leaves_the_producers,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_it_is_noticed_when(broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    for seed in range(20):
        try:
            live(seed)
        except AssertionError:
            return
    raise AssertionError("nobody noticed")
