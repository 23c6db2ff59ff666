"""Brokers come, are fenced, come back and go."""

from __future__ import annotations

import uuid

import pytest

from appliance.base.errors import ErrorCode
from appliance.controller.brokers import fence, repair, unfence
from appliance.controller.image import MetadataImage
from appliance.controller.records import (
    BrokerFenced,
    BrokerRegistered,
    LeaderRecoveryState,
    LogState,
    PartitionChanged,
    PartitionState,
    TopicCreated,
    position_of,
)
from tests.support.metadata import CLUSTER_ID, after, cluster, committed, leaders, registered, rules

TOPIC = uuid.UUID(int=7, version=4)


def with_topic(image: MetadataImage, *partitions: PartitionState) -> MetadataImage:
    return after(image, TopicCreated("t", TOPIC), *(PartitionChanged(TOPIC, state) for state in partitions))


def led_by(number: int, *replicas: int) -> PartitionState:
    return PartitionState(number, replicas[0], 0, 0, replicas, replicas)


def test_a_broker_epoch_is_the_position_of_the_registration() -> None:
    image = cluster(1)
    response, image = registered(image, 2, 20)
    assert response.error_code == ErrorCode.NONE
    assert response.broker_epoch == position_of(image.position, 0) == image.brokers[2].broker_epoch
    assert image.brokers[2].fenced


def test_two_registrations_in_one_commit_have_two_epochs() -> None:
    image = cluster()
    records = [BrokerRegistered(broker_id, uuid.uuid4(), ()) for broker_id in (1, 2)]
    image = after(image, *records)
    assert image.brokers[1].broker_epoch != image.brokers[2].broker_epoch


def test_the_same_incarnation_gets_the_same_answer_again() -> None:
    first, image = registered(cluster(), 1, 10)
    again, later = registered(image, 1, 10)
    assert again.broker_epoch == first.broker_epoch
    assert later is image


def test_another_incarnation_waits_until_the_first_is_fenced() -> None:
    image = cluster(1)
    refused, image = registered(image, 1, 11)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    epoch = image.brokers[1].broker_epoch
    _, image = committed(image, fence([(1, epoch)], image, rules()))
    accepted, image = registered(image, 1, 11)
    assert accepted.error_code == ErrorCode.NONE
    assert accepted.broker_epoch > epoch


def test_who_knows_the_epoch_noted_in_the_directory_need_not_wait() -> None:
    image = with_topic(cluster(1), led_by(0, 1))
    old_epoch = image.brokers[1].broker_epoch
    response, image = registered(image, 1, 11, previous_broker_epoch=old_epoch)
    assert response.error_code == ErrorCode.NONE
    # In one commit the old process has lost what it led, and the new one leads nothing yet.
    assert leaders(image, "t") == [(-1, 1)]
    _, image = committed(image, unfence(1, response.broker_epoch, image, rules()))
    assert leaders(image, "t") == [(1, 2)]


def test_a_late_registration_of_a_dead_predecessor_does_not_displace_the_living() -> None:
    image = cluster(1)
    first_epoch = image.brokers[1].broker_epoch
    _, image = registered(image, 1, 11, previous_broker_epoch=first_epoch)
    _, image = committed(image, unfence(1, image.brokers[1].broker_epoch, image, rules()))
    late, _ = registered(image, 1, 12, previous_broker_epoch=first_epoch)
    assert late.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"listeners": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_state": 99}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_a_registration_that_can_never_be_accepted(fields: dict[str, object], code: ErrorCode) -> None:
    response, image = registered(cluster(), 1, 10, **fields)
    assert (response.error_code, image.brokers) == (code, {})
    assert response.error_message


def test_a_broker_may_know_its_cluster() -> None:
    assert registered(cluster(), 1, 10, cluster_id=CLUSTER_ID)[0].error_code == ErrorCode.NONE


def test_a_fenced_leader_leaves_its_partitions_without_one_under_a_new_epoch_with_the_isr_kept() -> None:
    image = with_topic(cluster(1, 2), led_by(0, 1), led_by(1, 2))
    decision = fence([(1, image.brokers[1].broker_epoch)], image, rules())
    _, image = committed(image, decision)
    assert leaders(image, "t") == [(-1, 1), (2, 0)]
    assert image.topics["t"].partitions[0].isr == (1,)
    assert image.topics["t"].partitions[0].partition_epoch == 1


