"""The broker configs of Kafka's for share groups and their coordinators (KIP-932)."""

from __future__ import annotations

from appliance.base.config_types import ConfigKey, ConfigType, Importance, row

INT, SHORT, STRING, LIST = ConfigType.INT, ConfigType.SHORT, ConfigType.STRING, ConfigType.LIST
HIGH = Importance.HIGH
_ONE_LOOP = "each broker is one process with one event loop"
_NO_LINGER = "what is decided in one turn of the loop is one batch"


_Bounds = tuple[int, int | None]


def _limits(what: str, least: int, most: int, doc: str, of_least: _Bounds, of_most: _Bounds) -> tuple[ConfigKey, ...]:
    """The bounds of what may be set for one group, and what may be set for them."""
    return (
        row(
            f"group.share.min.{what}",
            INT,
            least,
            f"The least that may be set for a share group: {doc}.",
            low=of_least[0],
            high=of_least[1],
        ),
        row(
            f"group.share.max.{what}",
            INT,
            most,
            f"The most that may be set for a share group: {doc}.",
            low=of_most[0],
            high=of_most[1],
        ),
    )


SHARE_CONFIGS = (
    *_limits("session.timeout.ms", 45_000, 60_000, "how long a member may be silent", (1, None), (1, None)),
    *_limits("heartbeat.interval.ms", 5_000, 15_000, "how often members are to be heard", (1, None), (1, None)),
    *_limits("assignment.interval.ms", 0, 15_000, "the time between assignments", (0, None), (0, None)),
    *_limits(
        "record.lock.duration.ms",
        15_000,
        60_000,
        "how long a reader has for a record",
        (1_000, 30_000),
        (30_000, 3_600_000),
    ),
    *_limits("delivery.count.limit", 2, 10, "how often a record is handed out", (2, 5), (5, 25)),
    *_limits(
        "partition.max.record.locks",
        100,
        4_000,
        "records of a partition that are handed out at once",
        (100, 2_000),
        (2_000, 10_000),
    ),
    row("group.share.max.size", INT, 200, "How many members a share group may have.", low=1, high=1_000),
    row("group.share.max.share.sessions", INT, 2_000, "How many share sessions a broker has.", low=1),
    row(
        "group.share.initialize.retry.interval.ms",
        INT,
        30_000,
        "How long it takes until the state of a share group's partitions is asked for again.",
        low=1,
        internal=True,
    ),
    row(
        "group.share.assignors",
        LIST,
        ("simple",),
        "Assignors of share groups.",
        no_effect="there is one assignor",
    ),
    row(
        "share.coordinator.state.topic.num.partitions",
        INT,
        50,
        "Partitions of `__share_group_state`; fixed once it exists.",
        low=1,
        importance=HIGH,
    ),
    row(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        3,
        "Replicas of `__share_group_state`.",
        low=1,
        importance=HIGH,
    ),
    row(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        2,
        "In-sync replicas that `__share_group_state` needs.",
        low=1,
        importance=HIGH,
    ),
    row(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        100 << 20,
        "Size of a segment of `__share_group_state`.",
        low=1,
        importance=HIGH,
    ),
    row("share.coordinator.state.topic.compression.codec", INT, 0, "Codec of `__share_group_state`.", importance=HIGH),
    row(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        300_000,
        "How often `__share_group_state` is cut behind what is still needed.",
        low=1,
        internal=True,
    ),
    row(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        300_000,
        "When a share partition that does not change gets another snapshot.",
        low=1,
        internal=True,
    ),
    row(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        500,
        "Updates of a share partition between two snapshots.",
        low=0,
        high=500,
    ),
    row(
        "share.coordinator.write.timeout.ms",
        INT,
        5_000,
        "How long a write to `__share_group_state` may wait for its replicas.",
        low=1,
        importance=HIGH,
    ),
    row(
        "share.coordinator.threads",
        INT,
        1,
        "Threads of the share coordinator.",
        low=1,
        no_effect=_ONE_LOOP,
    ),
    row(
        "share.coordinator.load.buffer.size",
        INT,
        5 << 20,
        "Bytes read at once when a share coordinator loads its partition.",
        low=1,
        importance=HIGH,
        no_effect="a coordinator reads its partition batch by batch",
    ),
    row(
        "share.coordinator.append.linger.ms",
        INT,
        -1,
        "How long writes to `__share_group_state` wait for more.",
        low=-1,
        no_effect=_NO_LINGER,
    ),
    row(
        "share.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "The largest buffer that a share coordinator keeps.",
        low=512 << 10,
        dynamic=True,
        no_effect="no buffers are kept",
    ),
    row(
        "share.fetch.purgatory.purge.interval.requests",
        INT,
        1_000,
        "How often requests that wait are tidied up.",
        no_effect="a request that has been answered waits nowhere",
    ),
    row(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "What keeps the state of share groups.",
        no_effect="there is one, the share coordinator",
        internal=True,
    ),
)
