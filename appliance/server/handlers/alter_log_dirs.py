"""AlterReplicaLogDirs, versions 0 to 2 (KIP-113).

- Answered when each replica has its future log; copying goes on behind that.
- REPLICA_NOT_AVAILABLE: there is no such replica here yet; should one come, it begins in that directory.
- LOG_DIR_NOT_FOUND: no directory of this broker has that path · KAFKA_STORAGE_ERROR: it is offline, or another is.
- A partition that is named twice goes where it was named last.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import TopicPartition
from appliance.server.context import Broker
from appliance.server.requests import Pending, Request
from appliance.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def wanted_in(body: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """Where each replica is to go."""
    return {
        TopicPartition(topic.name, partition): directory.path
        for directory in body.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }


def answer_of(results: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), error in results.items():
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def handle(broker: Broker, request: Request) -> Pending:
    wanted = wanted_in(cast(AlterReplicaLogDirsRequest, request.body))
    pending = request.pending()
    results: dict[TopicPartition, ErrorCode] = {}

    def done(topic_partition: TopicPartition, error: ErrorCode) -> None:
        results[topic_partition] = error
        if len(results) == len(wanted):
            pending.answer(answer_of({each: results[each] for each in wanted}))

    if not wanted:
        pending.answer(AlterReplicaLogDirsResponse())
    for topic_partition, path in wanted.items():
        broker.moves.alter(topic_partition, path, partial(done, topic_partition))
    return pending
