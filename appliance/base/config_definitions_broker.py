"""The broker configs that Apache Kafka 4.3 has too: those we honour, and those that files and tools bring along."""

from __future__ import annotations

import sys
from dataclasses import replace

from appliance.base.config_definitions_groups import COORDINATOR_CONFIGS
from appliance.base.config_definitions_security import SECURITY_CONFIGS
from appliance.base.config_definitions_topic import DAY_MS, MAX_LONG, TOPIC_CONFIGS
from appliance.base.config_types import ConfigKey, ConfigType, Importance, row, table

BOOLEAN, STRING, INT, SHORT, LONG, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.LIST,
)
HIGH, LOW = Importance.HIGH, Importance.LOW
MAX_INT = 2**31 - 1

_ROLES = "`appliance up` decides which process is a broker and which a controller"
_NO_QUORUM = "the metadata log lies in the object store, there is no quorum of controllers"
_ONE_LOOP = "each broker is one process with one event loop"
_SYSTEM_BUFFERS = "the operating system sizes the buffer"
_ONE_CHECKPOINT = "written together with the high watermarks, by `replica.high.watermark.checkpoint.interval.ms`"


def _connections_per_host(value: object) -> str | None:
    for entry in filter(None, map(str.strip, str(value or "").split(","))):
        host, _, count = entry.rpartition(":")
        if not host.strip() or not count.strip().isdecimal() or int(count) > MAX_INT:
            return f"{entry!r} is no host:count"
    return None


# Brokers, listeners and their limits.
_SERVER = (
    row("broker.id", INT, -1, "The broker's id.", importance=HIGH, no_effect="broker ids are 1 … N of `--brokers N`"),
    row(
        "broker.rack",
        STRING,
        None,
        "The failure domain for placement and for nearest fetch; by default the node's name.",
    ),
    row(
        "node.id",
        INT,
        -1,
        "The broker's id.",
        low=-1,
        importance=HIGH,
        no_effect="broker ids are 1 … N of `--brokers N`",
    ),
    row(
        "process.roles",
        LIST,
        ("broker",),
        "What a process is.",
        choices=("broker", "controller"),
        importance=HIGH,
        no_effect=_ROLES,
    ),
    row(
        "controller.listener.names", LIST, (), "Names of the controllers' listeners.", importance=HIGH, no_effect=_ROLES
    ),
    row(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        "Addresses of the controllers.",
        importance=HIGH,
        no_effect=_NO_QUORUM,
    ),
    row(
        "controller.quorum.voters", LIST, (), "Ids and addresses of the voters.", importance=HIGH, no_effect=_NO_QUORUM
    ),
    row("connections.max.idle.ms", LONG, 600_000, "A connection without a request for this long is closed."),
    row("max.connections", INT, MAX_INT, "How many connections a broker holds; more wait.", low=0, dynamic=True),
    row(
        "max.connections.per.ip",
        INT,
        MAX_INT,
        "How many connections a broker holds from one address; more are closed at once.",
        low=0,
        dynamic=True,
    ),
    row(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "The same for single addresses or hosts: `host1:100,10.0.0.7:200`.",
        check=_connections_per_host,
        dynamic=True,
    ),
    row(
        "max.connection.creation.rate",
        INT,
        MAX_INT,
        "How many connections a broker lets in per second; more wait.",
        low=0,
        dynamic=True,
    ),
    row(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "How many fetch sessions a broker remembers (KIP-227).",
        low=0,
    ),
    row(
        "max.request.partition.size.limit",
        INT,
        2000,
        "How many partitions one answer of DescribeTopicPartitions holds.",
        low=1,
    ),
    row(
        "socket.request.max.bytes",
        INT,
        100 << 20,
        "The largest request, in bytes; a larger one closes its connection.",
        low=1,
        importance=HIGH,
    ),
    row("socket.listen.backlog.size", INT, 50, "How many connections may wait to be accepted.", low=1),
    row(
        "socket.receive.buffer.bytes",
        INT,
        102_400,
        "Size of a socket's receive buffer.",
        importance=HIGH,
        no_effect=_SYSTEM_BUFFERS,
    ),
    row(
        "socket.send.buffer.bytes",
        INT,
        102_400,
        "Size of a socket's send buffer; -1 leaves it to the operating system.",
        importance=HIGH,
    ),
    row(
        "queued.max.request.bytes",
        LONG,
        256 << 20,
        "Memory for requests that are being received, of all connections together; below 0: no limit.",
    ),
    row("queued.max.requests", INT, 500, "How many requests may wait.", low=1, importance=HIGH, no_effect=_ONE_LOOP),
    row(
        "num.io.threads",
        INT,
        8,
        "Threads that handle requests.",
        low=1,
        importance=HIGH,
        dynamic=True,
        no_effect=_ONE_LOOP,
    ),
    row(
        "num.network.threads",
        INT,
        3,
        "Threads that read and write sockets.",
        low=1,
        importance=HIGH,
        dynamic=True,
        no_effect=_ONE_LOOP,
    ),
    row("telemetry.max.bytes", INT, 1 << 20, "The most that a client may push of its metrics (KIP-714).", low=1),
    row("quota.window.num", INT, 11, "Windows over which quotas are measured.", low=1, importance=LOW),
    row("quota.window.size.seconds", INT, 1, "Length of such a window.", low=1, importance=LOW),
    row(
        "controller.quota.window.num",
        INT,
        11,
        "Windows whose changes of topics may come in one burst under a quota.",
        low=1,
        importance=LOW,
    ),
    row("controller.quota.window.size.seconds", INT, 1, "Length of such a window.", low=1, importance=LOW),
    row(
        "background.threads",
        INT,
        10,
        "Helper threads of a broker, for work that must not sit on its event loop.",
        low=1,
        importance=HIGH,
    ),
    row("fetch.max.bytes", INT, 55 << 20, "The most that one fetch gives, in bytes.", low=1024),
    row("request.timeout.ms", INT, 30_000, "How long a broker waits for the controller's answer.", importance=HIGH),
    row(
        "metric.reporters",
        LIST,
        (),
        "Classes that report metrics.",
        importance=LOW,
        dynamic=True,
        no_effect="metrics are served for Prometheus",
    ),
)


