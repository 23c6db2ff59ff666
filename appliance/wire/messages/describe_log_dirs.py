"""DescribeLogDirs: the log directories of a broker and what lies in them (KIP-113).

v2 flexible · v3 an error for the whole answer · v4 size of the volume and what is free of it (KIP-827) · v5 whether a
directory takes no new partitions (KIP-1066)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String


class DescribableLogDirTopic(Struct):
    topic: String = ""
    partitions: list[Int32] = field()


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], api_key=35, versions=(0, 5), flexible_from=2):
    topics: list[DescribableLogDirTopic] | None = field()


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = field()


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = field(since=4, default=-1, ignorable=True)
    usable_bytes: Int64 = field(since=4, default=-1, ignorable=True)
    is_cordoned: Bool = field(since=5, ignorable=True)


class DescribeLogDirsResponse(Struct, api_key=35, versions=(0, 5), flexible_from=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = field()
