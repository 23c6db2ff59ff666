"""What must hold in a simulated cluster, after every event (section numbers: the protocol's invariants).

1. A commit has one content for all who act on it, controller epochs never fall.
2. One leader in each leader epoch; it is a replica, so are ISR and ELR; the ISR is not empty.
3. The committed ISR is within what its leader counts.
4. What any leader calls committed is in the log of every member of the committed ISR and ELR.
5. Logs are equal below the smaller high watermark of two replicas; leader epochs never fall along a log.
6. A high watermark never goes back on a leader, and never above its log's end.
7. What was acknowledged with acks=all, or read, is in the log of every later leader at its offset.
8. When a leader answers, no newer leader epoch of the partition is being served.
9. A broker epoch belongs to one incarnation; producer ids are given out once.
10. No replica takes records of another topic id.
11. Who is elected uncleanly has the longest log of those that were heard, and no log has grown since it was asked.
"""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from appliance.controller.commits import Commit, LogCorrupt, decode_commit
from appliance.controller.elections import is_unclean
from appliance.controller.image import MetadataImage, PartitionState
from appliance.controller.log_reader import LOG_PREFIX, LogPosition, log_name
from appliance.controller.metadata_log import MetadataLog
from appliance.controller.records import NO_LEADER, BrokerRegistered, position_of
from appliance.wire.codec import decode_response
from appliance.wire.messages.fetch import FetchRequest, FetchResponse
from appliance.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from tests.support.cluster_world import World

Part = tuple[uuid.UUID, int]