# Topics: what new ones get, and what their configs default to.
def _topic_default(key: ConfigKey) -> ConfigKey:
    """The broker config that gives a topic config its default; the same type and limits."""
    name, *in_other_units = key.synonyms
    return replace(
        key,
        name=name,
        default=None if in_other_units else key.default,
        doc=f"Default of a topic's `{key.name}`"
        + ("; goes before the same in other units." if in_other_units else "."),
        dynamic=True,
        synonyms=(),
    )


_TOPICS = (
    *(_topic_default(key) for key in TOPIC_CONFIGS.values() if key.synonyms and not key.ours),
    row(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether asking for a topic that does not exist creates it.",
        importance=HIGH,
    ),
    row("default.replication.factor", INT, 1, "Replicas of a topic that does not say how many."),
    row("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted.", importance=HIGH),
    row("num.partitions", INT, 1, "Partitions of a topic that does not say how many.", low=1),
    row("log.flush.scheduler.interval.ms", LONG, MAX_LONG, "`log.flush.interval.ms` when that is not set."),
    row("log.retention.hours", INT, 168, "`log.retention.ms` in hours.", importance=HIGH),
    row("log.retention.minutes", INT, None, "`log.retention.ms` in minutes; goes before the hours.", importance=HIGH),
    row("log.roll.hours", INT, 168, "`log.roll.ms` in hours.", low=1, importance=HIGH),
    row("log.roll.jitter.hours", INT, 0, "`log.roll.jitter.ms` in hours.", low=0, importance=HIGH),
)

