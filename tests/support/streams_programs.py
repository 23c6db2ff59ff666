"""What the tests of Kafka Streams share: lines of words, what was counted of them, and how a program ends."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from tests.support.compat import Sample, Server, read_topic
from tests.support.programs import RunningProgram

WORDS = ("alpha", "beta", "gamma", "delta", "größe", "zeta", "eta")
TIME = int(time.time() * 1000) - 600_000
"""Of the first record. Stores of windows have changelogs that keep what is a day old at the most: what is written there
with older times may be gone before a killed program reads it back."""
Start = Callable[..., RunningProgram]


def lines(count: int) -> list[Sample]:
    chance = random.Random(5)
    return [Sample(b"%d" % number, " ".join(chance.choices(WORDS, k=5)).encode(), [], TIME) for number in range(count)]


def counts_of(written: list[Sample]) -> dict[str, list[int]]:
    """What has to come out: each word's counts are 1, 2, 3 and so on, nothing lost, counted twice or shown twice."""
    wanted = Counter(word for line in written for word in (line.value or b"").decode().split())
    return {word: list(range(1, count + 1)) for word, count in wanted.items()}


def counted(server: Server, topic: str) -> dict[str, list[int]]:
    """The counts of each word in the order in which they were written and committed."""
    counts: dict[str, list[int]] = defaultdict(list)
    for message in read_topic(server, topic, 2, isolation_level="read_committed"):
        counts[message.key().decode()].append(int(message.value()))
    return counts


def total(server: Server, topic: str) -> int:
    return sum(map(len, counted(server, topic).values()))


def end_well(program: RunningProgram) -> None:
    program.stop()
    assert program.of("closed") == [True] and not program.of("failed"), program.text
