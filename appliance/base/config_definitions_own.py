"""The broker configs that only we have: lease and controller timers, tiering, limits."""

from __future__ import annotations

from appliance.base.config_definitions_topic import DAY_MS, HOUR_MS
from appliance.base.config_types import ConfigKey, ConfigType, Importance, Value, row, table

INT, LONG, STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING


def _own(
    name: str, type_: ConfigType, default: Value, doc: str, low: int | None = 1, *, dynamic: bool = False
) -> ConfigKey:
    return row(name, type_, default, doc, low=low, dynamic=dynamic, ours=True, importance=Importance.MEDIUM)


# Who lives and who leads; the inequalities between them are checked in `config.py`.
_LEASES = (
    _own("broker.lease.ms", INT, 2_000, "How long a broker may serve after the send of its last answered heartbeat."),
    _own(
        "broker.lease.margin.ms",
        INT,
        500,
        "How much longer than the lease the controller waits before it fences a silent broker.",
    ),
    _own(
        "broker.loop.stall.max.ms",
        INT,
        500,
        "A broker whose event loop has not ticked for this long sends no heartbeat.",
    ),
    _own(
        "controller.reconnect.timeout.ms",
        INT,
        200,
        "How long the controller tries to reconnect when a broker's connection ends.",
    ),
    _own(
        "controller.proof.interval.ms",
        INT,
        1_000,
        "How often the active controller proves to the object store that it still leads.",
    ),
    _own(
        "unclean.recovery.timeout.ms",
        INT,
        5_000,
        "How long the controller waits, before an unclean election, for living replicas to say how long their logs "
        "are.",
    ),
    _own(
        "message.conversion.max.bytes",
        INT,
        64 << 20,
        "How many bytes may be converted for old clients (Produce 0-2, Fetch 0-3) at the same time; others come again.",
    ),
    _own("controller.proof.max.ms", INT, 3_000, "A controller whose last proof is older grants only soft leases."),
    _own(
        "controller.takeover.ms", INT, 2_000, "How long a standby waits for the active controller before it takes over."
    ),
    row(
        "controller.fast.failover",
        ConfigType.BOOLEAN,
        True,
        "Whether a broker whose connection ends and whose port refuses counts as gone at once. Turn it off where a "
        "proxy or a rejecting firewall stands between controllers and brokers.",
        ours=True,
    ),
    row(
        "cluster.id",
        STRING,
        None,
        "The id that a new cluster takes; one that exists must have it. Without it a random one is made.",
        ours=True,
    ),
    row(
        "leader.imbalance.per.broker.percentage",
        INT,
        0,
        "Leaderships go back to a broker when others lead more than this share of the partitions that prefer it.",
        low=0,
        ours=True,
    ),
    _own(
        "metadata.store.request.timeout.ms",
        INT,
        2_000,
        "How long one request of the controller to the object store may take.",
    ),
    _own("metadata.snapshot.interval.commits", INT, 100, "After how many commits the controller writes a snapshot."),
)