# Logs on disk, replication, tiering.
_STORAGE = (
    row("log.dir", LIST, ("/tmp/kafka-logs",), "The folder of the data, when `log.dirs` is not set.", importance=HIGH),
    row(
        "log.dirs",
        LIST,
        None,
        "Folders for the logs, one for each disk; each broker has a folder inside. One alone means `data.dir`.",
        importance=HIGH,
    ),
    row(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        "How often recovery points are written.",
        low=0,
        importance=HIGH,
        no_effect=_ONE_CHECKPOINT,
    ),
    row(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        60_000,
        "How often log start offsets are written.",
        low=0,
        importance=HIGH,
        no_effect=_ONE_CHECKPOINT,
    ),
    row("log.retention.check.interval.ms", LONG, 300_000, "How often retention looks for what may go.", low=1),
    row(
        "num.recovery.threads.per.data.dir",
        INT,
        8,
        "Threads for each data directory that recover logs at the start and flush them at the end.",
        low=1,
        importance=HIGH,
    ),
    row("log.cleaner.enable", BOOLEAN, True, "Whether compaction runs."),
    row(
        "log.cleaner.threads",
        INT,
        1,
        "Logs that each broker compacts at the same time, each in a helper process of its own.",
        low=0,
        dynamic=True,
    ),
    row(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long compaction sleeps when there is nothing to do.",
        low=0,
        dynamic=True,
    ),
    row(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "Memory for the keys of a round of compaction, for all helpers together, about 200 bytes for a key. What has "
        "more keys takes several rounds.",
        dynamic=True,
    ),
    row(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        sys.float_info.max,
        "What compaction reads and writes at most, all helpers together.",
        dynamic=True,
    ),
    row(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "How long a partition remembers a producer that writes no more.",
        low=1,
        importance=LOW,
    ),
    row(
        "producer.id.expiration.check.interval.ms",
        INT,
        600_000,
        "How often forgotten producers are looked for.",
        low=1,
        importance=LOW,
        internal=True,
    ),
    row("broker.heartbeat.interval.ms", INT, 250, "How often a broker tells the controller that it lives.", low=1),
    row(
        "broker.session.timeout.ms",
        INT,
        9_000,
        "How long a broker may be silent.",
        no_effect="`broker.lease.ms` takes its place",
    ),
    row(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Whether a broker hands its leaderships over before it ends.",
    ),
    row(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Whether leaderships go back to preferred replicas.",
        importance=HIGH,
    ),
    row(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "How often leaderships are compared with the preferred ones.",
        low=1,
        importance=HIGH,
    ),
    row(
        "num.replica.fetchers",
        INT,
        1,
        "Fetching connections to each leader.",
        low=1,
        importance=HIGH,
    ),
    row(
        "replica.fetch.backoff.ms",
        INT,
        1_000,
        "How long a follower waits after a failed fetch.",
        low=0,
    ),
    row(
        "replica.fetch.max.bytes",
        INT,
        1 << 20,
        "Bytes a partition in a follower's fetch.",
        low=0,
    ),
    row(
        "replica.fetch.min.bytes",
        INT,
        1,
        "Bytes that a follower's fetch waits for.",
        importance=HIGH,
    ),
    row(
        "replica.fetch.response.max.bytes",
        INT,
        10 << 20,
        "Bytes of a follower's fetch.",
        low=0,
    ),
    row("replica.fetch.wait.max.ms", INT, 500, "How long a follower's fetch waits for bytes.", importance=HIGH),
    row(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5_000,
        "How often high watermarks are written.",
        importance=HIGH,
    ),
    row(
        "replica.lag.time.max.ms",
        LONG,
        30_000,
        "How long a follower may be behind and still be in sync.",
        importance=HIGH,
    ),
    row(
        "replica.selector.class",
        STRING,
        None,
        "How a replica to read from is chosen: RackAwareReplicaSelector is the one in the reader's rack.",
    ),
    # Kafka has these three, but not among its broker configs.
    row(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "Bytes a second that are copied between the data directories of a broker.",
        low=1,
        dynamic=True,
        ours=True,
    ),
    row(
        "leader.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes a second that a broker sends, as a leader, to replicas that are not in sync and listed in "
        "`leader.replication.throttled.replicas` (KIP-73).",
        low=0,
        dynamic=True,
        ours=True,
    ),
    row(
        "follower.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes a second that a broker fetches for its replicas that are not in sync and listed in "
        "`follower.replication.throttled.replicas` (KIP-73).",
        low=0,
        dynamic=True,
        ours=True,
    ),
    row(
        "replica.socket.timeout.ms",
        INT,
        30_000,
        "How long a follower waits for an answer.",
        importance=HIGH,
    ),
    row("remote.log.storage.system.enable", BOOLEAN, True, "Whether topics may be tiered at all."),
    row("remote.fetch.max.wait.ms", INT, 500, "How long one fetch waits for the object store.", low=1),
    row(
        "remote.list.offsets.request.timeout.ms",
        LONG,
        30_000,
        "How long ListOffsets waits for the object store.",
        low=1,
        dynamic=True,
        no_effect="a request to the object store has its own time limits",
    ),
    row(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "How many bytes a second of segments a broker uploads on average.",
        low=1,
        dynamic=True,
    ),
    row(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "How many bytes a second consumers read from the object store through a broker before it begins no more reads.",
        low=1,
        dynamic=True,
    ),
    row(
        "remote.log.manager.fetch.quota.window.num",
        INT,
        11,
        "Over how many windows that rate is measured.",
        low=1,
    ),
    row(
        "remote.log.manager.fetch.quota.window.size.seconds",
        INT,
        1,
        "How long such a window is.",
        low=1,
    ),
    row("remote.log.reader.threads", INT, 10, "Threads that read from the object store.", low=1),
    row("remote.log.reader.max.pending.tasks", INT, 100, "How many reads may wait for these threads.", low=1),
)

KAFKA_BROKER_CONFIGS = table(*_SERVER, *_TOPICS, *_STORAGE, *COORDINATOR_CONFIGS, *SECURITY_CONFIGS)
"""Kafka's broker configs that we know, by name."""
