"""What members of a group have to do in any client: share a topic, take over, and read every record once.

A member tells `{"assigned": [partition, …]}` of what it holds and `{"read": [partition, offset]}` of each record, and
leaves in order on SIGTERM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.compat import Server, produce, wait_until
from tests.support.programs import RunningProgram

PARTITIONS = 4


def share_and_take_over(server: Server, topic: str, start: Callable[[], RunningProgram]) -> None:
    """Of a new topic with PARTITIONS partitions; `start` starts a member."""

    def send(count: int) -> None:
        for partition in range(PARTITIONS):
            produce(server, topic, [b"x"] * count, partition=partition)

    def holds(member: RunningProgram) -> list[int]:
        return next(reversed(member.of("assigned")), [])

    with _ending(start()) as first, _ending_later() as later:
        send(10)
        wait_until(lambda: len(first.of("read")) == 40 or first.code is not None)
        assert first.code is None, first.text
        second = later(start())
        wait_until(lambda: len(holds(first)) == len(holds(second)) == 2 or second.code is not None)
        assert sorted(holds(first) + holds(second)) == list(range(PARTITIONS)), first.text + second.text
        send(10)
        wait_until(lambda: len(first.of("read") + second.of("read")) >= 80)
        assert first.stop() == 0, first.text
        wait_until(lambda: len(holds(second)) == PARTITIONS)
        send(10)
        wait_until(lambda: len(first.of("read") + second.of("read")) >= 120)
        assert second.stop() == 0, second.text
        times = Counter(map(tuple, first.of("read") + second.of("read")))
        assert set(times) == {(partition, offset) for partition in range(PARTITIONS) for offset in range(30)}
        assert sum(times.values()) == 120, "nothing is read twice"


@contextmanager
def _ending(program: RunningProgram) -> Iterator[RunningProgram]:
    try:
        yield program
    finally:
        program.kill()


@contextmanager
def _ending_later() -> Iterator[Callable[[RunningProgram], RunningProgram]]:
    started: list[RunningProgram] = []

    def add(program: RunningProgram) -> RunningProgram:
        started.append(program)
        return program

    try:
        yield add
    finally:
        for program in started:
            program.kill()
