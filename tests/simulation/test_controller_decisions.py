"""Random events, each decided and committed: what must hold of every image (invariants 2 and 9)."""

from __future__ import annotations

import random
import uuid

import pytest

from appliance.base.randomness import SeededRandomness
from appliance.controller import brokers, isr, partitions, topics
from appliance.controller.commits import NO_NONCE, Snapshot
from appliance.controller.decisions import Decision, Rules
from appliance.controller.image import MetadataImage
from appliance.controller.producer_ids import allocate_producer_ids
from appliance.controller.records import NO_LEADER, LogState
from appliance.controller.snapshots import load_snapshot, snapshot_body
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from appliance.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from appliance.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.metadata import cluster, committed, registration, rules
from tests.support.seeds import seeds

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
STEPS = 120


class Days:
    """Chooses what happens next."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rules: Rules = Rules(rules().config, SeededRandomness(seed))
        self.incarnations = 100

    def event(self, image: MetadataImage) -> Decision:
        chance, broker_id, name = self.random, self.random.choice(BROKERS), self.random.choice(TOPICS)
        known = image.brokers.get(broker_id)
        match chance.randrange(9):
            case 0:
                self.incarnations += 1
                previous = known.broker_epoch if known and chance.random() < 0.7 else -1
                state = chance.choice(list(LogState))
                request = registration(broker_id, self.incarnations, previous_broker_epoch=previous, log_state=state)
                return brokers.register(request, image)
            case 1 if known:
                late = [(b.broker_id, b.broker_epoch) for b in image.live_brokers() if chance.random() < 0.5]
                return brokers.fence(late, image, dead=chance.random() < 0.3, shutting_down=chance.random() < 0.2)
            case 2 | 3 if known:
                return brokers.unfence(broker_id, known.broker_epoch, image)
            case 4:
                topic = CreatableTopic(name=name, num_partitions=chance.randrange(1, 6), replication_factor=-1)
                return topics.create_topics(CreateTopicsRequest(topics=[topic]), image, self.rules)
            case 5:
                return topics.delete_topics(
                    DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), image, self.rules
                )
            case 6:
                more = CreatePartitionsTopic(name=name, count=chance.randrange(1, 9), assignments=None)
                return partitions.create_partitions(CreatePartitionsRequest(topics=[more]), image, self.rules)
            case 7 if known:
                request_ids = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=known.broker_epoch)
                return allocate_producer_ids(request_ids, image)
            case 8 if known and name in image.topics:
                return self._alter(broker_id, name, image)
            case _:
                return brokers.repair(image)

    def _alter(self, broker_id: int, name: str, image: MetadataImage) -> Decision:
        topic = image.topics[name]
        state = self.random.choice(topic.partitions)
        data = PartitionData(
            partition_index=state.partition,
            leader_epoch=state.leader_epoch - self.random.randrange(2),
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=self.random.choice(BROKERS))],
        )
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=image.brokers[broker_id].broker_epoch,
            topics=[TopicData(topic_id=topic.topic_id, partitions=[data])],
        )
        return isr.alter_partition(request, image)


def check(before: MetadataImage, after: MetadataImage, epochs: dict[int, uuid.UUID]) -> None:
    for broker in after.brokers.values():
        assert epochs.setdefault(broker.broker_epoch, broker.incarnation_id) == broker.incarnation_id
        assert not (broker.dead and not broker.fenced)
    for topic in after.topics.values():
        assert after.topics_by_id[topic.topic_id] is topic
        old = before.topics_by_id.get(topic.topic_id)
        for number, state in enumerate(topic.partitions):
            assert state.partition == number
            assert state.isr and set(state.isr) | set(state.elr) <= set(state.replicas)
            assert state.leader == NO_LEADER or state.leader in state.isr
            assert state.leader == NO_LEADER or not after.brokers[state.leader].fenced
            assert not (state.data_lost and state.leader != NO_LEADER)
            if old is None or number >= len(old.partitions) or old.partitions[number] is state:
                continue
            earlier = old.partitions[number]
            assert state.partition_epoch == earlier.partition_epoch + 1
            # A leader epoch has one leader: another leader, another epoch.
            assert state.leader_epoch == earlier.leader_epoch + (state.leader != earlier.leader or state.data_lost)
    assert len(after.topics) == len(after.topics_by_id)
    assert after.next_producer_id >= before.next_producer_id


@pytest.mark.parametrize("seed", seeds(60))
def test_every_image_is_sound(seed: int) -> None:
    days, image, epochs = Days(seed), cluster(*BROKERS[:2]), dict[int, uuid.UUID]()
    for step in range(STEPS):
        before = image
        _, image = committed(image, days.event(image))
        try:
            check(before, image, epochs)
            assert not list(brokers.repair(image).records), "an election was due"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {step}") from error
    body = snapshot_body(image, ())
    assert load_snapshot(Snapshot(image.position, 1, 1, 0, NO_NONCE, body))[0] == image
