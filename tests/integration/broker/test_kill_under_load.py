"""A broker is killed again and again under stock producers, at moments by chance: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.broker.test_kill import Cluster, all_values, wait_until_leading
from tests.support.loads import Confluent, KafkaPython, Load, check
from tests.support.requests import new_topic

# Many rolls, and flushes all the time.
CONFIGS = {"segment.bytes": "1048576", "flush.messages": "500", "flush.ms": "100", "index.interval.bytes": "512"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.broker.stop()
    running.controller.stop()


def live_and_die(cluster: Cluster, kills: int, seed: int) -> None:
    source = random.Random(seed)
    history = [f"seed {seed}"]
    with cluster.connect() as connection:
        topics = [new_topic(connection, configs=CONFIGS) for _ in range(3)]
    servers = f"127.0.0.1:{cluster.port}"
    loads: list[Load] = [
        Confluent(servers, topics[0].name, {"enable.idempotence": True}),
        Confluent(servers, topics[1].name, {"acks": 1, "max.in.flight": 1}),
        KafkaPython(servers, topics[2].name),
    ]
    began = time.monotonic()
    try:
        for load in loads:
            load.thread.start()
        for _ in range(kills):
            time.sleep(source.uniform(0.3, 1.5))
            if source.random() < 0.3:
                history.append(f"{time.monotonic() - began:.3f} s: paused")
                cluster.broker.process.send_signal(signal.SIGSTOP)
                time.sleep(source.uniform(0.1, 0.5))
                if source.random() < 0.5:
                    cluster.broker.process.send_signal(signal.SIGCONT)
            cluster.broker.kill()
            history.append(f"{time.monotonic() - began:.3f} s: killed, acknowledged {[*map(_count, loads)]}")
            cluster.start_broker()
            with cluster.connect() as connection:
                for topic in topics:
                    wait_until_leading(connection, topic)
            history.append(f"{time.monotonic() - began:.3f} s: leads again")
            counts = [*map(_count, loads)]
            for _ in range(1_500):
                if all(new > old for new, old in zip(map(_count, loads), counts, strict=True)):
                    break
                time.sleep(0.01)
            else:
                raise AssertionError(f"a producer does not come back: {[*map(_count, loads)]} after {counts}")
    finally:
        for load in loads:
            load.stopping.set()
        print("\n".join(history))
    for load in loads:
        load.stop()
    with cluster.connect() as connection:
        for load, topic in zip(loads, topics, strict=True):
            check(load, [all_values(connection, topic, 0)])


def _count(load: Load) -> int:
    return len(load.acknowledged)


def _seed() -> int:
    return int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 32))


def test_stock_producers_lose_nothing_when_their_broker_is_killed_three_times(cluster: Cluster) -> None:
    live_and_die(cluster, kills=3, seed=_seed())


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_stock_producers_lose_nothing_when_their_broker_is_killed_twenty_times(cluster: Cluster) -> None:
    live_and_die(cluster, kills=20, seed=_seed())
