"""A broker's numbers under their names in Prometheus: those of Strimzi's dashboards where they exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.metrics.broker_numbers import BrokerNumbers, CleanerNumbers, PartitionNumbers, ReplicationNumbers
from appliance.metrics.clients import of_clients, of_conversions
from appliance.metrics.latency_buckets import cumulative_seconds, quantile_us


class BrokerCollector(Collector):
    """Asks for the numbers at each scrape, from the thread of whoever scrapes."""

    def __init__(self, numbers: Callable[[], BrokerNumbers]) -> None:
        self._numbers = numbers
        self._loop_lag_before: list[int] = []

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers()
        yield from _of_requests(numbers)
        yield from self._of_loop(numbers)
        yield from _of_partitions(numbers.partitions)
        if numbers.replication is not None:
            yield from _of_replication(numbers.replication)
        yield from _of_topics(numbers.partitions)
        yield from _of_directories(numbers)
        if numbers.cleaner is not None:
            yield from _of_cleaner(numbers.cleaner)
        yield from of_clients(numbers)
        yield from of_conversions(numbers)
        for name, text, value in (
            ("kafka_server_socket_server_metrics_connection_count", "Open connections.", numbers.connections),
            (
                "appliance_event_loop_lag_max_seconds",
                "Lateness of timers since the last scrape.",
                numbers.loop_lag_max_seconds,
            ),
            (
                "appliance_helper_jobs",
                "Work that waits for helper threads, or is under way in them.",
                numbers.helper_jobs,
            ),
            ("appliance_tiering_uploads", "Uploads under way.", numbers.uploads),
            (
                "kafka_server_brokertopicmetrics_remotecopylagbytes",
                "Closed segments not in the tier yet.",
                numbers.tiering_waiting_bytes,
            ),
            (
                "kafka_server_remotelogmanager_remote_fetch_throttle_time_avg",
                "How long reads of the tier had to wait in the last minute, in ms, on average.",
                numbers.remote_fetch_waits_ms[0],
            ),
            (
                "kafka_server_remotelogmanager_remote_fetch_throttle_time_max",
                "The same, at most.",
                numbers.remote_fetch_waits_ms[1],
            ),
            ("appliance_request_buffer_bytes", "Memory of large requests that come in.", numbers.request_bytes),
            (
                "appliance_connections_waiting_for_memory",
                "Connections whose request waits until queued.max.request.bytes has room.",
                numbers.connections_starved,
            ),
            (
                "appliance_connections_at_the_door",
                "Connections that wait to be let in, or to be closed.",
                numbers.connections_at_the_door,
            ),
            ("appliance_broker_lease", "1 while the broker may serve what it leads.", int(numbers.has_lease)),
        ):
            yield GaugeMetricFamily(name, text, value)
        for name, text, value in (
            ("appliance_connections_accepted", "Accepted connections.", numbers.connections_accepted),
            (
                "appliance_connections_refused",
                "Beyond max.connections.per.ip.",
                numbers.connections_refused,
            ),
            (
                "appliance_connections_throttled",
                "Connections beyond the rate of their address, which are never let in.",
                numbers.connections_throttled,
            ),
            (
                "appliance_connections_delayed",
                "Connections that had to wait for max.connections or max.connection.creation.rate.",
                numbers.connections_delayed,
            ),
            (
                "appliance_connections_delayed_seconds",
                "How long these had to wait, in all.",
                numbers.connections_delayed_seconds,
            ),
            (
                "appliance_connections_closed_for_cause",
                "Connections that broke the protocol or the network lost.",
                numbers.connections_closed_for_cause,
            ),
            ("appliance_received_bytes", "Bytes from clients.", numbers.bytes_received),
            ("appliance_sent_bytes", "Bytes to clients.", numbers.bytes_sent),
            ("appliance_log_write_errors", "Writes and flushes that the disk refused.", numbers.log_write_errors),
            ("appliance_log_repaired_segments", "Damaged segments that were mended.", numbers.repaired_segments),
            ("appliance_handler_errors", "Requests that failed by a mistake of ours.", numbers.handler_errors),
        ):
            yield CounterMetricFamily(name, text, value)

    def _of_loop(self, numbers: BrokerNumbers) -> Iterator[Metric]:
        """How long the loop is busy at a stretch, as a histogram, and its tail since the last scrape."""
        counts, before = numbers.loop_lag_counts, self._loop_lag_before
        if not counts:
            return
        self._loop_lag_before = counts
        yield HistogramMetricFamily(
            "appliance_event_loop_lag_seconds",
            "How long the event loop was busy at a stretch, which all others had to wait.",
            buckets=cumulative_seconds(counts),
            sum_value=numbers.loop_lag_total_us / 1e6,
        )
        new = [now - then for now, then in zip(counts, before, strict=True)] if before else counts
        yield GaugeMetricFamily(
            "appliance_event_loop_lag_p999_seconds",
            "99.9 % of these stretches since the last scrape were shorter.",
            quantile_us(new, 0.999) / 1e6,
        )


def _of_cleaner(cleaner: CleanerNumbers) -> Iterator[Metric]:
    for name, text, value in (
        (
            "kafka_log_logcleaner_max_clean_time_secs",
            "How long the last round of compaction took.",
            cleaner.last_round_seconds,
        ),
        (
            "kafka_log_logcleaner_max_compaction_delay_secs",
            "By how much max.compaction.lag.ms is exceeded somewhere.",
            cleaner.max_compaction_delay_seconds,
        ),
        (
            "kafka_log_logcleaner_max_buffer_utilization_percent",
            "How full the map of keys was in the last round.",
            cleaner.max_buffer_percent,
        ),
        (
            "kafka_log_logcleanermanager_max_dirty_percent",
            "Share of the dirtiest log that is not compacted.",
            cleaner.max_dirty_percent,
        ),
        (
            "kafka_log_logcleanermanager_time_since_last_run_ms",
            "Since logs were last looked at; -1 before.",
            1_000 * cleaner.seconds_since_last_look,
        ),
        (
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "Logs that are left alone for damage.",
            cleaner.uncleanable_partitions,
        ),
        ("kafka_log_logcleanermanager_uncleanable_bytes", "The size of these.", cleaner.uncleanable_bytes),
    ):
        yield GaugeMetricFamily(name, text, value)
    for name, text, value in (
        ("appliance_log_cleaner_rounds", "Rounds of compaction that came to their end.", cleaner.rounds),
        ("appliance_log_cleaner_read_bytes", "Bytes that they read.", cleaner.cleaned_bytes),
        ("appliance_log_cleaner_written_bytes", "Bytes that they wrote.", cleaner.written_bytes),
    ):
        yield CounterMetricFamily(name, text, value)


def _of_requests(numbers: BrokerNumbers) -> Iterator[Metric]:
    requests = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests by API.", labels=["request"])
    for name, count in sorted(numbers.requests.items()):
        requests.add_metric([name], count)
    yield requests


def _of_replication(numbers: ReplicationNumbers) -> Iterator[Metric]:
    for name, text, value in (
        ("server_replicamanager_underreplicatedpartitions", "Led here, not all in sync.", numbers.under_replicated),
        ("server_replicamanager_underminisrpartitioncount", "Led here, too few in sync.", numbers.under_min_isr),
        ("server_replicamanager_reassigningpartitions", "Led here, being moved.", numbers.reassigning),
        ("controller_kafkacontroller_globalpartitioncount", "In the cluster.", numbers.cluster_partitions),
        ("controller_kafkacontroller_offlinepartitionscount", "Without a leader.", numbers.cluster_offline),
        (
            "controller_kafkacontroller_preferredreplicaimbalancecount",
            "Not led by their first replica.",
            numbers.cluster_preferred_away,
        ),
    ):
        yield GaugeMetricFamily(f"kafka_{name}", text, value)


def _of_partitions(partitions: list[PartitionNumbers]) -> Iterator[Metric]:
    yield GaugeMetricFamily("kafka_server_replicamanager_partitioncount", "Partitions here.", len(partitions))
    leaders = sum(each.is_leader for each in partitions)
    yield GaugeMetricFamily("kafka_server_replicamanager_leadercount", "Partitions led here.", leaders)
    offline = sum(each.is_offline for each in partitions)
    yield GaugeMetricFamily("kafka_server_replicamanager_offlinereplicacount", "Out of service.", offline)
    labels = ["topic", "partition"]
    start = GaugeMetricFamily("kafka_topic_partition_oldest_offset", "Log start.", labels=labels)
    end = GaugeMetricFamily("kafka_topic_partition_current_offset", "Log end.", labels=labels)
    size = GaugeMetricFamily("kafka_log_log_size", "Bytes on this disk.", labels=labels)
    tiered = GaugeMetricFamily("appliance_tiered_end_offset", "End of what the tier holds.", labels=labels)
    for each in partitions:
        values = [each.topic, str(each.partition)]
        start.add_metric(values, each.log_start_offset)
        end.add_metric(values, each.log_end_offset)
        size.add_metric(values, each.log_size_bytes)
        tiered.add_metric(values, each.tiered_end)
    yield from (start, end, size, tiered)
    damaged = GaugeMetricFamily("appliance_log_damaged_offsets", "Offsets that cannot be read.", labels=labels)
    for each in partitions:
        if each.damaged_offsets:
            damaged.add_metric([each.topic, str(each.partition)], each.damaged_offsets)
    yield damaged


def _of_directories(numbers: BrokerNumbers) -> Iterator[Metric]:
    offline = sum(each.state == "offline" for each in numbers.directories)
    yield GaugeMetricFamily("kafka_log_logmanager_offlinelogdirectorycount", "Failed data directories.", offline)
    yield GaugeMetricFamily(
        "appliance_unavailable_partitions",
        "Partitions whose logs may lie in a data directory that cannot be used.",
        numbers.unavailable_partitions,
    )
    state = GaugeMetricFamily(
        "appliance_log_directory_state", "1 for the state that a data directory is in.", labels=["directory", "state"]
    )
    labels = ["directory"]
    total = GaugeMetricFamily("appliance_log_directory_total_bytes", "Size of its file system.", labels=labels)
    free = GaugeMetricFamily("appliance_log_directory_free_bytes", "Free bytes of its file system.", labels=labels)
    logs = GaugeMetricFamily("appliance_log_directory_logs", "Logs in it.", labels=labels)
    out = GaugeMetricFamily(
        "appliance_log_directory_offline_partitions", "Partitions in it out of service.", labels=labels
    )
    for each in numbers.directories:
        for name in ("online", "full", "offline"):
            state.add_metric([each.path, name], int(each.state == name))
        for family, value in (
            (total, each.total_bytes),
            (free, each.free_bytes),
            (logs, each.logs),
            (out, each.offline_partitions),
        ):
            family.add_metric([each.path], value)
    yield from (state, total, free, logs, out)


def _of_topics(partitions: list[PartitionNumbers]) -> Iterator[Metric]:
    records: dict[str, int] = {}
    received: dict[str, int] = {}
    for each in partitions:
        records[each.topic] = records.get(each.topic, 0) + each.records_in
        received[each.topic] = received.get(each.topic, 0) + each.bytes_in
    for name, text, counts in (
        ("kafka_server_brokertopicmetrics_messagesin", "Appended records.", records),
        ("kafka_server_brokertopicmetrics_bytesin", "Appended bytes.", received),
    ):
        family = CounterMetricFamily(name, text, labels=["topic"])
        for topic, count in counts.items():
            family.add_metric([topic], count)
        yield family
