"""What consumers of the classic protocol tell each other: an int16 version, then one of these in that version.

Subscription: v1 owned partitions (KIP-429) · v2 generation · v3 rack (KIP-881)
"""

from __future__ import annotations

from appliance.wire.schema import Struct, field
from appliance.wire.types import Bytes, Int32, String


class TopicPartition(Struct):
    topic: String = ""
    partitions: list[Int32] = field()


class ConsumerProtocolSubscription(Struct, versions=(0, 3)):
    topics: list[String] = field()
    user_data: Bytes | None = None
    owned_partitions: list[TopicPartition] = field(since=1, ignorable=True)
    generation_id: Int32 = field(since=2, default=-1, ignorable=True)
    rack_id: String | None = field(since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Struct, versions=(0, 3)):
    assigned_partitions: list[TopicPartition] = field()
    user_data: Bytes | None = None
