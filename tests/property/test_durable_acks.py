"""With flush.messages=1 the power goes at every single change to the disk, and what was acknowledged is there.

Through the broker's own partitions: appends of several ticks, flushes in a helper thread that begin and end in between.
"""

from __future__ import annotations

import random
import uuid

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.partition_host import PartitionHost
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import MetadataImage
from appliance.controller.records import PartitionChanged, PartitionState, TopicConfigSet, TopicCreated
from appliance.log.flush import Flush
from appliance.records.builder import build_batch
from tests.support.fault_disk import FaultDisk, Loss
from tests.support.hand_loop import HandBackground, HandClock
from tests.support.log_life import new_disk, open_manager
from tests.support.logs import START_MS, config_of, read_all
from tests.support.seeds import seeds

ME = 1
TOPIC_ID = uuid.UUID(int=77)
PARTITIONS = 2
STEPS = 60


class World:
    """A broker's partitions on a disk that tells before each change."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = new_disk(seed)
        clock = HandClock()
        self.background = HandBackground(clock, later=True)
        self.host = PartitionHost(
            ME, open_manager(self.disk, "boot-0"), BrokerConfig({}), clock, self.background, lambda: None
        )
        self.host.set_serving(True)
        delta = MetadataDelta(MetadataImage())
        delta.apply_commit(
            1,
            [
                TopicCreated("t", TOPIC_ID),
                TopicConfigSet(TOPIC_ID, "flush.messages", "1"),
                *[PartitionChanged(TOPIC_ID, PartitionState(n, ME, 0, 0, (ME,), (ME,))) for n in range(PARTITIONS)],
            ],
        )
        self.host.apply(delta.build(), sorted(delta.changed_topics))
        self.background.do_work()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.cuts = self.count = 0
        self.disk.watch = self._cut_the_power

    def partition(self, number: int) -> HostedPartition:
        hosted = self.host.get("t", number)
        assert hosted is not None
        return hosted

    def live(self) -> None:
        for _ in range(STEPS):
            deed = self.random.choice([self._append, self._append, self._tick, self._flush, self._roll])
            deed()
        self._tick()
        self.background.do_work()
        assert len(self.acknowledged) == self.count

    def _append(self) -> None:
        number = self.random.randrange(PARTITIONS)
        value = b"%d" % self.count * self.random.choice([1, 40])
        self.count += 1

        def told(error: ErrorCode, offset: int) -> None:
            assert error is ErrorCode.NONE
            self.acknowledged[number, offset] = value

        self.partition(number).append_records(build_batch([(START_MS, None, value, ())]), told)

    def _tick(self) -> None:
        self.host.end_of_tick()

    def _flush(self) -> None:
        """One helper thread is done."""
        if self.background.waiting:
            rest = self.background.waiting[1:]
            del self.background.waiting[1:]
            work, done = self.background.waiting.pop()
            self.background.waiting += rest
            done(work())

    def _roll(self) -> None:
        self._tick()
        self.partition(self.random.randrange(PARTITIONS)).log.roll(START_MS)

    def _cut_the_power(self) -> None:
        self.cuts += 1
        loss = Loss.EVERYTHING if self.cuts % 2 else Loss.SOMETHING
        disk = self.disk.copy(self.cuts)
        disk.restart(power_cut=True, loss=loss)
        found = values_on(disk)
        for (number, offset), value in self.acknowledged.items():
            assert found.get((number, offset)) == value, f"{offset} of {number} is lost at cut {self.cuts} ({loss})"


def values_on(disk: FaultDisk) -> dict[tuple[int, int], bytes | None]:
    logs = open_manager(disk, "boot-1").load_all(lambda topic: config_of())
    return {(name.partition, record.offset): record.value for name, log in logs.items() for record in read_all(log)}


@pytest.mark.parametrize("seed", seeds(4))
def test_what_was_acknowledged_survives_a_power_cut(seed: int) -> None:
    world = World(seed)
    world.live()
    print(f"seed {seed}: {world.cuts} power cuts, {len(world.acknowledged)} acknowledged records")
    assert world.cuts > 100 and world.disk.calls["fdatasync"] < world.count * 2


def test_a_flush_that_flushes_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flush, "run", lambda flush: None)
    with pytest.raises(AssertionError, match="is lost"):
        World(0).live()
