"""Random events, each decided and committed: what must hold of every image (invariants 2, 4 as to ISR and ELR, and 9).

Beside the image the world keeps books of logs: who holds how many records of each partition, as followers that fetch
and hosts that crash would have it. So a decision that elects somebody who lacks an acknowledged record is noticed.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from appliance.base.randomness import SeededRandomness
from appliance.controller import brokers, elections, isr, leader_elections, partitions, reassignments, topics
from appliance.controller.commits import NO_NONCE, Snapshot
from appliance.controller.configs import alter_incrementally
from appliance.controller.decisions import Decision, Rules
from appliance.controller.image import MetadataImage, TopicState
from appliance.controller.producer_ids import allocate_producer_ids
from appliance.controller.records import NO_LEADER, BrokerFenced, LogState, PartitionState
from appliance.controller.snapshots import load_snapshot, snapshot_body
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from appliance.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from appliance.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from appliance.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.messages.elect_leaders import ElectLeadersRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.metadata import cluster, committed, registration, rules
from tests.support.seeds import seeds

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
STEPS = 120
VARIANT_SEEDS = 60
Part = tuple[uuid.UUID, int]


@dataclass
class Logs:
    """How long each replica's log is, and how far each partition is acknowledged to acks=all."""

    ends: dict[tuple[Part, int], int] = field(default_factory=dict)
    acknowledged: dict[Part, int] = field(default_factory=dict)
    excused: set[Part] = field(default_factory=set)
    """Partitions that gave records up: an unclean election, or all copies lost."""

    def end(self, part: Part, broker_id: int) -> int:
        return self.ends.get((part, broker_id), 0)

    def crash(self, broker_id: int, log_state: LogState, chance: random.Random) -> None:
        """What a broker that registers has lost."""
        for key in [key for key in self.ends if key[1] == broker_id]:
            if log_state is LogState.EMPTY:
                del self.ends[key]
            elif log_state is LogState.UNCLEAN:
                self.ends[key] = chance.randrange(self.ends[key] + 1)

    def work(self, image: MetadataImage, least_of: Callable[[TopicState], int], chance: random.Random) -> None:
        """Leaders append, followers fetch, high watermarks move: a little everywhere."""
        for topic in image.topics.values():
            for state in topic.partitions:
                part = (topic.topic_id, state.partition)
                leader = state.leader
                if leader == NO_LEADER:
                    continue
                self.ends[part, leader] = self.end(part, leader) + chance.randrange(5)
                for b in state.replicas:
                    broker = image.brokers.get(b)
                    if b == leader or broker is None or broker.fenced or chance.random() < 0.3:
                        continue
                    # Truncated to what the leader has, then copied on.
                    mine = min(self.end(part, b), self.end(part, leader))
                    self.ends[part, b] = chance.randrange(mine, self.end(part, leader) + 1)
                if len(state.isr) >= min(least_of(topic), len(state.replicas)):
                    reached = min(self.end(part, b) for b in {*state.isr, leader})
                    self.acknowledged[part] = max(self.acknowledged.get(part, 0), reached)