class Checks:
    """The books of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.at = LogPosition()
        """The log as it stands in the store."""
        self.acknowledged: dict[Part, dict[int, int]] = {}
        """Offset -> crc of what must never go: acknowledged with acks=all, or read."""
        self.fresh: dict[Part, int] = {}
        """Acknowledged since the world has healed."""
        self.lossy: dict[Part, None] = {}
        """Partitions of which records were given up by an unclean election."""
        self._values = 0
        self._made: dict[int, tuple[uuid.UUID, int, bool]] = {}
        self._nonces: dict[int, bytes] = {}
        self._epochs: dict[int, int] = {}
        self._incarnations: dict[int, uuid.UUID] = {}
        self._leaders: dict[tuple[uuid.UUID, int, int], Any] = {}
        self._answered_in: dict[Part, int] = {}
        """The highest leader epoch in which a client was answered."""
        self._seen: dict[Any, Any] = {}
        self._looked_to: dict[int, int] = {}

    @property
    def image(self) -> MetadataImage:
        return self.at.image

    # What clients make

    def next_value(self) -> int:
        self._values += 1
        return self._values

    def made(self, crc: int, topic_id: uuid.UUID, partition: int, *, once: bool) -> None:
        assert crc not in self._made, "two values with one crc"
        self._made[crc] = (topic_id, partition, once)

    def out_of_order(self, topic_id: Any, partition: int, producer_id: int, error: Any) -> None:
        if (topic_id, partition) not in self.lossy and topic_id in self.image.topics_by_id:
            self._world.violated(f"7: producer {producer_id} hears {error.name}: what came before it is gone")

    # The metadata log

    def landed(self, name: str, data: bytes) -> None:
        """A commit object was created: from here on it stands, whoever knows."""
        if name != log_name(self.at.next_number) if name.startswith(LOG_PREFIX) else True:
            return
        before = self.image
        commit = decode_commit(data)
        try:
            self.at = self.at.after(commit)
        except LogCorrupt as error:
            self._world.violated(f"1: {error}")
        for index, record in enumerate(commit.records):
            if isinstance(record, BrokerRegistered):
                self._incarnations[position_of(commit.number, index)] = record.incarnation_id
        self._world.counts["commits"] += 1
        self._compare(before, self.image, commit.writer_id)

    def _compare(self, before: MetadataImage, after: MetadataImage, writer_id: int) -> None:
        for topic_id, topic in after.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            if old is topic:
                continue
            for state in topic.partitions:
                key = (topic_id, state.partition)
                earlier = before.partition_by_id(*key)
                if earlier is state:
                    continue
                self._check_state(topic.name, state)
                if earlier is not None and earlier.leader_epoch != state.leader_epoch:
                    self._world.note(
                        f"{topic.name}-{state.partition}: {state.leader} leads in epoch {state.leader_epoch}, "
                        f"ISR {state.isr}, ELR {state.elr} of {state.replicas}"
                    )
                    self._world.counts["elections"] += 1
                    self._world.counts["from the ELR"] += state.leader in earlier.elr
                    if state.leader != NO_LEADER and is_unclean(earlier, state):
                        self._world.counts["unclean elections"] += 1
                        self._check_longest(before, key, state.leader, writer_id)
                        self._give_up(key)
                self._look_at(key)
        for topic_id in before.topics_by_id:
            if topic_id not in after.topics_by_id:
                self._world.note(f"topic {before.topics_by_id[topic_id].name} is gone")
                self._world.counts["topics deleted"] += 1

    def _check_longest(self, before: MetadataImage, key: Part, leader: int, writer_id: int) -> None:
        """Invariant 11."""
        earlier, writer = before.partition_by_id(*key), self._world.controllers[writer_id]
        if earlier is None or not writer.alive or writer.controller.image.controller_id != writer_id:
            return
        longest = (-1, -1)
        for broker_id in earlier.replicas:
            end = writer.controller.rules.log_ends.get((*key, broker_id))
            broker, log = before.brokers.get(broker_id), self._log(broker_id, key)
            if end is None or end.end_offset < 0 or broker is None or log is None:
                continue
            if (end.leader_epoch, end.broker_epoch) != (earlier.leader_epoch, broker.broker_epoch):
                continue
            self._world.counts["logs compared"] += 1
            if not broker.fenced and end.end_offset != len(log.content):
                self._world.violated(f"11: broker {broker_id} said {end}, its log ends at {len(log.content)}")
            if not broker.fenced and not broker.shutting_down:
                longest = max(longest, (log.content[-1][0] if log.content else -1, len(log.content)))
        mine = self._log(leader, key)
        if mine is not None and longest > (mine.content[-1][0] if mine.content else -1, len(mine.content)):
            self._world.violated(f"11: {leader} leads {key[1]} with {len(mine.content)} records, another has {longest}")

    def _give_up(self, key: Part) -> None:
        self.lossy[key] = None
        self.acknowledged.pop(key, None)

    def _check_state(self, topic: str, state: PartitionState) -> None:
        replicas = set(state.replicas)
        if not state.isr or not {*state.isr, *state.elr} <= replicas or set(state.isr) & set(state.elr):
            self._world.violated(f"2: {topic}: ISR {state.isr}, ELR {state.elr} of {state.replicas}")
        if state.leader != NO_LEADER and (state.leader not in state.isr or self.image.brokers[state.leader].fenced):
            self._world.violated(f"2: {topic}: {state.leader} leads, ISR {state.isr}")

    def settled(self, log: MetadataLog, commit: Commit | None) -> None:
        """A controller acts on its log as far as this."""
        number, nonce = log.position.image.position, log.position.nonce
        if self._nonces.setdefault(number, nonce) != nonce:
            self._world.violated(f"1: controller {log.controller_id} acts on another commit {number} than others did")
        epoch = log.image.controller_epoch
        for other, its_epoch in self._epochs.items():
            if (other < number and its_epoch > epoch) or (other > number and its_epoch < epoch):
                self._world.violated(f"1: controller epoch {epoch} at commit {number}, {its_epoch} at {other}")
        self._epochs[number] = epoch
        for broker in log.image.brokers.values():
            if self._incarnations.setdefault(broker.broker_epoch, broker.incarnation_id) != broker.incarnation_id:
                self._world.violated(f"9: broker epoch {broker.broker_epoch} is of two incarnations")

    # Partitions

    def _hosted(self, broker_id: int, key: Part) -> Any:
        process = self._world.brokers.get(broker_id)
        if process is None or not process.alive:
            return None
        return process.broker.partitions.get_by_id(*key)

    def _log(self, broker_id: int, key: Part) -> Any:
        """None: there is none, or it may lack what it had and the controller has not heard of it yet."""
        if not self._world.faults.dirty.get(broker_id, True):
            return None
        for log in self._world.logs[broker_id].logs.values():
            if log.topic_id == key[0] and log.topic_partition.partition == key[1]:
                return log
        return None

    def after_event(self, process: Any) -> None:
        """Something has happened on this process: look at those of its partitions that are not as they were."""
        broker = getattr(process, "broker", None)
        if broker is None or not process.alive:
            return
        for topic in broker.partitions.by_id.values():
            for hosted in topic.partitions.values():
                leader = hosted.leader
                now = (
                    hosted.high_watermark,
                    len(hosted.log.content),
                    hosted.leader_epoch,
                    leader and leader.high_watermark,
                    leader and leader.partition_epoch,
                    process,
                )
                before = self._seen.get(hosted)
                if before != now:
                    self._seen[hosted] = now
                    self._changed(process, hosted, before, now)

    def _changed(self, process: Any, hosted: Any, before: Any, now: Any) -> None:
        key = (hosted.topic_id, hosted.partition)
        world, leader, log = self._world, hosted.leader, hosted.log
        if hosted.offline:
            world.violated(f"{process.name}: {hosted!r}")
        if hosted.high_watermark > len(log.content) and not hosted.cutting:
            world.violated(f"6: the high watermark of {process.name} is {hosted.high_watermark}, {hosted!r}")
        self._check_content(process, key, log)
        if leader is not None:
            if before and before[5] is process and before[2] == now[2] and before[3] is not None and before[3] > now[3]:
                world.violated(f"6: the high watermark of {process.name} went back from {before[3]}, {hosted!r}")
            owner = self._leaders.setdefault((*key, leader.leader_epoch), process)
            if owner is not process:
                world.violated(f"2: {owner.name} and {process.name} lead in epoch {leader.leader_epoch}: {hosted!r}")
            if not before or before[2] != now[2] or before[5] is not process:
                self._check_acknowledged(process, key, log)
        self._look_at(key)

    def _check_content(self, process: Any, key: Part, log: Any) -> None:
        looked = min(self._looked_to.get(id(log), 0), len(log.content))
        epoch = log.content[looked - 1][0] if looked else -1
        for at_epoch, crc in log.content[looked:]:
            if at_epoch < epoch:
                self._world.violated(f"5: leader epochs fall in the log of {process.name}, {log.topic_partition}")
            epoch = at_epoch
            if self._made[crc][:2] != key:
                self._world.violated(f"10: {process.name} has taken a record of another topic into {key}")
        self._looked_to[id(log)] = len(log.content)

    def _check_acknowledged(self, process: Any, key: Part, log: Any) -> None:
        for offset, crc in self.acknowledged.get(key, {}).items():
            self._check_one(process, log, offset, crc)

    def _check_one(self, process: Any, log: Any, offset: int, crc: int) -> None:
        if offset >= len(log.content) or log.content[offset][1] != crc:
            self._world.violated(f"7: {process.name} leads {log.topic_partition} without what was promised at {offset}")

    def _look_at(self, key: Part) -> None:
        """Invariants 3 to 5 of one partition."""
        state = self.image.partition_by_id(*key)
        if state is None:
            return
        world = self._world
        marks: list[tuple[int, int, Any]] = []
        leaders: list[tuple[int, int, Any]] = []
        for broker_id in world.broker_ids:
            log = self._log(broker_id, key)
            if log is None:
                continue
            hosted = self._hosted(broker_id, key)
            mark = min(log.stored_high_watermark, len(log.content)) if hosted is None else hosted.high_watermark
            marks.append((mark, broker_id, log))
            if hosted is not None and hosted.leader is not None:
                leaders.append((hosted.leader.high_watermark, broker_id, log))
                if hosted.leader.leader_epoch == state.leader_epoch and not set(state.isr) <= set(
                    hosted.leader.max_isr
                ):
                    world.violated(f"3: ISR {state.isr}, but leader {broker_id} counts {hosted.leader.max_isr}")
        if key in self.lossy:
            return
        for mark, broker_id, log in leaders:
            for member in (*state.isr, *state.elr):
                other = self._log(member, key)
                if member == broker_id or (other is None and (not mark or member in world.faults.dirty)):
                    continue
                if other is None or other.content[:mark] != log.content[:mark]:
                    world.violated(
                        f"4: {broker_id} calls {mark} of {log.topic_partition} committed, {member} lacks some: {state}"
                    )
        marks.sort(key=lambda each: each[0])
        for (mark, one, log), (_, two, other) in pairwise(marks):
            if log.content[:mark] != other.content[:mark]:
                world.violated(f"5: {one} and {two} differ below {mark} in {log.topic_partition}: {state}")

    # Answers

    def claim(self, context: Any, request: Any) -> Any:
        """What the answer to this request will say about leadership, as it was when it was handled."""
        body = request.body
        if isinstance(body, ProduceRequest):
            topic = body.topic_data[0]
            key, crc = (topic.topic_id, topic.partition_data[0].index), topic.partition_data[0].records
        elif isinstance(body, FetchRequest) and body.replica_state.replica_id < 0:
            key, crc = (body.topics[0].topic_id, body.topics[0].partitions[0].partition), None
        else:
            return None
        hosted = context.partitions.get_by_id(*key)
        if hosted is None or not hosted.is_leader:
            return None
        crc = int.from_bytes(crc[17:21], "big") if crc is not None else None
        return (request.api_version, key, hosted.leader_epoch, crc, getattr(body, "acks", 0))

    def answer_leaves(self, process: Any, frame: bytes, claim: Any) -> None:
        if claim is None:
            return
        version, key, epoch, crc, acks = claim
        if crc is None:
            _, fetched = decode_response(FetchResponse, memoryview(frame)[4:], version)
            row: Any = fetched.responses[0].partitions[0] if fetched.responses else None
        else:
            _, produced = decode_response(ProduceResponse, memoryview(frame)[4:], version)
            row = produced.responses[0].partition_responses[0]
        if row is None or row.error_code or key[0] not in self.image.topics_by_id:
            return
        self._world.counts["answers"] += 1
        self._check_alone(process, key, epoch)
        if acks == -1 and crc is not None:
            self._world.counts["acknowledged"] += 1
            self._promised(key, row.base_offset, crc)
            if not self._world.faults.on:
                self.fresh[key] = self.fresh.get(key, 0) + 1
            for broker in self._world.brokers.values():
                other = broker.broker.partitions.get_by_id(*key) if broker.alive else None
                if (
                    other is not None
                    and other.leader is not None
                    and other.leader_epoch > epoch
                    and key not in self.lossy
                ):
                    self._check_one(broker, other.log, row.base_offset, crc)

    def _check_alone(self, process: Any, key: Part, epoch: int) -> None:
        """Invariant 8."""
        if epoch < self._answered_in.get(key, -1):
            self._world.violated(
                f"8: {process.name} answers in leader epoch {epoch} of {key}, after epoch {self._answered_in[key]} has"
            )
        self._answered_in[key] = epoch
        for broker in self._world.brokers.values():
            other = broker.broker.partitions.get_by_id(*key) if broker.alive and broker is not process else None
            if (
                other is not None
                and other.is_leader
                and other.leader_epoch > epoch
                and not other.refusal()
                and broker.broker.channel.lease_valid(broker.clock.monotonic_ms())
            ):
                self._world.violated(f"8: {process.name} answers in epoch {epoch}, {broker.name} serves {other!r}")

    def _promised(self, key: Part, offset: int, crc: int) -> None:
        if key in self.lossy:
            return
        known = self.acknowledged.setdefault(key, {})
        if known.setdefault(offset, crc) != crc:
            self._world.violated(f"7: another record at {offset} of {key} than was acknowledged or read there")

    def read(self, topic_id: uuid.UUID, partition: int, offset: int, crc: int) -> None:
        if topic_id in self.image.topics_by_id:
            self._promised((topic_id, partition), offset, crc)

    # The end

    def in_sync_everywhere(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or not self._world.faults.dirty.get(broker_id, True):
            return False
        states = [state for topic in self.image.topics.values() for state in topic.partitions]
        return all(broker_id in state.isr for state in states if broker_id in state.replicas)

    def healed(self) -> None:
        """Everything acknowledged is there, all are in sync, and new records are acknowledged."""
        world = self._world
        fenced = [broker.broker_id for broker in self.image.brokers.values() if broker.fenced]
        if fenced or len(self.image.brokers) < len(world.broker_ids):
            world.violated(f"at the end {fenced} are fenced")
        for topic in self.image.topics.values():
            for state in topic.partitions:
                self._check_healed(topic.topic_id, topic.name, state)

    def _check_healed(self, topic_id: uuid.UUID, topic: str, state: PartitionState) -> None:
        world, key = self._world, (topic_id, state.partition)
        name = f"at the end {topic}-{state.partition}"
        if state.leader == NO_LEADER and state.data_lost and not self.acknowledged.get(key):
            # A disk is gone, and the others in sync died before they had begun their logs: nobody who is left knows
            # that there was nothing, so an operator has to say it.
            world.counts["left to the operator"] += 1
            return
        if set(state.isr) != set(state.replicas) or state.leader == NO_LEADER:
            world.violated(f"{name} is not whole: {state}")
        hosted = self._hosted(state.leader, key)
        content = hosted.log.content
        if hosted.high_watermark != len(content):
            world.violated(f"{name} is committed to {hosted.high_watermark} only: {hosted!r}")
        for broker_id in state.replicas:
            if self._log(broker_id, key).content != content:
                world.violated(f"{name} differs on {broker_id}")
        self._check_acknowledged(world.brokers[state.leader], key, hosted.log)
        once = [crc for _, crc in content if self._made[crc][2]]
        if len(once) != len(set(once)):
            world.violated(f"{name} has records of idempotent producers twice")
        if not self.fresh.get(key):
            world.violated(f"{name} has acknowledged nothing new")
