"""Leases as the controller counts them: lease 2,000 ms, margin 500 ms, proof 3,000 ms."""

from __future__ import annotations

import uuid
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.controller.brokers import fence, shut_down, unfence
from appliance.controller.decisions import Decision
from appliance.controller.image import MetadataImage
from appliance.controller.leader_elections import elect_leaders
from appliance.controller.liveness import BrokerLiveness, LeaseTimers, ShutDown, Unfence
from appliance.controller.records import EarlierLeader, PartitionChanged, PartitionState, TopicCreated
from appliance.controller.standby import StandbyWatch
from appliance.wire.messages.elect_leaders import ElectLeadersRequest
from appliance.wire.messages.internal_metadata import BrokerLeaseRequest
from tests.support.metadata import after, cluster, committed, registered, rules

LEASE_MS, MARGIN_MS, PROOF_MS = 2_000, 500, 3_000
TOPIC = uuid.UUID(int=7, version=4)


def taken_over(image: MetadataImage, now_ms: int = 0) -> BrokerLiveness:
    liveness = BrokerLiveness(LeaseTimers())
    liveness.took_over(image, now_ms)
    return liveness


def beat(
    liveness: BrokerLiveness, image: MetadataImage, broker_id: int, now_ms: int, proven_ms: int = 0, **fields: Any
) -> Any:
    broker = image.brokers.get(broker_id)
    request = BrokerLeaseRequest(
        **{
            "broker_id": broker_id,
            "broker_epoch": broker.broker_epoch if broker else 0,
            "position": image.position,
            "controller_epoch": image.controller_epoch,
            **fields,
        }
    )
    return liveness.heartbeat(request, image, now_ms, proven_ms=proven_ms)


def late(liveness: BrokerLiveness, now_ms: int) -> list[int]:
    """Looked at twice, so that the time between does not look like a stall."""
    liveness._last_check_ms = now_ms - 50  # as if the tick had gone on all the time
    return [broker_id for broker_id, _ in liveness.late(now_ms)]


def test_a_broker_is_fenced_when_lease_and_margin_are_over_since_its_last_heartbeat_was_received() -> None:
    image = cluster(1, 2)
    liveness = taken_over(image)
    beat(liveness, image, 1, 1_000)
    beat(liveness, image, 2, 1_001)
    assert late(liveness, 1_000 + LEASE_MS + MARGIN_MS) == []
    assert late(liveness, 1_001 + LEASE_MS + MARGIN_MS) == [1]


def test_a_late_broker_is_named_once_and_gets_no_lease_while_its_fencing_is_committed() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    beat(liveness, image, 1, 0)
    assert late(liveness, 2_501) == [1]
    assert late(liveness, 2_502) == []
    answer = beat(liveness, image, 1, 2_503)
    assert (answer.error_code, answer.is_fenced, answer.lease_ms) == (0, True, 0)


def test_a_new_controller_lets_the_leases_of_the_old_one_run_out() -> None:
    image = cluster(1, 2)
    liveness = taken_over(image, now_ms=10_000)
    bound_ms = 10_000 + PROOF_MS + LEASE_MS + MARGIN_MS
    assert late(liveness, bound_ms) == []
    assert late(liveness, bound_ms + 1) == [1, 2]


def test_a_broker_that_knows_the_new_controller_is_judged_by_its_heartbeats() -> None:
    image = cluster(1, 2)
    liveness = taken_over(image, now_ms=10_000)
    beat(liveness, image, 1, 10_100)
    assert late(liveness, 10_100 + LEASE_MS + MARGIN_MS + 1) == [1]


def test_a_heartbeat_from_before_the_broker_knew_of_this_controller_does_not_shorten_the_wait() -> None:
    image = cluster(1)
    liveness = taken_over(image, now_ms=10_000)
    beat(liveness, image, 1, 10_100, controller_epoch=image.controller_epoch - 1)
    bound_ms = 10_000 + PROOF_MS + LEASE_MS + MARGIN_MS
    assert late(liveness, bound_ms) == []
    assert late(liveness, bound_ms + 1) == [1]