def test_all_late_brokers_are_marked_before_anything_is_elected() -> None:
    image = with_topic(cluster(1, 2, 3), led_by(0, 1, 2, 3))
    epochs = [(broker_id, image.brokers[broker_id].broker_epoch) for broker_id in (1, 2)]
    decision = fence(epochs, image, rules())
    kinds = [type(record) for record in decision.records]
    assert kinds == [BrokerFenced, BrokerFenced, PartitionChanged]
    assert leaders(committed(image, decision)[1], "t") == [(3, 1)]


def test_an_old_epoch_fences_nobody() -> None:
    image = cluster(1)
    assert fence([(1, image.brokers[1].broker_epoch - 1)], image, rules()).records == ()


def test_dead_is_final() -> None:
    image = cluster(1)
    epoch = image.brokers[1].broker_epoch
    _, image = committed(image, fence([(1, epoch)], image, rules(), dead=True))
    assert unfence(1, epoch, image, rules()).records == ()


def test_a_broker_that_was_fenced_by_mistake_leads_again_under_a_new_epoch() -> None:
    image = with_topic(cluster(1), led_by(0, 1))
    epoch = image.brokers[1].broker_epoch
    _, image = committed(image, fence([(1, epoch)], image, rules()))
    _, image = committed(image, unfence(1, epoch, image, rules()))
    assert leaders(image, "t") == [(1, 2)]


def test_a_broker_that_lost_its_directory_is_not_elected_where_only_it_had_the_data() -> None:
    image = with_topic(cluster(1, 2), led_by(0, 1), led_by(1, 2))
    epoch = image.brokers[1].broker_epoch
    response, image = registered(image, 1, 11, previous_broker_epoch=epoch, log_state=LogState.EMPTY)
    _, image = committed(image, unfence(1, response.broker_epoch, image, rules()))
    assert not image.brokers[1].fenced
    assert leaders(image, "t") == [(-1, 1), (2, 0)]
    assert image.topics["t"].partitions[0].data_lost


def test_an_empty_directory_with_the_known_id_has_lost_nothing() -> None:
    directory = uuid.uuid4()
    first, image = registered(cluster(), 1, 10, directory_ids=[directory])
    _, image = committed(image, unfence(1, first.broker_epoch, image, rules()))
    image = with_topic(image, led_by(0, 1))
    second, image = registered(
        image,
        1,
        11,
        directory_ids=[directory],
        previous_broker_epoch=first.broker_epoch,
        log_state=LogState.EMPTY,
    )
    _, image = committed(image, unfence(1, second.broker_epoch, image, rules()))
    assert leaders(image, "t") == [(1, 2)]


def test_another_directory_than_before_counts_as_empty() -> None:
    first, image = registered(cluster(), 1, 10, directory_ids=[uuid.uuid4()])
    _, image = committed(image, unfence(1, first.broker_epoch, image, rules()))
    image = with_topic(image, led_by(0, 1))
    _, image = registered(image, 1, 11, directory_ids=[uuid.uuid4()], previous_broker_epoch=first.broker_epoch)
    assert image.topics["t"].partitions[0].data_lost


def test_a_leader_with_a_tail_that_may_be_lost_recovers_before_it_serves() -> None:
    image = with_topic(cluster(1), led_by(0, 1))
    epoch = image.brokers[1].broker_epoch
    response, image = registered(image, 1, 11, previous_broker_epoch=epoch, log_state=LogState.UNCLEAN)
    _, image = committed(image, unfence(1, response.broker_epoch, image, rules()))
    state = image.topics["t"].partitions[0]
    assert (state.leader, state.leader_recovery_state) == (1, LeaderRecoveryState.RECOVERING)


def test_a_broker_that_stops_in_order_is_not_unfenced_by_a_late_heartbeat() -> None:
    image = with_topic(cluster(1), led_by(0, 1))
    epoch = image.brokers[1].broker_epoch
    _, image = committed(image, fence([(1, epoch)], image, rules(), shutting_down=True))
    assert image.brokers[1].shutting_down
    assert leaders(image, "t") == [(-1, 1)]
    assert unfence(1, epoch, image, rules()).records == ()


def test_a_new_controller_finishes_what_the_last_one_left_half_done() -> None:
    # A commit that was split: the broker is fenced, but its partition still names it.
    image = with_topic(cluster(1, 2), led_by(0, 1, 2), led_by(1, 2))
    image = after(image, BrokerFenced(1, image.brokers[1].broker_epoch))
    _, image = committed(image, repair(image, rules()))
    assert leaders(image, "t") == [(2, 1), (2, 0)]
    assert list(repair(image, rules()).records) == []
