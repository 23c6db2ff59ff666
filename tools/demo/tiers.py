"""Where the records of a topic lie: on the brokers' disks, in the object store, or in both."""

from __future__ import annotations

import time
from dataclasses import dataclass

from appliance.base.ids import TopicPartition
from appliance.client.client import Client

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
SETTLE_TIMEOUT_S = 90


@dataclass(frozen=True, slots=True)
class PartitionTiers:
    """Offsets of one partition: all of [start, end), in the store [start, tiered_end), on disk [local_start, end)."""

    tp: TopicPartition
    start: int
    local_start: int
    tiered_end: int
    end: int


def tiers_of(client: Client, topic: str) -> list[PartitionTiers]:
    """How far each partition of a topic is tiered now."""
    tps = [TopicPartition(topic, number) for number in sorted(client.metadata([topic]).topics[topic].partitions)]
    asked = {what: client.list_offsets(dict.fromkeys(tps, what)) for what in (-2, EARLIEST_LOCAL, LATEST_TIERED, -1)}
    return [
        PartitionTiers(
            tp,
            asked[-2][tp].offset,
            asked[EARLIEST_LOCAL][tp].offset,
            # The answer is the last tiered offset, or -1.
            asked[LATEST_TIERED][tp].offset + 1,
            asked[-1][tp].offset,
        )
        for tp in tps
    ]


def wait_until_tiered(client: Client, topic: str) -> list[PartitionTiers]:
    """Wait until every partition has a part that lies in the object store only, and nothing moves any more."""
    deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
    before: list[PartitionTiers] = []
    while True:
        now = tiers_of(client, topic)
        if now == before and all(tiers.local_start > tiers.start for tiers in now):
            return now
        if time.monotonic() > deadline_s:
            return now
        before = now
        time.sleep(2)
