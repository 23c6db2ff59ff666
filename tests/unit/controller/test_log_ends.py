"""Unclean elections wait until all that live have said how long their logs are (rule P10)."""

from __future__ import annotations

import uuid

from appliance.controller.brokers import fence
from appliance.controller.decisions import UNUSABLE, LogEnd, Rules
from appliance.controller.image import MetadataImage
from appliance.controller.leader_elections import elect_leaders, wanted_uncleanly
from appliance.controller.log_ends import elect_longest, survey, without_leader
from appliance.controller.records import NO_LEADER, PartitionChanged, PartitionState, TopicConfigSet, TopicCreated
from appliance.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.metadata import after, cluster, committed, rules

TOPIC = uuid.UUID(int=7, version=4)
PART = (TOPIC, 0)


def image_without_leader(*, allowed: bool = True, data_lost: bool = False) -> MetadataImage:
    """Broker 1 led alone and is gone; 2, 3 and 4 were not in sync, and live."""
    state = PartitionState(0, 1, 0, 0, (1, 2, 3, 4), (1,), data_lost=data_lost)
    config = TopicConfigSet(TOPIC, "unclean.leader.election.enable", str(allowed).lower())
    image = after(cluster(1, 2, 3, 4), TopicCreated("t", TOPIC), config, PartitionChanged(TOPIC, state))
    return committed(image, fence([(1, image.brokers[1].broker_epoch)], image, rules(), dead=True))[1]


def heard(image: MetadataImage, ends: dict[int, tuple[int, int]], leader_epoch: int = 1) -> Rules:
    known = {
        (*PART, broker_id): LogEnd(leader_epoch, image.brokers[broker_id].broker_epoch, *end)
        for broker_id, end in ends.items()
    }
    return Rules(rules().config, rules().randomness, log_ends=known)


def elected(image: MetadataImage, known: Rules) -> int:
    image = committed(image, elect_longest(image, known, [PART]))[1]
    return image.topics["t"].partitions[0].leader


def test_all_that_live_are_asked_and_nobody_is_elected_before() -> None:
    image = image_without_leader()
    assert without_leader(image) == [PART]
    found = survey(image, rules(), [PART])
    assert found.unasked == {broker_id: {PART: 1} for broker_id in (2, 3, 4)}
    assert found.complete == []
    known = heard(image, {2: (0, 9), 3: (0, 5)})
    assert survey(image, known, [PART]).unasked == {4: {PART: 1}}
    assert elected(image, known) == NO_LEADER


def test_the_longest_log_wins_and_the_last_epoch_counts_first() -> None:
    image = image_without_leader()
    assert elected(image, heard(image, {2: (0, 9), 3: (0, 10), 4: (0, 8)})) == 3
    assert elected(image, heard(image, {2: (0, 900), 3: (0, 10), 4: (1, 8)})) == 4
    assert survey(image, heard(image, {2: (0, 9), 3: (0, 10), 4: (0, 8)}), [PART]).complete == [PART]


def test_with_equal_logs_the_first_replica_leads() -> None:
    image = image_without_leader()
    assert elected(image, heard(image, dict.fromkeys((2, 3, 4), (0, 7)))) == 2


def test_who_does_not_answer_comes_last_and_who_cannot_be_used_not_at_all() -> None:
    image = image_without_leader()
    assert elected(image, heard(image, {2: (-1, -1), 3: (0, 0), 4: (-1, -1)})) == 3
    assert elected(image, heard(image, {2: (-1, -1), 3: (-1, UNUSABLE), 4: (-1, -1)})) == 2
    nobody = heard(image, dict.fromkeys((2, 3, 4), (-1, UNUSABLE)))
    assert elected(image, nobody) == NO_LEADER
    assert survey(image, nobody, [PART]).complete == []


def test_what_another_process_or_an_earlier_time_without_leader_has_said_does_not_count() -> None:
    image = image_without_leader()
    before = heard(image, dict.fromkeys((2, 3, 4), (0, 7)), leader_epoch=0)
    assert sorted(survey(image, before, [PART]).unasked) == [2, 3, 4]
    known = heard(image, dict.fromkeys((2, 3), (0, 7)))
    of_another = {**known.log_ends, (*PART, 4): LogEnd(1, image.brokers[4].broker_epoch - 1, 0, 9)}
    assert list(survey(image, Rules(known.config, known.randomness, log_ends=of_another), [PART]).unasked) == [4]


def test_nobody_is_asked_where_unclean_elections_are_not_allowed_unless_an_operator_wants_one() -> None:
    image = image_without_leader(allowed=False)
    assert survey(image, rules(), [PART]).unasked == {}
    assert sorted(survey(image, rules(), [PART], by_operator=True).unasked) == [2, 3, 4]
    known = heard(image, {2: (0, 9), 3: (0, 10), 4: (0, 8)})
    assert elected(image, known) == NO_LEADER
    image = committed(image, elect_leaders(ElectLeadersRequest(election_type=1, topic_partitions=None), image, known))[
        1
    ]
    assert image.topics["t"].partitions[0].leader == 3


def test_an_operators_request_names_what_has_to_be_asked() -> None:
    image = image_without_leader(allowed=False)
    wanted = [TopicPartitions(topic="t", partitions=[0]), TopicPartitions(topic="gone", partitions=[0])]
    assert wanted_uncleanly(ElectLeadersRequest(election_type=1, topic_partitions=wanted), image) == [PART]
    assert wanted_uncleanly(ElectLeadersRequest(election_type=1, topic_partitions=None), image) == [PART]
    assert wanted_uncleanly(ElectLeadersRequest(election_type=0, topic_partitions=None), image) == []
    assert wanted_uncleanly(ElectLeadersRequest(election_type=9, topic_partitions=None), image) == []