_TIERING = (
    _own(
        "object.store.url",
        STRING,
        None,
        "The object store of metadata and tier: file://…, s3://bucket/prefix, gs://…, abfs://…; `--object-store`.",
        None,
    ),
    _own("tiering.max.lag.ms", LONG, HOUR_MS, "Default of a topic's `tiering.max.lag.ms`.", dynamic=True),
    _own("tiering.task.interval.ms", INT, 1_000, "How often a broker decides what to upload, to list and to delete."),
    _own("tiering.upload.timeout.ms", INT, 30_000, "The deadline of an upload, without the time that its bytes need."),
    _own(
        "tiering.upload.min.bytes.per.second",
        LONG,
        4 << 20,
        "The rate at which an upload's bytes lengthen its deadline.",
    ),
    _own("tiering.upload.max.in.flight", INT, 8, "How many uploads one broker has under way."),
    _own(
        "tiering.retry.backoff.ms",
        INT,
        1_000,
        "How long tiering waits after its first failure; doubled with each more, with jitter.",
    ),
    _own("tiering.retry.backoff.max.ms", INT, 60_000, "The longest that tiering waits after a failure."),
    _own(
        "tiering.delete.delay.ms",
        LONG,
        HOUR_MS,
        "How long readers may still use an object that the manifest does not list any more.",
        0,
    ),
    _own(
        "tiering.merge.min.age.ms",
        LONG,
        6 * HOUR_MS,
        "How old small neighbouring objects of a partition must be before they become one object; -1: they never do.",
        -1,
    ),
    _own(
        "tiering.sweep.interval.ms", LONG, 7 * DAY_MS, "How often the leader looks for objects that no manifest lists."
    ),
    _own(
        "tiering.groups.interval.ms",
        INT,
        60_000,
        "How often what groups have committed, and states of share groups, go to the object store, if there is news.",
    ),
    row(
        "restore.offset.gap",
        INT,
        1 << 30,
        "So many offsets are left out when a lost log is restored from the object store: readers may have seen them.",
        low=0,
        high=(1 << 31) - 1,
        ours=True,
        importance=Importance.MEDIUM,
    ),
    _own("tiering.manifest.cache.max.age.ms", INT, 60_000, "How long a reader trusts its copy of a manifest.", 0),
    _own("tiering.chunk.bytes", INT, 1 << 20, "How much is read at once from the object store.", 1 << 12),
    row(
        "s3.sse",
        STRING,
        "none",
        "What each write to an S3 bucket asks for: `AES256` (SSE-S3), `aws:kms` (SSE-KMS); `none`: as the bucket does.",
        choices=("none", "AES256", "aws:kms"),
        ours=True,
    ),
    row(
        "s3.sse.kms.key.id",
        STRING,
        "",
        "Id, ARN or alias of the key for `aws:kms`; empty for the account's own.",
        ours=True,
    ),
    _own(
        "tiering.chunk.cache.bytes",
        LONG,
        1 << 30,
        "How much of the object store is kept on a broker's disk for readers.",
        0,
    ),
)

_LIMITS = (
    _own(
        "producer.ids.per.partition.max",
        INT,
        100_000,
        "How many idempotent producers a partition remembers. For a new one beyond, those that wrote longest ago are "
        "forgotten; of a forgotten one, a repeated batch is not recognised.",
    ),
    _own(
        "log.dir.min.free.bytes",
        LONG,
        256 << 20,
        "A data directory that was full takes writes again when this much is free.",
        0,
    ),
    _own(
        "min.incremental.fetch.session.eviction.ms",
        LONG,
        120_000,
        "How long a fetch session keeps its place after it was used (KIP-227), while others want one.",
        0,
    ),
    _own(
        "log.writeback.bytes",
        INT,
        8 << 20,
        "After so many bytes of a segment the kernel is told to write them to the disk, so that it never has to make "
        "the broker wait; 0 leaves it to itself.",
        0,
    ),
    _own("log.stray.keep.ms", LONG, DAY_MS, "How long a log that no topic owns any more is kept.", 0),
    _own(
        "connection.max.in.flight.requests",
        INT,
        256,
        "How many unanswered requests one connection may have before it is read no further.",
    ),
    _own(
        "socket.send.buffer.large.bytes",
        INT,
        1 << 20,
        "What the system takes at once of answers to a connection that reads large slices; 0: no more than of others.",
        0,
    ),
    _own("background.queue.max", INT, 1_000, "How much work may wait for helper threads before requests are refused."),
    _own(
        "service.restart.backoff.ms",
        INT,
        500,
        "How long the supervisor waits before it starts an ended process again; doubled with each more.",
    ),
    _own(
        "service.restart.backoff.max.ms",
        INT,
        10_000,
        "The longest that the supervisor waits before it starts an ended process again.",
    ),
    _own(
        "metrics.port",
        INT,
        0,
        "Broker n serves `GET /metrics` for Prometheus at this port + n - 1, on the host it listens on; 0 serves none.",
        0,
    ),
    _own("lake.check.interval.ms", INT, 10_000, "How often the lake service looks for tiered records without files."),
    _own(
        "lake.iceberg.catalog",
        ConfigType.PASSWORD,
        None,
        "The catalog of Iceberg tables: pyiceberg's properties as key=value with commas between, for instance "
        "type=rest,uri=https://…; without it an SQLite file in the lake service's folder.",
        None,
    ),
    _own("lake.iceberg.namespace", STRING, "appliance", "The namespace of Iceberg tables in their catalog.", None),
    _own("up.ready.timeout.ms", INT, 120_000, "How long `appliance up` waits for its processes to be ready."),
)

OWN_BROKER_CONFIGS = table(*_LEASES, *_TIERING, *_LIMITS)
"""Our own broker configs by name."""