class Days:
    """Chooses what happens next."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.positions: dict[tuple[int, int], int] = {}
        self.rules: Rules = Rules(rules(seed).config, SeededRandomness(seed), self.positions)
        self.incarnations = 100
        self.logs = Logs()
        self.unknowing: dict[Part, dict[tuple[int, int], int]] = {}
        """By broker id and epoch: the commit that took the partition from it, while it may believe that it leads."""
        self.by_operator = False
        """The last event was an unclean election that an operator asked for."""

    def event(self, image: MetadataImage) -> Decision:
        chance, broker_id, name = self.random, self.random.choice(BROKERS), self.random.choice(TOPICS)
        known = image.brokers.get(broker_id)
        self.by_operator = False
        self._beat(image)
        match chance.randrange(18):
            case 0 | 1:
                return self._register(broker_id, image)
            case 2 if known:
                late = [(b.broker_id, b.broker_epoch) for b in image.live_brokers() if chance.random() < 0.5]
                return brokers.fence(late, image, self.rules, dead=chance.random() < 0.3)
            case 3 if known:
                return brokers.shut_down(broker_id, known.broker_epoch, image, self.rules)
            case 4 | 5 | 6 if known:
                return brokers.unfence(broker_id, known.broker_epoch, image, self.rules)
            case 7:
                return self._create(name, image)
            case 8 if chance.random() < 0.3:
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
                return topics.delete_topics(request, image, self.rules)
            case 9:
                more = CreatePartitionsTopic(name=name, count=chance.randrange(1, 9), assignments=None)
                return partitions.create_partitions(CreatePartitionsRequest(topics=[more]), image, self.rules)
            case 10 if known:
                request_ids = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=known.broker_epoch)
                return allocate_producer_ids(request_ids, image)
            case 11 | 12 | 13 if name in image.topics:
                return self._alter(name, image)
            case 14 if name in image.topics:
                return self._reassign(name, image)
            case 15:
                self.by_operator = chance.random() < 0.2
                elect = ElectLeadersRequest(election_type=int(self.by_operator), topic_partitions=None)
                return leader_elections.elect_leaders(elect, image, self.rules)
            case 16 if name in image.topics:
                return self._configure(name, image)
            case 17 if chance.random() < 0.1:
                return brokers.unregister(UnregisterBrokerRequest(broker_id=broker_id), image, self.rules)
            case _:
                return leader_elections.rebalance_leaders(image, self.rules)

    def _beat(self, image: MetadataImage) -> None:
        """Some brokers have said how far their images are."""
        for broker in image.brokers.values():
            if self.random.random() < 0.1:
                self.positions[broker.broker_id, broker.broker_epoch] = image.position

    def _register(self, broker_id: int, image: MetadataImage) -> Decision:
        self.incarnations += 1
        known = image.brokers.get(broker_id)
        previous = known.broker_epoch if known and self.random.random() < 0.7 else -1
        state = self.random.choice([LogState.CLEAN, LogState.SAME_BOOT, LogState.SAME_BOOT, *LogState])
        request = registration(broker_id, self.incarnations, previous_broker_epoch=previous, log_state=state)
        decision = brokers.register(request, image, self.rules)
        if decision.records:
            self.logs.crash(broker_id, state, self.random)
        return decision

    def _create(self, name: str, image: MetadataImage) -> Decision:
        topic = CreatableTopic(
            name=name,
            num_partitions=self.random.randrange(1, 6),
            replication_factor=self.random.choice([-1, 2, 3, 3]),
            configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(self.random.choice([1, 2, 2])))],
        )
        return topics.create_topics(CreateTopicsRequest(topics=[topic]), image, self.rules)

    def _alter(self, name: str, image: MetadataImage) -> Decision:
        """A leader asks as a leader does: who has all that is acknowledged may join, others leave."""
        topic = image.topics[name]
        state = self.random.choice(topic.partitions)
        part, leader = (topic.topic_id, state.partition), state.leader
        acknowledged = self.logs.acknowledged.get(part, 0)
        members = [
            b
            for b in state.replicas
            if b in image.brokers
            and (b == leader or (self.logs.end(part, b) >= acknowledged and self.random.random() < 0.8))
        ]
        sender = leader if leader != NO_LEADER else self.random.choice(BROKERS)
        if sender not in image.brokers:
            return Decision()
        data = PartitionData(
            partition_index=state.partition,
            leader_epoch=state.leader_epoch - (self.random.random() < 0.1),
            partition_epoch=state.partition_epoch - (self.random.random() < 0.1),
            leader_recovery_state=int(state.leader_recovery_state) if self.random.random() < 0.2 else 0,
            new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch) for b in members],
        )
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=image.brokers[sender].broker_epoch,
            topics=[TopicData(topic_id=topic.topic_id, partitions=[data])],
        )
        return isr.alter_partition(request, image, self.rules)

    def _reassign(self, name: str, image: MetadataImage) -> Decision:
        state = self.random.choice(image.topics[name].partitions)
        target = self.random.sample(BROKERS, self.random.randrange(1, 4)) if self.random.random() < 0.7 else None
        row = ReassignablePartition(partition_index=state.partition, replicas=target)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[row])])
        return reassignments.alter_reassignments(request, image, self.rules)

    def _configure(self, name: str, image: MetadataImage) -> Decision:
        value = self.random.choice(["1", "2", "3"])
        entry = AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[entry])
        return alter_incrementally(IncrementalAlterConfigsRequest(resources=[resource]), image, self.rules)


def check_brokers(after: MetadataImage, epochs: dict[int, uuid.UUID]) -> None:
    for broker in after.brokers.values():
        assert epochs.setdefault(broker.broker_epoch, broker.incarnation_id) == broker.incarnation_id
        assert not (broker.dead and not broker.fenced)


def check_partition(after: MetadataImage, topic: TopicState, state: PartitionState, least: int) -> None:
    assert state.isr, "the last member of an ISR is never removed"
    assert len(set(state.replicas)) == len(state.replicas)
    assert {*state.isr, *state.elr} <= set(state.replicas)
    assert not set(state.isr) & set(state.elr)
    assert {*state.adding, *state.removing} <= set(state.replicas)
    assert not state.elr or len(state.isr) < min(least, len(state.replicas))
    assert state.leader == NO_LEADER or state.leader in state.isr
    assert state.leader == NO_LEADER or not after.brokers[state.leader].fenced
    if state.leader != NO_LEADER:
        assert all(not after.brokers[b].fenced for b in state.isr), "who is fenced keeps acks=all waiting"
    assert not (state.data_lost and state.leader != NO_LEADER)
    assert len({e.broker_id for e in state.earlier_leaders}) == len(state.earlier_leaders)
    assert all(0 <= e.commit <= after.position for e in state.earlier_leaders)


def check_change(old: PartitionState, new: PartitionState) -> None:
    assert new.partition_epoch == old.partition_epoch + 1
    # A leader epoch has one leader: another leader, another epoch.
    became_lost = new.data_lost and not old.data_lost
    assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader or became_lost)


def check_earlier_leaders(days: Days, part: Part, before: MetadataImage, after: MetadataImage) -> None:
    """Rule P1: whoever may still believe that it leads is remembered, for as long as it may."""
    new, old = after.partition_by_id(*part), before.partition_by_id(*part)
    unknowing = days.unknowing.setdefault(part, {})
    assert new is not None
    if old is not None and old.leader not in (NO_LEADER, new.leader):
        was = before.brokers[old.leader]
        unknowing[old.leader, was.broker_epoch] = after.position
    for broker_id, epoch in list(unknowing):
        now = after.brokers.get(broker_id)
        gone = now is not None and (now.dead or now.broker_epoch != epoch)
        knows = days.positions.get((broker_id, epoch), -1) >= unknowing[broker_id, epoch]
        if gone or knows or broker_id == new.leader:
            del unknowing[broker_id, epoch]
    remembered = {(e.broker_id, e.broker_epoch) for e in new.earlier_leaders}
    assert set(unknowing) <= remembered, f"{set(unknowing) - remembered} may still lead {part[1]}"


def check(before: MetadataImage, after: MetadataImage, epochs: dict[int, uuid.UUID], days: Days) -> None:
    check_brokers(after, epochs)
    outcome = elections.Outcome(after, days.rules)
    for topic in after.topics.values():
        assert after.topics_by_id[topic.topic_id] is topic
        old = before.topics_by_id.get(topic.topic_id)
        for number, state in enumerate(topic.partitions):
            assert state.partition == number
            check_partition(after, topic, state, outcome.min_insync_replicas(topic))
            if old is not None and number < len(old.partitions) and old.partitions[number] is not state:
                check_change(old.partitions[number], state)
            check_earlier_leaders(days, (topic.topic_id, number), before, after)
            check_logs(days, (topic.topic_id, number), state)
    assert len(after.topics) == len(after.topics_by_id)
    assert after.next_producer_id >= before.next_producer_id


def check_logs(days: Days, part: Part, state: PartitionState) -> None:
    """Invariant 4: what is acknowledged is in the log of every member of ISR and ELR, and so of every leader."""
    logs = days.logs
    acknowledged = logs.acknowledged.get(part, 0)
    keepers = (*state.isr, *state.elr)
    lost = [b for b in keepers if logs.end(part, b) < acknowledged]
    if not lost:
        return
    if days.by_operator or state.data_lost or state.leader_recovery_state or _alone(days, part, state):
        # The replication factor promised no more than one copy, or an operator gave the others up.
        logs.acknowledged[part] = min(logs.end(part, b) for b in keepers)
        return
    raise AssertionError(f"{part[1]}: {acknowledged} are acknowledged, {lost} of {keepers} have less")


def _alone(days: Days, part: Part, state: PartitionState) -> bool:
    """Every copy that could be elected has crashed since: only the last one is left, and leads."""
    return len(state.isr) == 1 and not state.elr and part in days.logs.excused


def run(seed: int) -> MetadataImage:
    """One seed's days; raises AssertionError that names it."""
    days, image, epochs = Days(seed), cluster(*BROKERS[:3]), dict[int, uuid.UUID]()
    for step in range(STEPS):
        before = image
        outcome = elections.Outcome(image, days.rules)
        days.logs.work(image, outcome.min_insync_replicas, days.random)
        decision = days.event(image)
        _, image = committed(image, decision)
        _excuse(days, before, image)
        try:
            check(before, image, epochs, days)
            assert not list(brokers.repair(image, days.rules).records), "something was due"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {step}: {error}") from error
    return image


