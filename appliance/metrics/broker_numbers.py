"""What a broker counts, as one picture."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionNumbers:
    """One partition on this broker."""

    topic: str
    partition: int
    is_leader: bool
    is_offline: bool
    log_start_offset: int
    log_end_offset: int
    log_size_bytes: int
    tiered_end: int
    records_in: int
    bytes_in: int
    damaged_offsets: int = 0
    """So many offsets cannot be read, as far as that was noticed."""


@dataclass(slots=True)
class CleanerNumbers:
    """Compaction on one broker."""

    rounds: int
    cleaned_bytes: int
    written_bytes: int
    max_dirty_percent: int
    max_compaction_delay_seconds: float
    max_buffer_percent: int
    last_round_seconds: float
    seconds_since_last_look: float
    uncleanable_partitions: int
    uncleanable_bytes: int


@dataclass(slots=True)
class DirectoryNumbers:
    """One data directory of this broker."""

    path: str
    state: str
    """`online`, `full` or `offline`."""
    total_bytes: int
    free_bytes: int
    logs: int
    offline_partitions: int


@dataclass(slots=True)
class ReplicationNumbers:
    """How partitions are, as the metadata has it."""

    under_replicated: int
    """Of those that this broker leads, as the next two."""
    under_min_isr: int
    reassigning: int
    cluster_partitions: int
    cluster_offline: int
    """Nobody leads them."""
    cluster_preferred_away: int
    """Another than the first replica leads."""


@dataclass(slots=True)
class ClientNumbers:
    """What one client pushed of its metrics (KIP-714)."""

    labels: dict[str, str]
    """Who it is: `client_instance_id`, `client_id` and more."""
    about: tuple[tuple[str, str], ...] = ()
    """What it says of itself beside that."""
    series: tuple[tuple[str, tuple[tuple[str, str], ...], float], ...] = ()
    """Name, attributes, value."""


@dataclass(slots=True)
class BrokerNumbers:
    """One broker at one moment. Sizes in bytes, times in seconds; counters since the start."""

    broker_id: int
    requests: dict[str, int] = field(default_factory=dict)
    """By name of the API."""
    handler_errors: int = 0
    connections: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_throttled: int = 0
    """Above the rate of their address: closed after a while."""
    connections_delayed: int = 0
    """Let in, but had to wait at the door."""
    connections_delayed_seconds: float = 0.0
    connections_at_the_door: int = 0
    connections_closed_for_cause: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    loop_lag_max_seconds: float = 0.0
    """The longest that a timer was late since the last look."""
    loop_lag_counts: list[int] = field(default_factory=list)
    """How long the loop was busy at a stretch: counts by bucket of `latency_buckets`."""
    loop_lag_total_us: int = 0
    request_bytes: int = 0
    """Memory of requests that are being received, beyond each connection's first buffer."""
    connections_starved: int = 0
    """Connections whose request waits for such memory."""
    log_write_errors: int = 0
    repaired_segments: int = 0
    """So many had damage that was mended with batches from a replica or the tier."""
    helper_jobs: int = 0
    uploads: int = 0
    tiering_waiting_bytes: int = 0
    remote_fetch_waits_ms: tuple[float, int] = (0.0, 0)
    """How long reads of the tier had to wait: on average and at most."""
    has_lease: bool = False
    cleaner: CleanerNumbers | None = None
    replication: ReplicationNumbers | None = None
    partitions: list[PartitionNumbers] = field(default_factory=list)
    directories: list[DirectoryNumbers] = field(default_factory=list)
    produce_conversions: dict[str, int] = field(default_factory=dict)
    """Records of old clients that were made batches, by topic."""
    fetch_conversions: dict[str, int] = field(default_factory=dict)
    """Records that were made message sets for old clients."""
    conversion_bytes: int = 0
    conversions_refused: int = 0
    clients: list[ClientNumbers] = field(default_factory=list)
    telemetry: dict[str, int] = field(default_factory=dict)
    """What became of clients' pushes: so many by outcome."""
    unavailable_partitions: int = 0
    """Those whose logs may lie in a directory that cannot be used."""
