"""Where new partitions go."""

from __future__ import annotations

from collections import Counter

import pytest

from appliance.base.errors import KafkaError
from appliance.base.randomness import SeededRandomness
from appliance.controller.placement import place
from tests.support.metadata import cluster

RACKS = ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("seed", range(5))
def test_leaders_are_spread_evenly(seed: int) -> None:
    placed = place(cluster(1, 2, 3), 9, 1, SeededRandomness(seed))
    assert Counter(replicas[0] for replicas in placed) == {1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize("seed", range(5))
def test_replicas_of_a_partition_are_on_different_racks(seed: int) -> None:
    rack_of = dict(zip(range(1, 7), RACKS, strict=True))
    placed = place(cluster(*range(1, 7), racks=RACKS), 12, 3, SeededRandomness(seed))
    assert all(len({rack_of[broker] for broker in replicas}) == 3 for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(1, 7), 2)


def test_with_fewer_racks_than_replicas_brokers_still_differ() -> None:
    for replicas in place(cluster(1, 2, 3, racks=["a", "a", "b"]), 6, 3, SeededRandomness(1)):
        assert sorted(replicas) == [1, 2, 3]


def test_followers_of_one_leader_are_spread_too() -> None:
    placed = place(cluster(1, 2, 3, 4), 12, 2, SeededRandomness(1))
    followers = Counter(replicas[1] for replicas in placed if replicas[0] == 1)
    assert followers == {2: 1, 3: 1, 4: 1}


def test_topics_of_one_partition_do_not_all_land_on_one_broker() -> None:
    from appliance.controller.topics import create_topics
    from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from tests.support.metadata import committed, rules

    image, chosen = cluster(1, 2, 3), rules()
    for number in range(9):
        topic = CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
        _, image = committed(image, create_topics(CreateTopicsRequest(topics=[topic]), image, chosen))
    leads = Counter(topic.partitions[0].leader for topic in image.topics.values())
    assert leads == {1: 3, 2: 3, 3: 3}


def test_the_same_seed_places_alike_and_another_differs() -> None:
    image = cluster(*range(1, 9))
    placed = [place(image, 8, 1, SeededRandomness(seed)) for seed in (1, 1, 2)]
    assert placed[0] == placed[1] != placed[2]


def test_more_replicas_than_brokers_cannot_be_placed() -> None:
    with pytest.raises(KafkaError, match=r"INVALID_REPLICATION_FACTOR.*2 are registered"):
        place(cluster(1, 2), 1, 3, SeededRandomness(0))
