"""Fetch: read record batches, for consumers and followers.

v0 message sets of magic 0 · v1 throttle time · v2 magic 1 · v3 a limit for the whole answer · v4 batches,
read_committed · v5 log start offset · v7 sessions (KIP-227) · v9 leader epoch fencing (KIP-320) · v10 zstd (KIP-110)
· v11 reading from the closest replica (KIP-392) · v12 flexible, truncation by epoch (KIP-595) · v13 topic ids in
place of names (KIP-516) · v14 OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405) · v15 replica id and epoch in a tagged field
(KIP-903) · v16 the current leader's address comes with the error (KIP-951) · v17 directory ids (KIP-853) · v18 the
follower tells its high watermark (KIP-1166)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, Records, String, Uuid

TIERED_END_TAG = 10_001
"""Far above Kafka's own tags; whoever does not know it passes it over."""


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = field(since=9, default=-1, ignorable=True)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = field(since=12, default=-1)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = field(since=17, tag=0, ignorable=True)
    high_watermark: Int64 = field(since=18, default=2**63 - 1, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: String = field(until=12, ignorable=True)
    topic_id: Uuid = field(since=13, ignorable=True)
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic: String = field(until=12, ignorable=True)
    topic_id: Uuid = field(since=13, ignorable=True)
    partitions: list[Int32] = field()


class FetchRequest(Request["FetchResponse"], api_key=1, versions=(0, 18), flexible_from=12):
    cluster_id: String | None = field(since=12, default=None, tag=0, ignorable=True)
    replica_id: Int32 = field(until=14, default=-1)
    replica_state: ReplicaState = field(since=15, tag=1)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = field(since=3, default=2**31 - 1, ignorable=True)
    isolation_level: Int8 = field(since=4)
    session_id: Int32 = field(since=7, ignorable=True)
    session_epoch: Int32 = field(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field(since=7)
    rack_id: String = field(since=11, ignorable=True)


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = field(since=4, default=-1, ignorable=True)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(since=12, tag=0)
    current_leader: LeaderIdAndEpoch = field(since=12, tag=1)
    snapshot_id: SnapshotId = field(since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(since=4, ignorable=True)
    preferred_read_replica: Int32 = field(since=11, default=-1)
    tiered_end_offset: Int64 = field(since=12, tag=TIERED_END_TAG, default=-1)
    """Our own, for followers: the object store is confirmed to hold everything below."""
    records: Records | None = None


class FetchableTopicResponse(Struct):
    topic: String = field(until=12, ignorable=True)
    topic_id: Uuid = field(since=13, ignorable=True)
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(Struct, api_key=1, versions=(0, 18), flexible_from=12):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    error_code: Int16 = field(since=7, ignorable=True)
    session_id: Int32 = field(since=7)
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field(since=16, tag=0)
