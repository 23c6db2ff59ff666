"""Who leads, who is in sync and who may be elected when brokers come and go (rules B3, B10, C5, P9, P10)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from appliance.controller.brokers import fence, may_stop, shut_down, unfence, unregister
from appliance.controller.configs import alter_incrementally
from appliance.controller.decisions import Rules
from appliance.controller.elections import is_unclean
from appliance.controller.image import MetadataImage
from appliance.controller.isr import alter_partition
from appliance.controller.leader_elections import elect_leaders
from appliance.controller.records import (
    NO_LEADER,
    BrokerFenced,
    BrokerShuttingDown,
    BrokerUnregistered,
    EarlierLeader,
    LeaderRecoveryState,
    LogState,
    PartitionChanged,
    PartitionState,
    TopicConfigSet,
    TopicCreated,
    commit_number_of,
)
from appliance.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from appliance.wire.messages.elect_leaders import ElectLeadersRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.metadata import after, cluster, committed, registered, rules

TOPIC = uuid.UUID(int=7, version=4)
DURABLE = {"min.insync.replicas": "2"}


def with_partition(*broker_ids: int, configs: dict[str, str] | None = None, **fields: Any) -> MetadataImage:
    """One partition on these brokers, led by the first, all in sync unless the fields say otherwise."""
    values: dict[str, Any] = {"leader": broker_ids[0], "replicas": broker_ids, "isr": broker_ids, **fields}
    state = PartitionState(partition=0, leader_epoch=0, partition_epoch=0, **values)
    settings = [TopicConfigSet(TOPIC, key, value) for key, value in (configs or DURABLE).items()]
    return after(cluster(*broker_ids), TopicCreated("t", TOPIC), *settings, PartitionChanged(TOPIC, state))


def state_of(image: MetadataImage) -> PartitionState:
    return image.topics["t"].partitions[0]


def lose(image: MetadataImage, *broker_ids: int, dead: bool = False) -> MetadataImage:
    brokers = [(broker_id, image.brokers[broker_id].broker_epoch) for broker_id in broker_ids]
    return committed(image, fence(brokers, image, rules(), dead=dead))[1]


def back(image: MetadataImage, broker_id: int, log_state: LogState = LogState.SAME_BOOT) -> MetadataImage:
    """A new process of the broker registers."""
    response, image = registered(
        image,
        broker_id,
        image.position + 100,
        previous_broker_epoch=image.brokers[broker_id].broker_epoch,
        log_state=log_state,
    )
    assert response.error_code == 0
    return image


def up(image: MetadataImage, broker_id: int, chosen: Rules | None = None) -> MetadataImage:
    epoch = image.brokers[broker_id].broker_epoch
    return committed(image, unfence(broker_id, epoch, image, chosen or rules()))[1]


def test_a_dead_leader_is_replaced_from_the_isr_and_leaves_it_in_the_same_commit() -> None:
    image = lose(with_partition(1, 2, 3), 1)
    state = state_of(image)
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 1, 1)
    assert (state.isr, state.elr) == ((2, 3), ())


def test_who_leaves_while_too_few_stay_is_eligible() -> None:
    image = lose(with_partition(1, 2, 3), 1)
    image = lose(image, 3)
    assert (state_of(image).isr, state_of(image).elr) == ((2,), (3,))
    assert state_of(image).leader_epoch == 1, "the leader stayed"


def test_enough_in_sync_again_empty_the_elr() -> None:
    image = lose(with_partition(1, 2, 3, isr=(1, 2)), 2)
    assert state_of(image).elr == (2,)
    members = [BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch) for b in (1, 3)]
    data = PartitionData(partition_epoch=state_of(image).partition_epoch, new_isr_with_epochs=members)
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].broker_epoch,
        topics=[TopicData(topic_id=TOPIC, partitions=[data])],
    )
    _, image = committed(image, alter_partition(request, image, rules()))
    assert (state_of(image).isr, state_of(image).elr) == ((1, 3), ())


def test_the_last_member_of_the_isr_is_never_removed_and_all_of_them_stay_when_all_die() -> None:
    image = lose(with_partition(1, 2, 3), 1, 2, 3)
    state = state_of(image)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (NO_LEADER, 1, (1, 2, 3), ())
    image = up(back(image, 2), 2)
    assert (state_of(image).leader, state_of(image).isr, state_of(image).elr) == (2, (2,), (1, 3))


def test_the_elr_leads_when_the_isr_cannot() -> None:
    image = lose(with_partition(1, 2, 3, isr=(1, 2)), 2)
    image = lose(image, 1)
    assert (state_of(image).leader, state_of(image).isr, state_of(image).elr) == (NO_LEADER, (1,), (2,))
    image = up(back(image, 2), 2)
    state = state_of(image)
    assert (state.leader, state.isr, state.elr) == (2, (2,), (1,))
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_who_was_never_in_sync_is_not_elected() -> None:
    image = lose(with_partition(1, 2, 3, isr=(1,)), 1)
    assert (state_of(image).leader, state_of(image).isr) == (NO_LEADER, (1,))


def test_an_unclean_election_happens_at_once_where_one_replica_lives() -> None:
    configs = {**DURABLE, "unclean.leader.election.enable": "true"}
    before = with_partition(1, 2, isr=(1,), configs=configs)
    image = lose(before, 1)
    state = state_of(image)
    assert (state.leader, state.isr, state.elr) == (2, (2,), ())
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert is_unclean(state_of(before), state)


def test_an_operator_allows_an_unclean_election_and_the_partition_comes_back() -> None:
    image = lose(with_partition(1, 2, isr=(1,)), 1)
    resource = AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    _, image = committed(image, alter_incrementally(request, image, rules()))
    assert state_of(image).leader == 2


@pytest.mark.parametrize("resource", [(2, "t"), (4, "")])
def test_another_min_insync_replicas_empties_the_elr(resource: tuple[int, str]) -> None:
    configs = DURABLE if resource[0] == 2 else {"retention.ms": "-1"}
    image = with_partition(1, 2, 3, isr=(1,), elr=(2,), configs=configs)
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[AlterableConfig(name="min.insync.replicas", config_operation=0, value="3")],
            )
        ]
    )
    _, image = committed(image, alter_incrementally(request, image, rules()))
    assert state_of(image).elr == ()


@pytest.mark.parametrize("log_state", [LogState.UNCLEAN, LogState.EMPTY])
def test_a_broker_that_may_lack_records_is_in_sync_nowhere_where_another_is(log_state: LogState) -> None:
    image = lose(with_partition(1, 2, 3), 1, 2, 3)
    image = back(image, 1, log_state)
    assert (state_of(image).isr, state_of(image).elr) == ((2, 3), ())
    image = back(image, 2, log_state)
    assert (state_of(image).isr, state_of(image).elr) == ((3,), ())
    assert state_of(up(image, 1)).leader == NO_LEADER


@pytest.mark.parametrize("log_state", [LogState.UNCLEAN, LogState.EMPTY])
def test_the_elr_takes_the_place_of_an_isr_that_may_lack_records(log_state: LogState) -> None:
    image = lose(with_partition(1, 2, 3, isr=(1, 2)), 2)
    image = back(lose(image, 1), 1, log_state)
    assert (state_of(image).isr, state_of(image).elr) == ((2,), ())
    assert state_of(up(image, 1)).leader == NO_LEADER
    assert state_of(up(back(image, 2), 2)).leader == 2


def test_a_replica_that_lost_its_tail_is_not_eligible_any_more() -> None:
    image = lose(with_partition(1, 2, 3, isr=(1, 2)), 2)
    image = back(image, 2, LogState.UNCLEAN)
    assert state_of(image).elr == ()


def test_a_sound_log_stays_eligible_over_a_restart() -> None:
    image = lose(with_partition(1, 2, 3, isr=(1, 2)), 2)
    image = up(back(image, 2), 2)
    assert (state_of(image).isr, state_of(image).elr) == ((1,), (2,))
    assert state_of(lose(image, 1)).leader == 2


def test_the_only_one_with_a_tail_that_may_be_lost_leads_and_repairs_first() -> None:
    image = lose(with_partition(1, 2, isr=(1,), configs={"min.insync.replicas": "1"}), 1)
    image = up(back(image, 1, LogState.UNCLEAN), 1)
    assert state_of(image).leader == 1
    assert state_of(image).leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_who_has_caught_up_since_its_crash_has_nothing_to_repair() -> None:
    image = up(back(lose(with_partition(1, 2), 2), 2, LogState.UNCLEAN), 2)
    assert state_of(image).isr == (1,)
    members = [BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch) for b in (1, 2)]
    data = PartitionData(partition_epoch=state_of(image).partition_epoch, new_isr_with_epochs=members)
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].broker_epoch,
        topics=[TopicData(topic_id=TOPIC, partitions=[data])],
    )
    _, image = committed(image, alter_partition(request, image, rules()))
    assert state_of(image).isr == (1, 2)
    state = state_of(lose(image, 1))
    assert (state.leader, state.isr) == (2, (2,))
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_partition_whose_only_data_is_gone_waits_for_an_operator() -> None:
    configs = {"unclean.leader.election.enable": "true"}
    image = lose(with_partition(1, isr=(1,), configs=configs), 1)
    image = up(back(image, 1, LogState.EMPTY), 1)
    assert (state_of(image).leader, state_of(image).data_lost) == (NO_LEADER, True)
    preferred, _ = committed(image, elect_leaders(ElectLeadersRequest(topic_partitions=None), image, rules()))
    assert preferred.replica_election_results[0].partition_result[0].error_code != 0
    request = ElectLeadersRequest(election_type=1, topic_partitions=None)
    response, image = committed(image, elect_leaders(request, image, rules()))
    assert [row.error_code for row in response.replica_election_results[0].partition_result] == [0]
    state = state_of(image)
    assert (state.leader, state.isr, state.data_lost) == (1, (1,), False)
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_a_broker_that_moved_to_another_machine_with_an_empty_directory_is_refilled() -> None:
    image = lose(with_partition(1, 2, 3), 1)
    image = up(back(image, 1, LogState.EMPTY), 1)
    assert (state_of(image).leader, state_of(image).isr) == (2, (2, 3))
    assert 1 in state_of(image).replicas


def test_who_may_not_know_yet_that_it_is_replaced_is_remembered() -> None:
    image = with_partition(1, 2, 3)
    epochs = {b: image.brokers[b].broker_epoch for b in (1, 2, 3)}
    image = lose(image, 1)
    first = EarlierLeader(1, epochs[1], live=False, commit=image.position)
    assert state_of(image).earlier_leaders == (first,)
    image = lose(image, 2)
    second = EarlierLeader(2, epochs[2], live=False, commit=image.position)
    assert state_of(image).earlier_leaders == (first, second)


def test_the_dead_are_not_waited_for() -> None:
    assert state_of(lose(with_partition(1, 2, 3), 1, dead=True)).earlier_leaders == ()


def test_who_has_said_that_it_knows_or_registered_anew_is_forgotten() -> None:
    image = lose(with_partition(1, 2, 3), 1)
    position, epoch = image.position, image.brokers[1].broker_epoch
    knows = Rules(rules().config, rules().randomness, positions={(1, epoch): position})
    lagging = Rules(rules().config, rules().randomness, positions={(1, epoch): position - 1})
    two = [(2, image.brokers[2].broker_epoch)]
    assert [e.broker_id for e in state_of(committed(image, fence(two, image, knows))[1]).earlier_leaders] == [2]
    assert [e.broker_id for e in state_of(committed(image, fence(two, image, lagging))[1]).earlier_leaders] == [1, 2]
    image = back(image, 1)
    assert [e.broker_id for e in state_of(lose(image, 2)).earlier_leaders] == [2]


def test_a_leader_that_gets_its_partition_back_is_not_waited_for() -> None:
    image = lose(with_partition(1, 2), 1)
    image = up(image, 1)
    image = lose(image, 2)
    image = up(image, 2)
    assert all(e.broker_id != state_of(image).leader for e in state_of(image).earlier_leaders)


def test_a_broker_that_stops_hands_over_all_it_leads_in_one_commit() -> None:
    image = with_partition(1, 2, 3)
    decision = shut_down(1, image.brokers[1].broker_epoch, image, rules())
    assert [type(record) for record in decision.records] == [BrokerShuttingDown, PartitionChanged]
    _, image = committed(image, decision)
    state = state_of(image)
    assert (state.leader, state.isr, state.elr) == (2, (2, 3), ())
    assert state.earlier_leaders[0].live
    assert commit_number_of(image.position << 20) == state.earlier_leaders[0].commit
    assert not image.brokers[1].fenced
    assert image.brokers[1].shutting_down
    _, image = committed(image, shut_down(1, image.brokers[1].broker_epoch, image, rules()))
    assert image.brokers[1].fenced


def test_the_last_in_sync_leads_to_its_end_and_a_broker_alone_does_not_wait() -> None:
    image = with_partition(1, 2, isr=(1,))
    _, image = committed(image, shut_down(1, image.brokers[1].broker_epoch, image, rules()))
    assert (state_of(image).leader, state_of(image).isr) == (1, (1,))
    assert not may_stop(1, image)
    assert may_stop(1, lose(image, 2))
    alone = with_partition(1)
    decision = shut_down(1, alone.brokers[1].broker_epoch, alone, rules())
    assert [type(record) for record in decision.records] == [BrokerFenced, PartitionChanged]
    _, alone = committed(alone, decision)
    assert (alone.brokers[1].fenced, alone.brokers[1].shutting_down, state_of(alone).isr) == (True, True, (1,))


def test_brokers_that_stop_one_after_the_other_do_not_wait_for_each_other() -> None:
    image = with_partition(1, 2, 3)
    for broker_id in (1, 2, 3):
        _, image = committed(image, shut_down(broker_id, image.brokers[broker_id].broker_epoch, image, rules()))
        assert may_stop(broker_id, image)
    assert state_of(image).isr == (3,)
    assert state_of(image).elr == (2,), "1 left while two stayed: it may lack what came after"


def test_who_stops_may_not_join_an_isr() -> None:
    image = with_partition(1, 2, 3, isr=(1, 2))
    _, image = committed(image, shut_down(3, image.brokers[3].broker_epoch, image, rules()))
    members = [BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch) for b in (1, 2, 3)]
    data = PartitionData(partition_epoch=state_of(image).partition_epoch, new_isr_with_epochs=members)
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].broker_epoch,
        topics=[TopicData(topic_id=TOPIC, partitions=[data])],
    )
    response, _ = committed(image, alter_partition(request, image, rules()))
    assert response.topics[0].partitions[0].error_code != 0


def test_a_broker_that_is_gone_for_good_is_unregistered_and_a_living_one_is_not() -> None:
    image = with_partition(1, 2, 3)
    refused, image = committed(image, unregister(UnregisterBrokerRequest(broker_id=1), image, rules()))
    assert refused.error_code
    assert refused.error_message
    image = lose(image, 1, 2, 3)
    decision = unregister(UnregisterBrokerRequest(broker_id=1), image, rules())
    assert type(decision.records[0]) is BrokerUnregistered
    response, image = committed(image, decision)
    assert (response.error_code, sorted(image.brokers)) == (0, [2, 3])
    again, _ = committed(image, unregister(UnregisterBrokerRequest(broker_id=1), image, rules()))
    assert again.error_code
    assert state_of(up(back(image, 2), 2)).leader == 2
