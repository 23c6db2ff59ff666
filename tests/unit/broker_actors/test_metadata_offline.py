from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from appliance.base.object_store import StoreUnavailable
from appliance.broker_actors.metadata_offline import FoundPartition, read_image, rebuild
from appliance.controller.records import LeaderRecoveryState
from appliance.tiering.directory import DirectoryStore
from tests.support.fault_store import FaultStore, away

FIRST, SECOND = uuid.UUID(int=1, version=4), uuid.UUID(int=2, version=4)
FOUND = [FoundPartition("a", FIRST, 0, 7), FoundPartition("a", FIRST, 2, 9), FoundPartition("b", SECOND, 0, 3, 2)]


def test_a_store_without_metadata_has_no_image(tmp_path: Path) -> None:
    assert read_image(DirectoryStore(tmp_path)) is None


def test_metadata_that_is_begun_anew_has_names_ids_and_epochs_and_nobody_leads(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    rebuild(store, FOUND, [1, 2], 3, {"a": {"retention.ms": "-1"}})
    image = read_image(store)
    assert image is not None
    assert {name: topic.topic_id for name, topic in image.topics.items()} == {"a": FIRST, "b": SECOND}
    assert [len(image.topics[name].partitions) for name in "ab"] == [3, 2], "one that has no manifest is there, too"
    first = image.topics["a"].partitions
    assert [(one.leader, one.leader_epoch, one.data_lost) for one in first] == [
        (-1, 7, True),
        (-1, 0, True),
        (-1, 9, True),
    ]
    assert all(set(one.replicas) == {1, 2} and len(one.isr) == 1 for one in first)
    assert all(one.leader_recovery_state is LeaderRecoveryState.RECOVERING for one in first)
    assert dict(image.topics["a"].configs) == {"retention.ms": "-1"}
    assert not image.topics["b"].configs


def test_many_partitions_take_several_commits(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    found = [FoundPartition(f"topic {n} " + "x" * 200, uuid.UUID(int=n + 1, version=4), 0, n) for n in range(3_000)]
    image = rebuild(store, found, [1], 1, {})
    assert (len(image.topics), image.position > 1) == (3_000, True)
    assert read_image(store) == image


def test_a_store_that_is_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FaultStore(DirectoryStore(tmp_path))
    rebuild(store, FOUND, [1], 1, {})
    monkeypatch.setattr("appliance.broker_actors.metadata_offline.time.sleep", lambda seconds: None)
    seen = 0

    def rule(operation: str, name: str) -> str | None:
        nonlocal seen
        seen += 1
        return None if seen == 1 else away()(operation, name)

    store.rule = rule
    with pytest.raises(StoreUnavailable):
        read_image(store)