def _excuse(days: Days, before: MetadataImage, after: MetadataImage) -> None:
    """Rule B3: a host that lost its tail while nobody else was in sync or eligible."""
    for broker_id, broker in after.brokers.items():
        old = before.brokers.get(broker_id)
        if old is not None and old.broker_epoch == broker.broker_epoch:
            continue
        if broker.log_state not in (LogState.UNCLEAN, LogState.EMPTY):
            continue
        for topic in after.topics.values():
            for state in topic.partitions:
                if state.isr == (broker_id,) and not state.elr:
                    days.logs.excused.add((topic.topic_id, state.partition))


@pytest.mark.parametrize("seed", seeds(40))
def test_every_image_is_sound(seed: int) -> None:
    image = run(seed)
    body = snapshot_body(image, ())
    assert load_snapshot(Snapshot(image.position, 1, 1, 0, NO_NONCE, body))[0] == image


def _keeps_after_a_crash(partition: PartitionState, broker_id: int, log_state: LogState) -> PartitionState:
    return partition


def _leads_although_the_elr_has_more(partition: PartitionState, broker_id: int, log_state: LogState) -> PartitionState:
    """The broker goes from ISR and ELR as it should, but not where it is the last of the ISR."""
    elr = tuple(b for b in partition.elr if b != broker_id)
    rest = tuple(b for b in partition.isr if b != broker_id)
    return msgspec.structs.replace(partition, isr=rest or partition.isr, elr=elr)


