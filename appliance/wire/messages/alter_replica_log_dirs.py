"""AlterReplicaLogDirs: move replicas between the log directories of one broker (KIP-113).

v2 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class AlterReplicaLogDirTopic(Struct):
    name: String = ""
    partitions: list[Int32] = field()


class AlterReplicaLogDir(Struct):
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = field()


class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], api_key=34, versions=(0, 2), flexible_from=2):
    dirs: list[AlterReplicaLogDir] = field()


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


class AlterReplicaLogDirsResponse(Struct, api_key=34, versions=(0, 2), flexible_from=2):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field()
