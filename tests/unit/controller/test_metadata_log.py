"""The log's protocol step by step, against a store whose answers the test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.base.randomness import SeededRandomness
from appliance.controller.commits import LogCorrupt, Pointer, decode_commit, decode_pointer, encode_pointer
from appliance.controller.log_reader import CLUSTER_ID, POINTER, log_name, snapshot_name
from appliance.controller.metadata_log import MetadataLog, SteppedDown, WrongCluster
from appliance.controller.records import ControllerClaimed, ProducerIdsAllocated
from appliance.controller.store_calls import (
    Create,
    Exists,
    Get,
    NoAnswer,
    Pause,
    StoreAnswer,
    StoreRequest,
    StoreResult,
    StoreSteps,
    Swap,
)
from tests.support.metadata_log_world import SimulatedStore

DAY_MS = 86_400_000
Fate = Callable[[StoreRequest], str | None]
"""What happens to a request: None, "lose" (done, but the answer is lost) or "refuse" (not done, no answer)."""


class Driver:
    """Runs steps to their end at once; the clock goes on by a second with each request."""

    def __init__(self) -> None:
        self.store = SimulatedStore()
        self.asked: list[StoreRequest] = []
        self.now_ms = 0

    def log(self, controller_id: int, seed: int | None = None) -> MetadataLog:
        return MetadataLog(controller_id, SeededRandomness(controller_id if seed is None else seed), host="h", port=1)

    def run(self, steps: StoreSteps[Any], fate: Fate = lambda request: None) -> Any:
        answer: StoreAnswer | None = None
        while True:
            try:
                request = next(steps) if answer is None else steps.send(answer)
            except StopIteration as stop:
                return stop.value
            self.now_ms += 1_000
            if not isinstance(request, Pause):
                self.asked.append(request)
            answer = StoreAnswer(self._result(request, fate(request)), self.now_ms)

    def active(self, controller_id: int, seed: int | None = None) -> MetadataLog:
        log = self.log(controller_id, seed)
        self.run(log.open(None, f"cluster-{controller_id}"))
        self.run(log.claim(0))
        return log

    def _result(self, request: StoreRequest, fate: str | None) -> StoreResult:
        if fate == "refuse":
            return NoAnswer("503")
        result = self.store.apply(request)
        return NoAnswer("reset") if fate == "lose" else result


def block(log: MetadataLog) -> list[ProducerIdsAllocated]:
    return [ProducerIdsAllocated(1, 1, log.image.next_producer_id + 1_000)]


def first(kind: type, fate: str, times: int = 1) -> Fate:
    """That fate for the first requests of a kind."""
    left = times

    def decide(request: StoreRequest) -> str | None:
        nonlocal left
        if isinstance(request, kind) and left:
            left -= 1
            return fate
        return None

    return decide


def test_the_first_commit_holds_the_claim_and_the_cluster() -> None:
    driver = Driver()
    log = driver.active(1)
    assert driver.store.bodies[CLUSTER_ID][0] == b"cluster-1"
    commit = decode_commit(driver.store.bodies[log_name(0)][0])
    assert commit.records[0] == ControllerClaimed(1, 1, "h", 1)
    assert (log.image.cluster_id, log.image.controller_epoch, log.epoch) == ("cluster-1", 1, 1)
    assert log.image.features == {"appliance.metadata.version": 1}


def test_a_later_controller_keeps_the_cluster_and_takes_the_next_epoch() -> None:
    driver = Driver()
    driver.run(driver.active(1).commit([ProducerIdsAllocated(1, 1, 1_000)], 0))
    log = driver.active(2)
    assert (log.image.cluster_id, log.image.controller_epoch, log.image.controller_id) == ("cluster-1", 2, 2)
    assert log.image.next_producer_id == 1_000


def test_the_configured_cluster_id_is_taken_or_must_fit() -> None:
    driver = Driver()
    assert driver.run(driver.log(1).open("mine", "random")) == "mine"
    with pytest.raises(WrongCluster, match=r"cluster mine, not to cluster\.id other"):
        driver.run(driver.log(2).open("other", "random"))


@pytest.mark.parametrize("fate", ["lose", "refuse"])
def test_a_create_without_an_answer_is_sent_again_unchanged(fate: str) -> None:
    driver = Driver()
    log = driver.active(1)
    driver.asked.clear()
    driver.run(log.commit(block(log), 0), first(Create, fate, times=2))
    creates = [request for request in driver.asked if isinstance(request, Create)]
    assert len(creates) == 3
    assert len({request.data for request in creates}) == 1
    assert log.image.next_producer_id == 1_000
    assert log.trouble == ""


def test_its_own_nonce_under_the_name_means_success() -> None:
    driver = Driver()
    log = driver.active(1)
    commit = driver.run(log.commit(block(log), 0), first(Create, "lose"))
    assert decode_commit(driver.store.bodies[log_name(1)][0]) == commit


def test_anothers_nonce_means_that_it_has_been_replaced() -> None:
    driver = Driver()
    old = driver.active(1)
    driver.active(2)
    with pytest.raises(SteppedDown, match="commit 1 was written by controller 2 in controller epoch 2"):
        driver.run(old.commit(block(old), 0))
    assert old.image.next_producer_id == 0


def test_a_number_that_was_trimmed_and_created_again_is_not_a_commit() -> None:
    driver = Driver()
    old = driver.active(1)
    driver.active(2)
    del driver.store.bodies[log_name(1)]
    etag = driver.store.bodies[POINTER][1]
    driver.store.apply(Swap(POINTER, encode_pointer(Pointer(1, 1, 2, 2, bytes(16))), etag))
    with pytest.raises(SteppedDown, match="written and trimmed by another controller"):
        driver.run(old.commit(block(old), 0))


def test_a_candidate_that_meets_a_commit_of_the_active_one_goes_on_to_the_next_number() -> None:
    driver = Driver()
    active = driver.active(1)
    candidate = driver.log(2)
    driver.run(candidate.open(None, "x"))
    driver.run(active.commit(block(active), 0))
    assert driver.run(candidate.claim(0)).number == 2
    assert candidate.image.next_producer_id == 1_000


def test_a_candidate_that_is_too_slow_steps_down() -> None:
    driver = Driver()
    slow = driver.log(1)
    driver.run(slow.open(None, "x"))
    driver.active(2)
    with pytest.raises(SteppedDown, match="lost the race for controller epoch 1"):
        driver.run(slow.claim(0))


def test_a_proof_counts_from_the_moment_the_request_left() -> None:
    driver = Driver()
    log = driver.active(1)
    sent_ms = driver.now_ms + 1_000
    driver.run(log.prove())
    assert log.proven_ms == sent_ms


def test_without_an_answer_there_is_no_proof_but_a_reason() -> None:
    driver = Driver()
    log = driver.active(1)
    before = log.proven_ms
    driver.run(log.prove(), lambda request: "refuse")
    assert (log.proven_ms, log.trouble) == (before, "503")


def test_a_commit_is_a_proof_from_its_first_try_on() -> None:
    driver = Driver()
    log = driver.active(1)
    first_sent_ms = driver.now_ms + 1_000
    driver.run(log.commit(block(log), 0), first(Create, "refuse", times=5))
    assert log.proven_ms == first_sent_ms


def test_a_proof_finds_out_that_another_has_claimed() -> None:
    driver = Driver()
    old = driver.active(1)
    driver.active(2)
    with pytest.raises(SteppedDown, match="replaced: commit 1"):
        driver.run(old.prove())


def with_commits(driver: Driver, count: int) -> MetadataLog:
    """A commit each day."""
    log = driver.active(1)
    for day in range(1, count + 1):
        driver.run(log.commit(block(log), day * DAY_MS))
    return log


def test_commits_of_a_day_are_kept_behind_a_snapshot() -> None:
    driver = Driver()
    log = with_commits(driver, 5)
    assert log.commits_since_snapshot() == 6
    driver.run(log.snapshot_and_trim(5 * DAY_MS))
    assert log.commits_since_snapshot() == 0
    assert [name for name in sorted(driver.store.bodies) if name.startswith("metadata/")] == [
        log_name(5),
        POINTER,
        snapshot_name(5),
    ]
    pointer = decode_pointer(driver.store.bodies[POINTER][0])
    assert (pointer.snapshot, pointer.trimmed) == (5, 4)


def test_a_snapshot_remembers_when_commits_were_made() -> None:
    driver = Driver()
    log = with_commits(driver, 3)
    driver.run(log.snapshot_and_trim(3 * DAY_MS, retention_ms=10 * DAY_MS))
    later = driver.active(2)
    driver.run(later.snapshot_and_trim(5 * DAY_MS, retention_ms=2 * DAY_MS))
    assert decode_pointer(driver.store.bodies[POINTER][0]).trimmed == 3


def test_a_controller_starts_from_the_snapshot() -> None:
    driver = Driver()
    driver.run(with_commits(driver, 5).snapshot_and_trim(9 * DAY_MS))
    driver.asked.clear()
    log = driver.active(2)
    assert log.image.next_producer_id == 5_000
    names = [request.name for request in driver.asked if isinstance(request, Get)]
    assert log_name(4) not in names


@pytest.mark.parametrize("fate", ["lose", "refuse"])
def test_nothing_is_deleted_that_a_pointer_read_does_not_cover(fate: str) -> None:
    driver = Driver()
    log = with_commits(driver, 3)
    driver.run(log.snapshot_and_trim(9 * DAY_MS), lambda request: fate if isinstance(request, Swap) else None)
    left = [name for name in driver.store.bodies if name.startswith("metadata/log/")]
    assert len(left) == (0 if fate == "lose" else 4)


def test_a_reader_that_was_overtaken_by_a_trim_throws_its_round_away() -> None:
    driver = Driver()
    log = with_commits(driver, 2)
    reader = driver.log(3)
    driver.run(reader.open(None, "x"))
    stale = driver.store.bodies[log_name(2)]
    for day in (3, 4):
        driver.run(log.commit(block(log), day * DAY_MS))
    driver.run(log.snapshot_and_trim(99 * DAY_MS))
    # A paused writer creates a trimmed number again, with bytes that are no commit of this log any more.
    driver.store.bodies[log_name(3)] = stale
    driver.run(reader.read_round())
    assert reader.image.next_producer_id == 4_000


def test_a_log_that_holds_what_it_must_not_stops_its_reader() -> None:
    driver = Driver()
    with_commits(driver, 2)
    driver.store.bodies[log_name(2)] = driver.store.bodies[log_name(1)]
    with pytest.raises(LogCorrupt, match="commit 2: the object says that it is 1"):
        driver.run(driver.log(3).open(None, "x"))


def test_a_pointer_that_is_gone_is_not_taken_for_a_new_cluster() -> None:
    driver = Driver()
    with_commits(driver, 1)
    del driver.store.bodies[POINTER]
    with pytest.raises(LogCorrupt, match="metadata/pointer: is gone"):
        driver.run(driver.log(2).open(None, "x"))


def test_a_snapshot_that_is_gone_is_told() -> None:
    driver = Driver()
    driver.run(with_commits(driver, 1).snapshot_and_trim(9 * DAY_MS))
    del driver.store.bodies[snapshot_name(1)]
    with pytest.raises(LogCorrupt, match="the pointer names it, but it is gone"):
        driver.run(driver.log(2).open(None, "x"))


def test_a_log_of_another_cluster_is_told() -> None:
    driver = Driver()
    with_commits(driver, 1)
    driver.store.bodies[CLUSTER_ID] = (b"another", "e")
    with pytest.raises(LogCorrupt, match="cluster-id says another"):
        driver.run(driver.log(2).open(None, "x"))


def test_a_later_controller_moves_the_pointer_alone() -> None:
    driver = Driver()
    old = with_commits(driver, 2)
    later = driver.active(2)
    driver.run(later.snapshot_and_trim(0))
    with pytest.raises(SteppedDown, match="controller epoch 2 has moved the pointer"):
        driver.run(old.snapshot_and_trim(0))


def test_existing_names_answer_exists() -> None:
    """The simulated store keeps the seam's contract where these tests lean on it."""
    store = SimulatedStore()
    store.apply(Create("a", b"1"))
    assert isinstance(store.apply(Create("a", b"2")), Exists)
    assert store.bodies["a"][0] == b"1"
