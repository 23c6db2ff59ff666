"""A coordinator of groups with share groups on a bench: explicit time, topics, outcomes of the share coordinator."""

from __future__ import annotations

from typing import Any

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.records import decode_record
from appliance.consumer_groups.stored import StoredAllGroups
from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from appliance.groups.config import GroupConfig
from appliance.records.reader import read_records
from appliance.share_groups.config import ShareGroupConfig
from appliance.share_groups.machine import ShareGroups, StoredWithShares, decoding
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from appliance.wire.schema import Struct
from tests.support.consumer_group_bench import BenchWorld


class ShareGroupBench:
    """All of one partition of `__consumer_offsets`; what is written is committed at once."""

    def __init__(self, config: ShareGroupConfig | None = None) -> None:
        self.config = config or ShareGroupConfig(assignment_interval_ms=(0, 0, 0))
        self.world = BenchWorld()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.persist_error = ErrorCode.NONE
        self.persisted: list[Any] = []
        """Jobs of the share coordinator that are done."""
        self.holds_jobs = False
        self._held: list[Any] = []
        self.load()

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def load(self) -> None:
        """Begin as the next coordinator would, from the log."""
        stored = StoredWithShares(StoredAllGroups())
        decode = decoding(decode_record)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            stored.replay(record)
        others = AllGroupsMachine(
            GroupConfig(), ConsumerGroupConfig(), SeededRandomness(1), stored.others, lambda: self.world
        )
        self.machine = ShareGroups(others, stored.shares, self.config, lambda: self.world)
        self.shard: CoordinatorShard[Any] = CoordinatorShard(self.machine, ShardLimits())
        self.shard.decide(lambda: self.machine.loaded(self.now), self.now)

    def submit(self, request: Struct, version: int = 1) -> Any:
        """The answer; None while it waits."""
        call = Call(request, version, "client", "/host")
        self.shard.submit(call, self.now, after_writes_of=self.machine.must_wait(call))
        self.settle()
        for answer in self.shard.take_answers():
            if answer.call is call:
                return answer.response
        return None

    def settle(self) -> None:
        """Commit what is written, and let the share coordinator answer, until nothing is left."""
        while True:
            batch = self.shard.take_batch(self.now)
            if batch is not None:
                self.log += [(bytes(each.key or b""), each.value) for each in read_records(batch.payload)]
                self.shard.batch_done(batch, ErrorCode.NONE, self.now)
                continue
            jobs = [*self._held, *self.machine.take_persists()]
            if self.holds_jobs:
                self._held = jobs
                return
            self._held = []
            if not jobs:
                return
            for job in jobs:
                self.persisted.append(job)
                outcome = {(each.topic_id, each.partition): (self.persist_error, None) for each in job.places}
                self.shard.decide(
                    lambda job=job, outcome=outcome: self.machine.persisted(job, outcome, self.now), self.now
                )

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.tick(self.now)
        self.settle()

    def heartbeat(
        self, member_id: str = "m", epoch: int = 0, names: list[str] | None = None, group_id: str = "g", **values: Any
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=names, **values
        )
        answer: ShareGroupHeartbeatResponse = self.submit(request)
        return answer


def owned(response: ShareGroupHeartbeatResponse) -> dict[Any, list[int]]:
    """The partitions of an answer, by topic id."""
    assert response.error_code == 0, response
    assert response.assignment is not None
    return {row.topic_id: row.partitions for row in response.assignment.topic_partitions}
