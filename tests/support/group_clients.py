"""Topics, records and waiting, for tests of groups with other people's clients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

_numbers = itertools.count()
PATIENCE_S = 20.0


def new_topic(bootstrap_servers: str, partitions: int, records: int = 0) -> str:
    """A topic that no other test has, with records spread over its partitions; each value is its number."""
    name = f"groups-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
    fill(bootstrap_servers, name, partitions, records)
    return name


def fill(bootstrap_servers: str, topic: str, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def wait_until(condition: Callable[[], object], doing: Callable[[], object] = lambda: time.sleep(0.01)) -> None:
    """Repeat `doing` until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "this does not happen"
        doing()