def _only_the_last(outcome: Any, leader: int, before: PartitionState) -> Any:
    return _earlier_leaders(outcome, leader, before)[-1:]


def _elr_of_all_who_leave(outcome: Any, topic: TopicState, before: PartitionState, state: PartitionState) -> Any:
    """Also of those who left while enough stayed: acknowledgements go on without them."""
    left = tuple(b for b in state.replicas if b in {*before.isr, *before.elr} and b not in state.isr)
    return left if len(state.isr) < min(outcome.min_insync_replicas(topic), len(state.replicas)) or left else ()


def _first_that_lives(
    outcome: Any, topic: TopicState, before: PartitionState, state: PartitionState, prefer: int, unclean: bool
) -> Any:
    chosen = next((b for b in state.replicas if outcome.may_lead(b)), NO_LEADER)
    isr = state.isr if chosen in state.isr or chosen == NO_LEADER else (chosen,)
    return chosen, msgspec.structs.replace(state, isr=isr)


def _one_by_one(broker_epochs: Any, image: MetadataImage, rules: Rules, **kind: bool) -> Decision:
    """Rule C5 broken: elections for each late broker, while the others are not marked yet."""
    records: list[Any] = []
    for broker_id, epoch in broker_epochs:
        records += _fence([(broker_id, epoch)], image, rules, **kind).records
    fences = [record for record in records if isinstance(record, BrokerFenced)]
    rest = {(r.topic_id, r.state.partition): r for r in records if not isinstance(r, BrokerFenced)}
    return Decision([*fences, *rest.values()])


def _no_elr_emptied(image: MetadataImage, altered: Any, rules: Rules) -> Any:
    return iter(())


_earlier_leaders, _fence = elections.Outcome._earlier_leaders, brokers.fence


@pytest.mark.parametrize(
    ("target", "broken"),
    [
        ("appliance.controller.brokers._after_loss", _keeps_after_a_crash),
        ("appliance.controller.brokers._after_loss", _leads_although_the_elr_has_more),
        ("appliance.controller.elections.Outcome._earlier_leaders", _only_the_last),
        ("appliance.controller.elections.Outcome._eligible", _elr_of_all_who_leave),
        ("appliance.controller.elections.Outcome._leader", _first_that_lives),
        ("appliance.controller.brokers.fence", _one_by_one),
        ("appliance.controller.configs.follow_configs", _no_elr_emptied),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_noticed(target: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, broken)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(VARIANT_SEEDS):
            run(seed)
