"""Transactions and times over both tiers, read without a Spark session: plans and splits do all of the work."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.builder import build_batch
from spark.offsets import to_json
from spark.options import AtTimestamp, SourceOptions
from spark.planning import plan_batch
from spark.reading import IncompleteSplit, read_split
from spark.stream import ApplianceStreamReader
from tests.support.broker import running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

TP = TopicPartition("orders", 0)
PLAIN = TopicPartition("plain", 0)
HOUR = 1_700_000_000_000
TRANSACTIONS, RECORDS_EACH = 40, 60


@dataclass
class Orders:
    """A topic of transactions, every third of them aborted; the older ones lie in the object store only."""

    servers: str
    client: Client
    committed: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)

    def options(self, **more: object) -> SourceOptions:
        return dataclasses.replace(SourceOptions(self.servers, subscribe=("orders",), read_committed=True), **more)

    def read(self, **more: object) -> tuple[list[bytes], set[str]]:
        """Values in order, and the tiers they came from."""
        options = self.options(**more)
        plan = plan_batch(options)
        options = dataclasses.replace(options, object_store=plan.object_store)
        values: list[bytes] = []
        tiers: set[str] = set()
        for split in plan.splits:
            for rows in read_split(options, ("value", "tier"), split):
                values += rows["value"].to_pylist()
                tiers |= set(rows["tier"].to_pylist())
        return values, tiers


def write(orders: Orders, first: int, last: int) -> None:
    producers = []
    for name in ("one", "two"):
        producer = Producer({"bootstrap.servers": orders.servers, "transactional.id": f"orders-{name}", "linger.ms": 5})
        producer.init_transactions(30)
        producers.append(producer)
    for number in range(first, last, 2):
        # Two transactions at a time, so that their records lie among each other.
        rows: dict[int, set[bytes]] = {number: set(), number + 1: set()}
        for producer in producers:
            producer.begin_transaction()
        for record in range(RECORDS_EACH):
            for which, producer in enumerate(producers):
                key = b"%d-%d " % (number + which, record)
                value = key + random.Random(key).randbytes(900)
                rows[number + which].add(value)
                producer.produce("orders", value, partition=0)
        for which, producer in enumerate(producers):
            producer.flush(30)
            if (number + which) % 3 == 0:
                producer.abort_transaction(30)
                orders.aborted |= rows[number + which]
            else:
                producer.commit_transaction(30)
                orders.committed |= rows[number + which]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    folder = tmp_path_factory.mktemp("committed")
    with (
        running_cluster(folder, brokers=1, properties={"tiering.task.interval.ms": "100"}) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        configs = {"segment.bytes": str(1 << 20), "local.retention.bytes": "1", "retention.ms": "-1"}
        client.create_topics([NewTopic("orders", 1, configs=configs), NewTopic("plain", 1, configs=configs)])
        for first in range(0, 3_000, 100):
            numbers = range(first, first + 100)
            values = [b"%d " % n + random.Random(n).randbytes(900) for n in numbers]
            records = [(HOUR + n * 10, None, value, []) for n, value in zip(numbers, values, strict=True)]
            client.produce(PLAIN, build_batch(records))
        made = Orders(cluster.bootstrap_servers, client)
        write(made, 0, TRANSACTIONS)
        deadline_s = time.monotonic() + 30
        while min(found.offset for found in client.list_offsets({TP: -4, PLAIN: -4}).values()) < 1_000:
            assert time.monotonic() < deadline_s, "no segment left the broker's disk"
            time.sleep(0.1)
        yield made


def test_aborted_transactions_are_in_neither_tier(orders: Orders) -> None:
    values, tiers = orders.read()
    assert tiers == {"hot", "tiered"}
    assert len(values) == len(set(values)) and set(values) == orders.committed


def test_read_uncommitted_sees_them_all_and_no_markers(orders: Orders) -> None:
    values, _ = orders.read(read_committed=False)
    assert len(values) == len(set(values)) and set(values) == orders.committed | orders.aborted


@pytest.mark.parametrize("tier", ["auto", "hot"])
def test_splits_that_begin_within_a_transaction_know_that_it_was_aborted(orders: Orders, tier: str) -> None:
    values, _ = orders.read(tier=tier, max_records_per_partition=37)
    assert len(values) == len(set(values)) and set(values) == orders.committed


def test_an_open_transaction_is_not_read_and_ends_the_range(orders: Orders) -> None:
    before, _ = orders.read()
    producer = Producer({"bootstrap.servers": orders.servers, "transactional.id": "orders-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(30)
    assert orders.read()[0] == before
    assert b"open" in orders.read(read_committed=False)[0]
    producer.abort_transaction(30)
    assert orders.read()[0] == before


def test_times_cut_both_tiers_as_the_brokers_indexes_say(orders: Orders) -> None:
    plain = {"subscribe": ("plain",)}
    for start, end in ((40, 2_990), (0, 1), (1_500, 1_600)):
        first, behind = AtTimestamp(HOUR + start * 10 - 3, False), AtTimestamp(HOUR + end * 10 - 3, True)
        values, tiers = orders.read(starting_offsets=first, ending_offsets=behind, **plain)
        assert [int(value.split(b" ")[0]) for value in values] == list(range(start, end))
        assert "tiered" in tiers
    values, _ = orders.read(starting_offsets=AtTimestamp({PLAIN: HOUR + 29_950}, False), **plain)
    assert [int(value.split(b" ")[0]) for value in values] == [2_995, 2_996, 2_997, 2_998, 2_999]


def test_a_time_behind_the_last_record_is_an_error_unless_the_strategy_says_latest(orders: Orders) -> None:
    late = 1 << 42
    with pytest.raises(ValueError, match="no record is as late"):
        orders.read(starting_offsets=AtTimestamp(late, False))
    assert orders.read(starting_offsets=AtTimestamp(late, True))[0] == []


def test_a_stream_has_the_same_splits_for_the_same_offsets_whatever_is_tiered_by_now(orders: Orders) -> None:
    end = orders.client.list_offsets({TP: -1}, 1)[TP].offset
    reader = ApplianceStreamReader(orders.options(max_records_per_partition=1_000), ("value", "tier"))
    partitions = reader.partitions({"orders": {"0": 0}}, to_json({TP: end}))
    edges = [(partition.split.start, partition.split.end) for partition in partitions]
    assert [start for start, _ in edges] == [0, *(end for _, end in edges[:-1])] and edges[-1][1] == end
    rows = [batch for partition in partitions for batch in reader.read(partition)]
    values = [value for batch in rows for value in batch["value"].to_pylist()]
    assert len(values) == len(set(values)) and set(values) == orders.committed
    assert {tier for batch in rows for tier in batch["tier"].to_pylist()} == {"hot", "tiered"}
    hot = reader.partitions({"orders": {"0": end - 5}}, to_json({TP: end}))
    assert [(partition.split.tier, partition.object_store) for partition in hot] == [("hot", "")]


def test_a_topic_that_was_made_anew_since_the_plan_is_an_error(orders: Orders) -> None:
    client, tp = orders.client, TopicPartition("anew", 0)

    def make(name: bytes) -> None:
        client.create_topics([NewTopic("anew", 1, configs={"retention.ms": "-1"})])
        client.produce(tp, build_batch([(HOUR, None, name, []) for _ in range(10)]))

    make(b"old")
    options = orders.options(subscribe=("anew",))
    splits = plan_batch(options).splits
    assert [value for rows in read_split(options, ("value",), splits[0]) for value in rows["value"].to_pylist()] == [
        b"old"
    ] * 10
    client.delete_topics(["anew"])
    deadline_s = time.monotonic() + 30
    while True:
        try:
            make(b"new")
            break
        except KafkaError as error:
            assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS and time.monotonic() < deadline_s, error
            time.sleep(0.1)
    with pytest.raises(IncompleteSplit, match="another one"):
        list(read_split(options, ("value",), splits[0]))