def test_a_lease_is_firm_while_the_last_proof_is_young() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    young = beat(liveness, image, 1, 3_099, proven_ms=100)
    old = beat(liveness, image, 1, 3_100, proven_ms=100)
    never = beat(liveness, image, 1, 3_101, proven_ms=-1)
    assert (young.is_firm, old.is_firm, never.is_firm) == (True, False, False)
    assert (young.is_fenced, young.lease_ms) == (False, LEASE_MS)


def test_a_registered_broker_is_unfenced_when_its_image_has_the_registration() -> None:
    _, image = registered(cluster(), 1, 10)
    liveness = taken_over(image)
    assert beat(liveness, image, 1, 0, position=image.position - 1).is_fenced
    assert beat(liveness, image, 1, 0) == Unfence()
    _, image = committed(image, unfence(1, image.brokers[1].broker_epoch, image, rules()))
    liveness.image_changed(image, 100)
    assert not beat(liveness, image, 1, 100).is_fenced


def test_a_broker_that_was_just_unfenced_has_time_for_its_next_heartbeat() -> None:
    _, image = registered(cluster(), 1, 10)
    liveness = taken_over(image)
    _, image = committed(image, unfence(1, image.brokers[1].broker_epoch, image, rules()))
    liveness.image_changed(image, 1_000)
    assert late(liveness, 1_000 + LEASE_MS + MARGIN_MS) == []
    assert late(liveness, 1_001 + LEASE_MS + MARGIN_MS) == [1]


