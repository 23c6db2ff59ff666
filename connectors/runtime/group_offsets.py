"""Sink offsets: those of the consumer group `connect-<name>`, so that every lag tool sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.connection import ConnectionLost, error_of
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

NO_GENERATION = -1
"""Of somebody who commits without being a member: the partitions are dealt out by the supervisor."""


class GroupOffsets:
    """The committed offsets of one group, without membership."""

    def __init__(self, client: Client, group_id: str) -> None:
        self._client = client
        self.group_id = group_id
        self._coordinator: int | None = None

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets; partitions without one are left out. Raises: KafkaError, ConnectionLost."""
        cluster = self._client.metadata(sorted({tp.topic for tp in partitions}))
        topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=cluster.topic_id(topic), partition_indexes=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ]
        names = {cluster.topic_id(topic.name): topic.name for topic in topics}
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)])
        try:
            answer = self._client.call(request, self._find_coordinator())
        except ConnectionLost:
            self._coordinator = None
            raise
        found = {}
        for group in answer.groups:
            self._raise(group.error_code)
            for row in group.topics:
                for part in row.partitions:
                    self._raise(part.error_code)
                    if part.committed_offset >= 0:
                        tp = TopicPartition(row.name or names[row.topic_id], part.partition_index)
                        found[tp] = part.committed_offset
        return found

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises: KafkaError, ConnectionLost; whether it was done is then not known, and doing it again is safe."""
        cluster = self._client.metadata(sorted({tp.topic for tp in offsets}))
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=cluster.topic_id(topic),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offsets[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id, generation_id_or_member_epoch=NO_GENERATION, member_id="", topics=topics
        )
        try:
            answer = self._client.call(request, self._find_coordinator())
        except ConnectionLost:
            self._coordinator = None
            raise
        for topic_row in answer.topics:
            for part in topic_row.partitions:
                self._raise(part.error_code)

    def _find_coordinator(self) -> int:
        if self._coordinator is None:
            answer = self._client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id]))
            found = answer.coordinators[0]
            self._raise(found.error_code)
            self._coordinator = found.node_id
        return self._coordinator

    def _raise(self, code: int) -> None:
        if code != ErrorCode.NONE:
            self._coordinator = None
            raise KafkaError(error_of(code), f"offsets of group {self.group_id}")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
