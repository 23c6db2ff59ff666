"""What a controller does while its object store is away, slow or loses answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.broker_actors import controller as controller_module
from appliance.tiering.directory import DirectoryStore
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.controller import ControllerThread, LineOfABroker, wait_for
from tests.support.fault_store import FaultStore, away


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultStore:
    faulty = FaultStore(DirectoryStore(tmp_path / "store"))
    monkeypatch.setattr(controller_module, "open_store", lambda url, config: faulty)
    return faulty


@pytest.fixture
def controller(store: FaultStore) -> Iterator[ControllerThread]:
    started = ControllerThread(
        store.url,
        controller_proof_interval_ms="100",
        controller_proof_max_ms="600",
        metadata_store_request_timeout_ms="200",
    )
    started.wait_until_active()
    yield started
    store.rule = lambda operation, name: None
    store.unstall.set()
    started.close()


@pytest.fixture
def line(controller: ControllerThread, tmp_path: Path) -> Iterator[LineOfABroker]:
    started = LineOfABroker(1, [controller.address], tmp_path / "broker-1")
    wait_for(started.is_unfenced, "the broker serves")
    yield started
    started.die()


def create(line: LineOfABroker, name: str, timeout_ms: int) -> tuple[int, str | None]:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    row = line.call(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)).topics[0]
    return row.error_code, row.error_message


@pytest.mark.parametrize("fate", ["refuse", "stall"])
def test_while_the_store_is_away_leases_are_soft_and_nothing_is_decided(
    store: FaultStore, controller: ControllerThread, line: LineOfABroker, fate: str
) -> None:
    clock = line.channel._line.clock
    wait_for(lambda: line.channel.lease_firm(clock.monotonic_ms()), "the lease is firm")
    store.rule = away() if fate == "refuse" else (lambda operation, name: "stall")
    wait_for(lambda: not line.channel.lease_firm(clock.monotonic_ms()), "the lease is soft")
    assert line.is_unfenced()
    wait_for(lambda: controller.status().store_state != "ok", "the status names the store")
    if fate == "refuse":
        assert "503 Slow Down" in controller.status().store_state
    # The first is under way and cannot be taken back; those behind it are given up, with the reason.
    creates = store.calls["create"]
    first = CreatableTopic(name="first", num_partitions=1, replication_factor=1)
    line.channel.call(CreateTopicsRequest(topics=[first], timeout_ms=10_000), lambda result: None)
    wait_for(lambda: store.calls["create"] > creates, "the commit is tried")
    code, message = create(line, "second", 300)
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert message and "the object store gives no answer" in message
    assert not line.image.topics
    store.rule = lambda operation, name: None
    store.unstall.set()
    wait_for(lambda: list(line.image.topics) == ["first"], "what was under way is done")
    wait_for(lambda: controller.status().store_state == "ok", "the status is well again")
    wait_for(lambda: line.channel.lease_firm(clock.monotonic_ms()), "the lease is firm again")
    assert create(line, "third", 5_000)[0] == ErrorCode.NONE


def test_answers_that_get_lost_do_no_harm(store: FaultStore, controller: ControllerThread, line: LineOfABroker) -> None:
    creates = 0

    def lose_every_other(operation: str, name: str) -> str | None:
        nonlocal creates
        if operation != "create":
            return None
        creates += 1
        return "lose" if creates % 2 else "refuse"

    store.rule = lose_every_other
    for number in range(5):
        assert create(line, f"t{number}", 10_000)[0] == ErrorCode.NONE
    wait_for(lambda: len(line.image.topics) == 5, "all topics are there")
    assert creates > 5
    assert controller.error is None


def test_a_controller_starts_when_its_store_comes_back(store: FaultStore, tmp_path: Path) -> None:
    """The probe at the start has gone well; the store goes away at the first request behind it."""
    store.rule = lambda operation, name: "refuse" if name == "cluster-id" else None
    started = ControllerThread(store.url)
    try:
        wait_for(lambda: store.calls["create"] > 3, "it tries")
        store.rule = lambda operation, name: None
        started.wait_until_active()
    finally:
        started.close()
