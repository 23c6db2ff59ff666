"""DescribeLogDirs, versions 0 to 5 (KIP-113).

- One result for each data directory. One that is offline answers KAFKA_STORAGE_ERROR, and nothing of what it holds.
- Sizes are those of the .log files. The lag is how far the log's end is behind the high watermark: 0 unless this
  replica is behind its leader, -1 where the partition is out of service. A future log's is what it has still to copy.
v3 an error for the whole answer · v4 total and usable bytes of the file system (KIP-827) · v5 cordoned, always false
"""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.log.log_directory import LogDirectory
from appliance.server.context import Broker
from appliance.server.requests import Pending, Request
from appliance.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

NO_LAG_KNOWN = -1


def describe_log_dirs(broker: Broker, request: Request) -> Pending:
    body = cast(DescribeLogDirsRequest, request.body)
    named = None if body.topics is None else {topic.topic: set(topic.partitions) for topic in body.topics}
    pending = request.pending()

    def done(_: object) -> None:
        results = [_result(broker, directory, named) for directory in broker.logs.directories]
        pending.answer(DescribeLogDirsResponse(results=results))

    # The free space as it is now. A failure is seen again, and acted on, when the broker itself looks.
    broker.background.run(broker.logs.check_space, done)
    return pending


def _result(broker: Broker, directory: LogDirectory, named: dict[str, set[int]] | None) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=str(directory.path))
    if not directory.is_usable:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.total_bytes, result.usable_bytes = directory.total_bytes, directory.free_bytes
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), log in sorted(directory.logs.copy().items()):
        if named is not None and index not in named.get(name, ()):
            continue
        hosted = broker.partitions.get(name, index)
        is_served = hosted is not None and hosted.log is log and not hosted.offline
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=log.size_bytes,
                offset_lag=max(0, hosted.high_watermark - log.log_end_offset) if is_served else NO_LAG_KNOWN,
            )
        )
    for moved in list(broker.logs.futures.under_way.values()):
        name, index = moved.log.topic_partition
        if moved.target is not directory or (named is not None and index not in named.get(name, ())):
            continue
        topics.setdefault(name, DescribeLogDirsTopic(name=name)).partitions.append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=moved.future.size_bytes,
                offset_lag=moved.lag,
                is_future_key=True,
            )
        )
    result.topics = list(topics.values())
    return result
