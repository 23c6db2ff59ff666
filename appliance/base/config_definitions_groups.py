"""The broker configs of Kafka's that coordinators read: groups, transactions, share groups."""

from __future__ import annotations

from appliance.base.config_definitions_resources import GROUP_DEFAULT_CONFIGS
from appliance.base.config_definitions_share import SHARE_CONFIGS
from appliance.base.config_definitions_topic import DAY_MS
from appliance.base.config_types import ConfigType, Importance, row

INT, SHORT, LONG, LIST = ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.LIST
HIGH = Importance.HIGH
MAX_INT = 2**31 - 1

_ONE_LOOP = "each broker is one process with one event loop"


def _is_migration_policy(value: object) -> str | None:
    known = str(value).lower() in ("bidirectional", "upgrade", "downgrade", "disabled")
    return None if known else "must be bidirectional, upgrade, downgrade or disabled, in any case of letters"


_CONSUMER_GROUPS = (
    row(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that may be set for a consumer group.",
        low=1,
    ),
    row(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session timeout that may be set for a consumer group.",
        low=1,
    ),
    row(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that may be set for a consumer group.",
        low=1,
    ),
    row(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that may be set for a consumer group.",
        low=1,
    ),
    row(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The shortest time between assignments that may be set for a consumer group.",
        low=0,
    ),
    row(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest time between assignments that may be set for a consumer group.",
        low=0,
    ),
    row("group.consumer.max.size", INT, MAX_INT, "How many members a consumer group may have.", low=1),
    row(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "Assignors that members may choose; the first is the default.",
        choices=("uniform", "range"),
    ),
    row(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Which groups may change their protocol while members live: to the new one (upgrade), back (downgrade), both.",
        check=_is_migration_policy,
        allowed="bidirectional, upgrade, downgrade, disabled",
    ),
    row(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        600_000,
        "How often the topics of subscriptions by regular expression are looked at, at the latest.",
        low=10_000,
        internal=True,
    ),
)

_STREAMS_GROUPS = (
    row(
        "group.streams.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that may be set for a group of Kafka Streams.",
        low=1,
    ),
    row(
        "group.streams.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session timeout that may be set for a group of Kafka Streams.",
        low=1,
    ),
    row(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that may be set for a group of Kafka Streams.",
        low=1,
    ),
    row(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that may be set for a group of Kafka Streams.",
        low=1,
    ),
    row(
        "group.streams.min.assignment.interval.ms",
        INT,
        0,
        "The shortest time between assignments that may be set for a group of Kafka Streams.",
        low=0,
    ),
    row(
        "group.streams.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest time between assignments that may be set for a group of Kafka Streams.",
        low=0,
    ),
    row("group.streams.max.size", INT, MAX_INT, "How many members a group of Kafka Streams may have.", low=1),
    row(
        "group.streams.max.standby.replicas",
        INT,
        2,
        "How many standby copies of a task's state may be set for a group.",
        low=0,
    ),
)

COORDINATOR_CONFIGS = (
    *GROUP_DEFAULT_CONFIGS,
    row(
        "group.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long a new group waits for more members before its first rebalance.",
    ),
    row("group.max.session.timeout.ms", INT, 1_800_000, "The longest session timeout that a member may ask for."),
    row("group.min.session.timeout.ms", INT, 6_000, "The shortest session timeout that a member may ask for."),
    row("group.max.size", INT, MAX_INT, "How many members a group may have.", low=1),
    *_CONSUMER_GROUPS,
    *_STREAMS_GROUPS,
    row(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        "Which group protocols are served; the classic one always is.",
        choices=("consumer", "classic", "share", "streams"),
    ),
    row(
        "group.coordinator.threads",
        INT,
        4,
        "Threads of the group coordinator.",
        low=1,
        importance=HIGH,
        no_effect=_ONE_LOOP,
    ),
    row(
        "group.coordinator.background.threads",
        INT,
        2,
        "Threads for long work of the group coordinator.",
        low=1,
        no_effect="long work goes to the broker's helper threads",
    ),
    row(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        "How long writes to `__consumer_offsets` wait for more.",
        low=-1,
        no_effect="what is decided in one turn of the loop is one batch",
    ),
    row(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "The largest buffer that a group coordinator keeps.",
        low=512 << 10,
        dynamic=True,
        no_effect="no buffers are kept",
    ),
    row(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "The largest metadata text of a committed offset, in bytes.",
        importance=HIGH,
    ),
    row(
        "offsets.commit.timeout.ms", INT, 5_000, "How long a commit may wait for its replicas.", low=1, importance=HIGH
    ),
    row(
        "offsets.load.buffer.size",
        INT,
        5 << 20,
        "Bytes read at once when a coordinator loads its partition.",
        low=1,
        importance=HIGH,
        no_effect="a coordinator reads its partition batch by batch",
    ),
    row(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "How often expired offsets are looked for.",
        low=1,
        importance=HIGH,
    ),
    row(
        "offsets.retention.minutes", INT, 10_080, "How long offsets of an empty group are kept.", low=1, importance=HIGH
    ),
    row("offsets.topic.compression.codec", INT, 0, "Codec of `__consumer_offsets`.", importance=HIGH),
    row(
        "offsets.topic.num.partitions",
        INT,
        50,
        "Partitions of `__consumer_offsets`; fixed once it exists.",
        low=1,
        importance=HIGH,
    ),
    row(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "Replicas of `__consumer_offsets`, at most one a broker.",
        low=1,
        importance=HIGH,
    ),
    row("offsets.topic.segment.bytes", INT, 100 << 20, "Segment size of `__consumer_offsets`.", low=1, importance=HIGH),
    row(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        "Replicas of `__transaction_state`.",
        low=1,
        importance=HIGH,
    ),
    row(
        "transaction.state.log.min.isr",
        INT,
        2,
        "In-sync replicas that `__transaction_state` needs.",
        low=1,
        importance=HIGH,
    ),
    row(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "Partitions of `__transaction_state`.",
        low=1,
        importance=HIGH,
    ),
    row(
        "transaction.state.log.segment.bytes",
        INT,
        100 << 20,
        "Segment size of `__transaction_state`.",
        low=1,
        importance=HIGH,
    ),
    row(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        "The longest timeout that a transaction may ask for.",
        low=1,
        importance=HIGH,
    ),
    row(
        "transaction.state.log.load.buffer.size",
        INT,
        5 << 20,
        "Bytes read at once when a coordinator of transactions loads its partition.",
        low=1,
        importance=HIGH,
        no_effect="a coordinator reads its partition batch by batch",
    ),
    row(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "How often transactions are looked for that take too long.",
        low=1,
        importance=Importance.LOW,
        no_effect="each is ended when its time is over",
    ),
    row(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether a leader asks a transaction's coordinator before the first batch; transactions may hang without it.",
        dynamic=True,
        importance=Importance.LOW,
    ),
    row(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        "How often transactional ids that were silent for too long are looked for.",
        low=1,
    ),
    row(
        "transactional.id.expiration.ms",
        INT,
        7 * DAY_MS,
        "How long a silent transactional id is remembered.",
        low=1,
        importance=HIGH,
    ),
    *SHARE_CONFIGS,
)
