"""What the client's calls return and take."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from appliance.base.errors import ErrorCode


class OffsetResult(NamedTuple):
    """ListOffsets: both are -1 if no record has such a timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class AbortedTransaction(NamedTuple):
    """Records of this producer from this offset on, up to its abort marker, do not count."""

    producer_id: int
    first_offset: int


class FetchResult(NamedTuple):
    """Fetch: raw batches, the last possibly cut off; offsets below the asked one are the reader's to drop.

    `error` is NONE or OFFSET_OUT_OF_RANGE; then `records` is empty, and `log_start_offset` and `high_watermark` tell
    the range if the broker says it, else they are -1.
    """

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]
    records: bytes


class ProduceResult(NamedTuple):
    """Produce: `base_offset` is -1 with acks=0, `log_append_time_ms` -1 if the records keep their own timestamps."""

    base_offset: int
    log_append_time_ms: int


class EpochEnd(NamedTuple):
    """OffsetForLeaderEpoch: where the largest epoch up to the asked one ends; both -1 if there is none."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 stands for the broker's defaults. `assignments`: replicas of each partition."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


class CreatedTopic(NamedTuple):
    """What became of a new topic; counts are -1 and the id zero if the broker is too old to tell."""

    name: str
    topic_id: uuid.UUID
    num_partitions: int
    replication_factor: int


class ConfigResource(NamedTuple):
    """Whose configs: type 2 topic, 4 broker, 8 broker logger, 32 group."""

    resource_type: int
    name: str


TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


class ConfigEntry(NamedTuple):
    """One config. `source`: 1 topic, 2 dynamic broker, 3 dynamic default, 4 static broker, 5 default."""

    name: str
    value: str | None
    source: int
    read_only: bool
    is_sensitive: bool
    config_type: int
    documentation: str | None
