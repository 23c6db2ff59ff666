"""`make bench-shares`: members of a share group read records and accept them, here and on Apache Kafka.

    python -m tests.benchmarks.shares [--quick] [--pairs N] [--ours-alone] [--print]

Both run at the same time. A run has a group of its own, whose members are threads with bare connections: each fetches,
and says with the next fetch that it has accepted what it got, as the consumers of Kafka do. It ends when every record
is accepted. Members share the interpreter, so speeds tell of them, too; what the server used does not.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.builder import build_batch
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from appliance.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.benchmarks.figures import Measure
from tests.benchmarks.report import Pair, listed, marked, table
from tests.benchmarks.run import (
    add_ours_alone,
    add_pairs,
    give,
    machine_facts,
    pair_of,
    parsed,
    parser_of,
    say,
)
from tests.benchmarks.servers import BenchmarkedServer, SideBySide, beside_kafka

BEGIN = "<!-- share figures: written by `make bench-shares`, from here -->"
END = "<!-- share figures: to here -->"
PAIRS, QUICK_PAIRS = 5, 1
TOPIC, PARTITIONS = "shared", 4
RECORDS, QUICK_RECORDS = 200_000, 40_000
RECORD_BYTES, BATCH_RECORDS = 100, 200
MAX_RECORDS = 500
"""What the consumers of Kafka ask for at once."""
MEMBERS = (1, 4)
WARM_UP_RUNS = 6
HEARTBEAT_S = 1.0
PATIENCE_S = 120.0
ACCEPT, GROUP_RESOURCE = 1, 32
COME_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
Place = tuple[uuid.UUID, int]
PROPERTIES = {
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

SPEED = Measure("records", "1/s", lambda run: run["records"] / run["took_s"], higher_is_better=True, digits=0)
CPU = Measure("server CPU per record", "µs", lambda run: run["cpu_s"] / run["records"] * 1e6, digits=2)
FETCHES = Measure("fetches per 1,000 records", "", lambda run: run["fetches"] / run["records"] * 1e3)
MEASURES = (SPEED, CPU, FETCHES)


@dataclass
class Member:
    """One that reads whatever it is assigned, over one connection for the group and one for records."""

    server: BenchmarkedServer
    group_id: str
    enough: Callable[[int], bool]
    """Told how many records were accepted; whether that is all."""
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    assigned: dict[uuid.UUID, list[int]] = field(default_factory=dict)
    fetches: int = 0

    def run(self) -> None:
        address = self.server.host, self.server.port
        with Connection(*address) as coordinator, Connection(*address) as leader:
            self._beat(coordinator, [TOPIC])
            beaten_s = time.monotonic()
            said: dict[Place, list[AcknowledgementBatch]] = {}
            session_epoch, held = 0, set[Place]()
            while True:
                if not self.assigned or time.monotonic() - beaten_s > HEARTBEAT_S:
                    self._beat(coordinator, None)
                    beaten_s = time.monotonic()
                wanted = {(topic, number) for topic, numbers in self.assigned.items() for number in numbers}
                # What is said of a partition that is not ours any longer goes first.
                gone = sorted(held - wanted - set(said))
                rows = [(place, said.get(place, [])) for place in sorted({*(wanted - held), *said})]
                held = (held | wanted).difference(gone)
                accepted, said = self._fetch(leader, session_epoch, rows, gone)
                session_epoch += 1
                if self.enough(accepted):
                    return

    def _fetch(
        self,
        leader: Connection,
        session_epoch: int,
        rows: list[tuple[Place, list[AcknowledgementBatch]]],
        gone: list[Place],
    ) -> tuple[int, dict[Place, list[AcknowledgementBatch]]]:
        """How many records were accepted, and what to say of those that came."""
        topics: dict[uuid.UUID, FetchTopic] = {}
        for (topic, number), batches in rows:
            partition = FetchPartition(partition_index=number, acknowledgement_batches=batches)
            topics.setdefault(topic, FetchTopic(topic_id=topic)).partitions.append(partition)
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=session_epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_records=MAX_RECORDS,
            batch_size=MAX_RECORDS,
            topics=list(topics.values()),
            forgotten_topics_data=[ForgottenTopic(topic_id=topic, partitions=[number]) for topic, number in gone],
        )
        answer = leader.call(request)
        self.fetches += 1
        if answer.error_code:
            raise RuntimeError(f"{self.server.name}: {answer}")
        said: dict[Place, list[AcknowledgementBatch]] = {}
        for topic_row in answer.responses:
            for row in topic_row.partitions:
                if row.error_code or row.acknowledge_error_code:
                    raise RuntimeError(f"{self.server.name}: {row.error_code} {row.acknowledge_error_code}")
                if row.acquired_records:
                    said[topic_row.topic_id, row.partition_index] = [
                        AcknowledgementBatch(
                            first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[ACCEPT]
                        )
                        for each in row.acquired_records
                    ]
        accepted = sum(each.last_offset - each.first_offset + 1 for _, batches in rows for each in batches)
        return accepted, said

    def _beat(self, coordinator: Connection, names: list[str] | None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                subscribed_topic_names=names,
            )
            answer = coordinator.call(request)
            if not answer.error_code:
                self.epoch = answer.member_epoch
                if answer.assignment is not None:
                    self.assigned = {row.topic_id: list(row.partitions) for row in answer.assignment.topic_partitions}
                if self.assigned:
                    return
                names = None
            elif answer.error_code not in COME_AGAIN:
                raise RuntimeError(f"{self.server.name}: {answer}")
            time.sleep(0.05)
        raise TimeoutError(f"{self.server.name}: {self.member_id} is assigned nothing")


def fill(server: BenchmarkedServer, records: int) -> None:
    server.create_topic(TOPIC, PARTITIONS)
    now_ms = int(time.time() * 1000)
    batch = build_batch([(now_ms, None, bytes(RECORD_BYTES), ())] * BATCH_RECORDS)
    with Connection(server.host, server.port) as connection:
        for number in range(records // BATCH_RECORDS):
            data = PartitionProduceData(index=number % PARTITIONS, records=batch)
            topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
            answer = connection.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer


def run_group(server: BenchmarkedServer, members: int, records: int) -> dict[str, float]:
    """A new group reads everything."""
    group_id = f"share-{uuid.uuid4().hex}"
    with Connection(server.host, server.port) as connection:
        reset = AlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=[reset])
        connection.call(IncrementalAlterConfigsRequest(resources=[resource]))
        deadline = time.monotonic() + PATIENCE_S
        while (
            connection.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])).coordinators[0].error_code
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{server.name} has no coordinator of groups")
            time.sleep(0.1)
    lock, accepted = threading.Lock(), 0
    first_s = last_s = 0.0

    def enough(count: int) -> bool:
        nonlocal accepted, first_s, last_s
        with lock:
            accepted += count
            last_s = time.monotonic()
            first_s = first_s or last_s
            return accepted >= records or last_s > deadline

    failures: list[Exception] = []

    def guarded(member: Member) -> None:
        try:
            member.run()
        except Exception as error:
            failures.append(error)

    readers = [Member(server, group_id, enough) for _ in range(members)]
    cpu_s, deadline = server.cpu_seconds(), time.monotonic() + PATIENCE_S
    threads = [threading.Thread(target=guarded, args=(member,), daemon=True) for member in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures or accepted < records:
        raise RuntimeError(f"{server.name}: {accepted:,} of {records:,} records were accepted: {failures}")
    return {
        "records": accepted,
        "took_s": last_s - first_s,
        "cpu_s": server.cpu_seconds() - cpu_s,
        "fetches": sum(member.fetches for member in readers),
    }


def main(arguments: Sequence[str]) -> int:
    parser = parser_of("bench-shares", __doc__)
    add_pairs(parser, "size", PAIRS, QUICK_PAIRS)
    add_ours_alone(parser)
    chosen = parsed(parser, arguments)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    records, warm = (QUICK_RECORDS, 1) if chosen.quick else (RECORDS, WARM_UP_RUNS)
    began = time.time()
    with SideBySide(*beside_kafka(PROPERTIES, ours_alone=chosen.ours_alone)) as servers:
        results: list[tuple[int, list[Pair]]] = []
        for server in servers:
            fill(server, records)
            for _ in range(warm):
                run_group(server, 2, records)

        def run_of(members: int, number: int, side: int) -> dict[str, float]:
            run = run_group(servers[side], members, records)
            told = ", ".join(f"{each.name} {each.of(run):,.{each.digits}f} {each.unit}" for each in MEASURES)
            say(f"  {members} members {number + 1}/{pairs} {servers[side].name}: {told}")
            return run

        for members in MEMBERS:
            results.append((members, [pair_of(number, partial(run_of, members, number)) for number in range(pairs)]))
    facts = [
        *machine_facts(pairs, began),
        ("Both", "one broker, defaults but for " + ", ".join(f"`{key}={value}`" for key, value in PROPERTIES.items())),
        (
            "A run",
            f"{records:,} records of {RECORD_BYTES} bytes, in batches of {BATCH_RECORDS}, in {PARTITIONS} partitions",
        ),
        ("Warmed with", f"{warm} such runs of two members"),
    ]
    lines = listed(facts)
    names = servers[0].name, servers[-1].name
    for members, of_members in results:
        lines += ["", table(f"{members} member{'s' * (members > 1)}", MEASURES, of_members, names)]
    give(marked(lines, BEGIN, END), BEGIN, END, prints=chosen.print or chosen.ours_alone or chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
