"""Clients of a simulated cluster: idempotent producers with acks=all, producers with acks=1, readers, and an operator
who creates topics, deletes one and creates it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from appliance.base.errors import ErrorCode
from appliance.records.batch import parse_header, split_batches
from appliance.records.builder import build_batch
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from appliance.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from appliance.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cluster_wire import Link, Process

if TYPE_CHECKING:
    from tests.support.cluster_world import World

PLAIN, LOSSY, REBORN = "plain", "lossy", "reborn"
"""The second allows unclean elections; the third is deleted and created again."""
PARTITIONS = ((PLAIN, 0), (PLAIN, 1), (LOSSY, 0), (REBORN, 0))
PRODUCE_VERSION, FETCH_VERSION = 13, 17
REQUEST_MS = 2_000
LOOK_MS = 250
IN_ORDER_ONLY = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)


class Clients:
    """All of them; they live in one process that nothing happens to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = Process(world, "x", world.clocks["x"])
        self.on = True
        self.pause_ms = (100, 500)
        """Between the requests of a client."""
        self.partitions: tuple[tuple[str, int], ...] = PARTITIONS
        self.impatient = 1
        """Producers with acks=1 and readers for each partition; each waits for its own answers only."""
        self.ends: dict[tuple[uuid.UUID, int], int] = {}
        """Where logs ended, as far as anybody was told."""
        self._blocks: dict[int, None] = {}

    def start(self) -> None:
        self._keep_topics()
        for topic, partition in self.partitions:
            for acks in (-1, -1, *(1,) * self.impatient):
                Producer(self, topic, partition, acks).start()
            for _ in range(self.impatient):
                Reader(self, topic, partition).start()
        self.process.later(self.world.random.randrange(3_000, 6_000), self._delete)

    def stop(self) -> None:
        self.on = False

    def later(self, action: Callable[[], None]) -> None:
        self.process.later(self.world.random.randrange(*self.pause_ms), action)

    def some_broker(self) -> Any:
        process = self.world.brokers.get(self.world.random.choice(self.world.broker_ids))
        return process if process is not None and process.alive and process.broker.image.position >= 0 else None

    # Topics

    def _keep_topics(self) -> None:
        self.process.later(LOOK_MS, self._keep_topics)
        image, broker = self.world.checks.image, self.some_broker()
        missing = [topic for topic in dict.fromkeys(topic for topic, _ in self.partitions) if topic not in image.topics]
        if broker is None or len(image.live_brokers()) < 3 or not missing:
            return
        request = CreateTopicsRequest(timeout_ms=REQUEST_MS, topics=[self._topic(topic) for topic in missing])
        broker.later(0, lambda: broker.broker.controller.call(request, lambda answer: None, timeout_ms=REQUEST_MS))

    def _topic(self, name: str) -> CreatableTopic:
        count = sum(topic == name for topic, _ in self.partitions)
        configs = [CreatableTopicConfig(name="remote.storage.enable", value="false")]
        if name == LOSSY:
            configs.append(CreatableTopicConfig(name="unclean.leader.election.enable", value="true"))
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(
                    partition_index=number, broker_ids=self.world.random.sample(self.world.broker_ids, 3)
                )
                for number in range(count)
            ],
            configs=configs,
        )

    def _delete(self) -> None:
        broker = self.some_broker()
        if broker is None or not self.world.faults.on:
            return
        self.process.later(self.world.random.randrange(1_000, 5_000), self._delete)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=REBORN)], timeout_ms=REQUEST_MS)
        self.world.note(f"{REBORN} is to be deleted")
        broker.later(0, lambda: broker.broker.controller.call(request, lambda answer: None, timeout_ms=REQUEST_MS))

    def allocate(self, done: Callable[[int], None]) -> None:
        """A producer id of a block of its own."""
        broker = self.some_broker()
        if broker is None:
            self.later(lambda: self.allocate(done))
            return

        over = False

        def answered(answer: Any) -> None:
            nonlocal over
            if over:
                return
            over = True
            if not isinstance(answer, AllocateProducerIdsResponse) or answer.error_code:
                self.later(lambda: self.allocate(done))
                return
            if answer.producer_id_start in self._blocks:
                self.world.violated(f"9: producer ids from {answer.producer_id_start} are given out twice")
            self._blocks[answer.producer_id_start] = None
            done(answer.producer_id_start)

        def ask() -> None:
            request = AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=broker.broker.broker_epoch)
            broker.broker.controller.call(request, answered, timeout_ms=REQUEST_MS)

        broker.later(0, ask)
        # A broker that dies meanwhile answers nothing.
        self.process.later(2 * REQUEST_MS, lambda: answered(None))