def test_an_unknown_or_an_old_epoch_is_told_so() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    assert beat(liveness, image, 9, 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert beat(liveness, image, 1, 0, broker_epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_late_heartbeat_does_not_raise_the_dead() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    beat(liveness, image, 1, 0)
    dead = liveness.died(1, image.brokers[1].broker_epoch)
    assert dead == [(1, image.brokers[1].broker_epoch)]
    _, image = committed(image, fence(dead, image, rules(), dead=True))
    liveness.image_changed(image, 1)
    assert beat(liveness, image, 1, 2).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert liveness.died(1, image.brokers[1].broker_epoch) == []


def test_the_end_of_an_earlier_process_says_nothing_about_this_one() -> None:
    image = cluster(1)
    assert taken_over(image).died(1, image.brokers[1].broker_epoch - 1) == []


def test_a_controller_that_stood_still_reads_its_sockets_before_it_fences() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    beat(liveness, image, 1, 0)
    liveness._last_check_ms = 2_400  # as if the tick had gone on until then
    assert liveness.late(4_000) == []
    assert [broker_id for broker_id, _ in liveness.late(4_450)] == []
    assert [broker_id for broker_id, _ in liveness.late(4_550)] == [1]


def test_a_broker_that_wants_to_stop_and_leads_nothing_is_fenced_and_then_let_go() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    assert beat(liveness, image, 1, 0, want_shut_down=True) == ShutDown()
    _, image = committed(image, shut_down(1, image.brokers[1].broker_epoch, image, rules()))
    liveness.image_changed(image, 10)
    answer = beat(liveness, image, 1, 10, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)


def led(image: MetadataImage, *states: PartitionState) -> MetadataImage:
    return after(image, TopicCreated("t", TOPIC), *(PartitionChanged(TOPIC, state) for state in states))


def settled(liveness: BrokerLiveness, image: MetadataImage, decision: Decision, now_ms: int) -> MetadataImage:
    """The image after the decision, with the liveness told of its commit."""
    _, image = committed(image, decision)
    liveness.committed(image.position, decision.records, now_ms)
    liveness.image_changed(image, now_ms)
    return image


def test_a_broker_that_stops_is_let_go_when_the_others_know_what_it_handed_over() -> None:
    image = led(cluster(1, 2, 3), PartitionState(0, 1, 0, 0, (1, 2, 3), (1, 2, 3)))
    liveness = taken_over(image)
    for broker_id in (1, 2, 3):
        beat(liveness, image, broker_id, 0)
    before = image.position
    image = settled(liveness, image, shut_down(1, image.brokers[1].broker_epoch, image, rules()), 10)
    assert (image.topics["t"].partitions[0].leader, image.topics["t"].partitions[0].isr) == (2, (2, 3))
    beat(liveness, image, 2, 20)
    still = beat(liveness, image, 1, 30, want_shut_down=True)
    assert (still.is_fenced, still.should_shut_down, still.lease_ms) == (False, False, LEASE_MS)
    beat(liveness, image, 3, 40, position=before)
    assert not beat(liveness, image, 1, 50, want_shut_down=True).should_shut_down
    beat(liveness, image, 3, 60)
    assert beat(liveness, image, 1, 70, want_shut_down=True) == ShutDown()


def test_a_broker_that_stops_leads_on_where_a_replica_that_lives_may_still_catch_up() -> None:
    image = led(cluster(1, 2), PartitionState(0, 1, 0, 0, (1, 2), (1,)))
    liveness = taken_over(image)
    image = settled(liveness, image, shut_down(1, image.brokers[1].broker_epoch, image, rules()), 10)
    beat(liveness, image, 2, 20)
    answer = beat(liveness, image, 1, 30, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert image.topics["t"].partitions[0].leader == 1


def test_a_broker_that_does_not_hear_of_a_leadership_it_lost_gets_no_lease() -> None:
    """Rule B9."""
    image = led(cluster(1, 2), PartitionState(0, 2, 0, 0, (1, 2), (1, 2)))
    liveness = taken_over(image)
    before = image.position
    beat(liveness, image, 2, 0)
    moved = elect_leaders(ElectLeadersRequest(topic_partitions=None), image, rules())
    image = settled(liveness, image, moved, 1_000)
    assert image.topics["t"].partitions[0].earlier_leaders == (
        EarlierLeader(2, image.brokers[2].broker_epoch, live=True, commit=image.position),
    )
    within = beat(liveness, image, 2, 1_000 + LEASE_MS, position=before)
    after_it = beat(liveness, image, 2, 1_001 + LEASE_MS, position=before)
    assert (within.lease_ms, after_it.lease_ms, after_it.error_code) == (LEASE_MS, 0, 0)
    assert beat(liveness, image, 2, 1_002 + LEASE_MS).lease_ms == LEASE_MS
    # The refused heartbeat did not count: its bound is that of the one before.
    assert late(liveness, 1_002 + 2 * LEASE_MS + MARGIN_MS) == [1]


def test_a_fenced_broker_is_unfenced_only_with_an_image_that_shows_who_took_over() -> None:
    image = led(cluster(1, 2), PartitionState(0, 1, 0, 0, (1, 2), (1, 2)))
    liveness = taken_over(image)
    before = image.position
    beat(liveness, image, 1, 0)
    image = settled(liveness, image, fence([(1, image.brokers[1].broker_epoch)], image, rules()), 2_600)
    assert beat(liveness, image, 1, 2_700, position=before).lease_ms == 0
    assert beat(liveness, image, 1, 2_800) == Unfence()


def test_a_new_controller_knows_from_the_image_who_may_not_have_heard() -> None:
    image = led(cluster(1, 2), PartitionState(0, 1, 0, 0, (1, 2), (1, 2)))
    before = image.position
    _, image = committed(image, fence([(1, image.brokers[1].broker_epoch)], image, rules()))
    liveness = taken_over(image)
    assert beat(liveness, image, 1, 0, position=before).lease_ms == 0
    assert beat(liveness, image, 1, 0) == Unfence()


def test_the_age_of_the_last_heartbeat_is_known() -> None:
    image = cluster(1)
    liveness = taken_over(image)
    assert liveness.age_ms(1, 100) == -1
    beat(liveness, image, 1, 100)
    assert liveness.age_ms(1, 350) == 250


def test_a_standby_claims_when_the_active_controller_is_gone_or_silent_for_long() -> None:
    watch = StandbyWatch(takeover_ms=2_000, heard_ms=0)
    assert watch.should_claim(100, refused=True)
    assert not watch.should_claim(1_999, refused=False)
    watch.answered(1_999)
    assert not watch.should_claim(3_998, refused=False)
    assert watch.should_claim(3_999, refused=False)
