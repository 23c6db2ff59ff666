"""A member of a share group as bare requests, so that a test sees each answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import split_batches
from appliance.records.reader import read_records
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from appliance.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from appliance.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

PATIENCE_S = 30.0
GROUP_RESOURCE = 32


def until(condition: Callable[[], object]) -> Any:
    """What the condition comes to once it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "this does not happen"
        time.sleep(0.02)
    return result


def configure_group(connection: Connection, group_id: str, **configs: str) -> None:
    """Kafka's names with _ for the dots, without the `share.` in front."""
    rows = [AlterableConfig(name="share." + key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=rows)
    answer = connection.call(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


class ShareMember:
    """One member that reads partitions of one topic."""

    def __init__(self, bootstrap: tuple[str, int], group_id: str, topic: str, member_id: str = "") -> None:
        self.group_id = group_id
        self.topic = topic
        self.member_id = member_id or str(uuid.uuid4())
        self.epoch = 0
        self.assigned: dict[uuid.UUID, list[int]] = {}
        self._bootstrap = Connection(*bootstrap)
        self._coordinator: Connection | None = None
        self._leader: Connection | None = None
        self._session_epoch = 0
        self.topic_id = uuid.UUID(int=0)

    def close(self) -> None:
        """Without a word to the group."""
        for connection in (self._coordinator, self._leader, self._bootstrap):
            if connection is not None:
                connection.close()
        self._coordinator = self._leader = None

    # The group

    def heartbeat(self, *, names: Sequence[str] | None = None, epoch: int | None = None) -> ShareGroupHeartbeatResponse:
        """One heartbeat to the coordinator, wherever it is."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=None if names is None else list(names),
        )

        def answered() -> ShareGroupHeartbeatResponse | None:
            if self._coordinator is None:
                found = self._bootstrap.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id]))
                (row,) = found.coordinators
                if row.error_code:
                    return None
                self._coordinator = Connection(row.host, row.port)
            answer = self._coordinator.call(request)
            again = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if answer.error_code in (*again, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self._coordinator.close()
                self._coordinator = None
                return None
            return answer

        answer: ShareGroupHeartbeatResponse = until(answered)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {row.topic_id: row.partitions for row in answer.assignment.topic_partitions}
        return answer

    def join(self) -> None:
        """Join, and be heard until there is something to read."""
        answer = self.heartbeat(names=[self.topic])
        assert answer.error_code == 0, answer
        until(lambda: self.assigned or (self.heartbeat() and False))

    def leave(self) -> None:
        answer = self.heartbeat(epoch=-1)
        assert (answer.error_code, answer.member_epoch) == (0, -1)

    # Records

    def to_leader(self, partition: int) -> Connection:
        """Connected to whoever leads the partition."""
        if self._leader is None:

            def found() -> Connection | None:
                answer = self._bootstrap.call(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]), 12)
                row = answer.topics[0]
                self.topic_id = row.topic_id
                leaders = [each.leader_id for each in row.partitions if each.partition_index == partition]
                for broker in answer.brokers:
                    if leaders == [broker.node_id]:
                        return Connection(broker.host, broker.port)
                return None

            self._leader = until(found)
            self._session_epoch = 0
        return self._leader

    def ask(
        self, partition: int = 0, said: Mapping[tuple[int, int], int] | None = None, **options: Any
    ) -> ShareFetchResponse:
        """One ShareFetch to the leader of the partition; `said`: types by range of offsets."""
        leader = self.to_leader(partition)
        values = {"max_wait_ms": 500, "min_bytes": 1, "max_records": 500, "batch_size": 500, **options}
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=values.pop("epoch", self._session_epoch),
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[FetchPartition(partition_index=partition, acknowledgement_batches=_rows(said))],
                )
            ],
            **values,
        )
        answer = leader.call(request)
        if not answer.error_code and request.share_session_epoch >= 0:
            self._session_epoch = request.share_session_epoch + 1
        return answer

    def take(self, partition: int = 0, **options: Any) -> dict[int, tuple[bytes | None, int]]:
        """Values and delivery counts of records that are handed out, by offset."""
        taken: dict[int, tuple[bytes | None, int]] = {}
        for topic in self.ask(partition, **options).responses:
            for row in topic.partitions:
                assert row.error_code == 0, row
                counts = {
                    offset: each.delivery_count
                    for each in row.acquired_records
                    for offset in range(each.first_offset, each.last_offset + 1)
                }
                for batch in split_batches(bytes(row.records or b"")):
                    for record in read_records(batch):
                        if record.offset in counts:
                            taken[record.offset] = (record.value, counts[record.offset])
        return taken

    def say(self, said: Mapping[tuple[int, int], int], partition: int = 0, **options: Any) -> ErrorCode:
        """One ShareAcknowledge; the error of the partition, or of all."""
        leader = self.to_leader(partition)
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=options.pop("epoch", self._session_epoch),
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                                for (first, last), kind in said.items()
                            ],
                        )
                    ],
                )
            ],
            **options,
        )
        answer: ShareAcknowledgeResponse = leader.call(request)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        if request.share_session_epoch >= 0:
            self._session_epoch = request.share_session_epoch + 1
        rows = [row for topic in answer.responses for row in topic.partitions]
        return ErrorCode(rows[0].error_code) if rows else ErrorCode.NONE

    def end_session(self) -> None:
        """Say goodbye to the leader."""
        assert self.say({}, epoch=-1) is ErrorCode.NONE
        self._session_epoch = 0


def _rows(said: Mapping[tuple[int, int], int] | None) -> list[Any]:
    from appliance.wire.messages import share_fetch

    return [
        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for (first, last), kind in (said or {}).items()
    ]