class Client:
    """Turns to whom some broker calls the leader, and sometimes to anybody."""

    def __init__(self, clients: Clients, topic: str, partition: int) -> None:
        self.clients = clients
        self.world = clients.world
        self.topic = topic
        self.partition = partition
        self.topic_id: uuid.UUID | None = None
        self._links: dict[int, Link] = {}

    def link(self, wrong: float) -> Link | None:
        """To the leader as some broker has it; None while nobody knows one."""
        broker = self.clients.some_broker()
        if broker is None:
            return None
        topic = broker.broker.image.topics.get(self.topic)
        if topic is None:
            return None
        self.topic_id = self.topic_id or topic.topic_id
        chance = self.world.random
        target = topic.partitions[self.partition].leader
        if target < 0 or chance.random() < wrong:
            target = chance.choice(self.world.broker_ids)
        if target not in self._links:
            self._links[target] = Link(self.clients.process, ("127.0.0.1", 9_000 + target))
        return self._links[target]


class Producer(Client):
    """One batch of one record at a time; with acks=all idempotent, and sent again until it is acknowledged."""

    def __init__(self, clients: Clients, topic: str, partition: int, acks: int) -> None:
        super().__init__(clients, topic, partition)
        self._acks = acks
        self._producer_id = -1
        self._sequence = 0
        self._batch: bytes | None = None

    def start(self) -> None:
        if self._acks == -1:
            self.clients.allocate(self._begin)
        else:
            self.clients.later(self._send)

    def _begin(self, producer_id: int) -> None:
        self._producer_id, self._sequence, self._batch = producer_id, 0, None
        self.clients.later(self._send)

    def _send(self) -> None:
        if not self.clients.on and self._batch is None:
            return
        link = self.link(0.1)
        if link is None or self.topic_id is None:
            self.clients.later(self._send)
            return
        if self._batch is None:
            self._batch = self._new_batch(self.topic_id)
        link.call(self._request(), PRODUCE_VERSION, REQUEST_MS, self._answered)
        if self._acks == -1 and self.world.faults.chance(0.05):
            copy = Link(self.clients.process, link.address)
            copy.call(self._request(), PRODUCE_VERSION, REQUEST_MS, lambda _: copy.close())

    def _request(self) -> ProduceRequest:
        assert self._batch is not None
        records: Any = memoryview(bytearray(self._batch))
        data = PartitionProduceData(index=self.partition, records=records)
        topic = TopicProduceData(topic_id=self.topic_id, partition_data=[data])
        return ProduceRequest(acks=self._acks, timeout_ms=1_500, topic_data=[topic])

    def _new_batch(self, topic_id: uuid.UUID) -> bytes:
        number = self.world.checks.next_value()
        sequence = self._sequence if self._producer_id >= 0 else -1
        batch = build_batch(
            [(1_000_000_000_000, None, b"%d" % number, [])],
            producer_id=self._producer_id,
            producer_epoch=0 if self._producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        self.world.checks.made(parse_header(batch).crc, topic_id, self.partition, once=self._producer_id >= 0)
        return batch

    def _answered(self, answer: Any) -> None:
        error = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(answer, ProduceResponse):
            error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            row = answer.responses[0].partition_responses[0]
            assert self.topic_id is not None
            key = (self.topic_id, self.partition)
            self.clients.ends[key] = max(self.clients.ends.get(key, 0), row.base_offset + 1)
            self._sequence += 1
            self._batch = None
        elif self._acks == 1:
            self._batch = None
        if error in IN_ORDER_ONLY:
            self.world.checks.out_of_order(self.topic_id, self.partition, self._producer_id, error)
        if self.topic_id not in self.world.checks.image.topics_by_id or error in IN_ORDER_ONLY:
            self.topic_id = self._batch = None
            self.start()
            return
        self.clients.later(self._send)


class Reader(Client):
    """Reads somewhere in the log, from the leader or from a follower; what was read once stays."""

    def start(self) -> None:
        self.clients.later(self._read)

    def _read(self) -> None:
        if not self.clients.on:
            return
        self.topic_id = None
        link = self.link(0.4)
        if link is None or self.topic_id is None:
            self.start()
            return
        topic_id: uuid.UUID = self.topic_id
        end = self.clients.ends.get((topic_id, self.partition), 0)
        offset = self.world.random.randint(max(0, end - 30), end)
        row = FetchPartition(partition=self.partition, fetch_offset=offset, partition_max_bytes=4_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=8_000,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[row])],
        )

        def answered(answer: Any) -> None:
            if isinstance(answer, FetchResponse) and answer.responses:
                data = answer.responses[0].partitions[0]
                if not data.error_code:
                    self._look(topic_id, offset, data)
            self.start()

        link.call(request, FETCH_VERSION, REQUEST_MS, answered)

    def _look(self, topic_id: uuid.UUID, offset: int, data: Any) -> None:
        for batch in split_batches(data.records or b""):
            header = parse_header(batch)
            if header.base_offset >= offset:
                self.world.checks.read(topic_id, self.partition, header.base_offset, header.crc)
                self.world.counts["reads"] += 1
