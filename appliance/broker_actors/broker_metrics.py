"""The numbers of a broker, picked up from its parts. Called from the exporter's thread: it only looks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.ids import uuid_to_text
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.controller.decisions import Rules
from appliance.controller.health import partition_health
from appliance.metrics.broker_numbers import (
    BrokerNumbers,
    CleanerNumbers,
    ClientNumbers,
    DirectoryNumbers,
    PartitionNumbers,
    ReplicationNumbers,
)
from appliance.wire.api import APIS, ApiKey

if TYPE_CHECKING:
    from appliance.broker_actors.broker import Broker

LAG_INTERVAL_MS = 100


class LoopLag:
    """How late timers are: what everybody on the loop waits for when somebody holds it up."""

    def __init__(self, background: Background, clock: Clock) -> None:
        self._background = background
        self._clock = clock
        self._max_ms = 0
        self._due_ms = 0

    def start(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + LAG_INTERVAL_MS
        self._background.schedule(LAG_INTERVAL_MS, self._fire)

    def take_max_ms(self) -> int:
        """The longest since the last call."""
        longest, self._max_ms = self._max_ms, 0
        return longest

    def _fire(self) -> None:
        self._max_ms = max(self._max_ms, self._clock.monotonic_ms() - self._due_ms)
        self.start()


def numbers_of(broker: Broker) -> BrokerNumbers:
    """One picture of the broker. Parts may move on while it is taken; each number is right by itself."""
    server = broker.server
    requests = {APIS[key].name: count for key, count in list(server.dispatcher.requests_by_api.items())}
    produce = APIS[ApiKey.PRODUCE].name
    requests[produce] = requests.get(produce, 0) + server.fast_requests
    fetch = APIS[ApiKey.FETCH].name
    requests[fetch] = requests.get(fetch, 0) + server.fast_fetches
    connections = list(server.connections)
    any_damage = not broker.logs.files.damage.is_empty
    return BrokerNumbers(
        broker_id=broker.broker_id,
        requests=requests,
        handler_errors=server.dispatcher.errors,
        connections=len(connections),
        connections_accepted=server.connections_accepted,
        connections_refused=server.admission.refused,
        connections_throttled=server.admission.throttled,
        connections_delayed=server.admission.delayed,
        connections_delayed_seconds=server.admission.delayed_ms / 1_000,
        connections_at_the_door=server.admission.waiting,
        connections_closed_for_cause=server.closed_for_cause,
        bytes_received=server.bytes_in + sum(each.bytes_in for each in connections),
        bytes_sent=server.bytes_out + sum(each.bytes_out for each in connections),
        loop_lag_max_seconds=broker.loop_lag.take_max_ms() / 1_000,
        loop_lag_counts=list(server.tick_lengths.counts),
        loop_lag_total_us=server.tick_lengths.total_us,
        request_bytes=server.request_bytes,
        connections_starved=len(server.starved),
        log_write_errors=broker.partitions.write_errors,
        repaired_segments=broker.repair.repaired_segments,
        helper_jobs=broker.background.unfinished,
        uploads=broker.tiering.uploads_under_way,
        tiering_waiting_bytes=sum(row.waiting_bytes for row in broker.tiering.status()),
        remote_fetch_waits_ms=broker.remote.waits_ms(),
        has_lease=broker.partitions.serving,
        cleaner=_cleaner_numbers(broker),
        replication=_replication_numbers(broker),
        partitions=[_numbers_of(hosted, any_damage) for hosted in _partitions(broker)],
        directories=_directories(broker),
        clients=_clients(broker),
        produce_conversions=dict(broker.conversions.produced),
        fetch_conversions=dict(broker.conversions.fetched),
        conversion_bytes=broker.conversions.bytes_under_way,
        conversions_refused=broker.conversions.refused,
        telemetry={
            "taken": broker.telemetry.taken,
            "throttled": broker.telemetry.throttled,
            "unknown_subscription": broker.telemetry.unknown_subscriptions,
            "rejected": broker.telemetry.rejected,
        },
        unavailable_partitions=len(broker.partitions.directories.unavailable),
    )


def _clients(broker: Broker) -> list[ClientNumbers]:
    return [
        ClientNumbers(
            {
                "client_instance_id": uuid_to_text(client.instance_id),
                "client_id": client.about.client_id,
                "software_name": client.about.software_name,
                "software_version": client.about.software_version,
                "principal": client.about.principal,
            },
            client.pushed.resource,
            client.pushed.series,
        )
        for client in broker.telemetry.clients(broker.clock.monotonic_ms())
    ]


def _replication_numbers(broker: Broker) -> ReplicationNumbers:
    rules = Rules(broker.config, broker.randomness)
    cluster = partition_health(broker.image, rules)
    led = partition_health(broker.image, rules, broker.broker_id)
    return ReplicationNumbers(
        under_replicated=led.under_replicated,
        under_min_isr=led.under_min_isr,
        reassigning=led.reassigning,
        cluster_partitions=cluster.partitions,
        cluster_offline=cluster.offline,
        cluster_preferred_away=cluster.preferred_away,
    )


def _cleaner_numbers(broker: Broker) -> CleanerNumbers:
    cleaner = broker.cleaner
    numbers = cleaner.numbers
    since_ms = cleaner.time_since_last_run_ms
    refused = cleaner.refused_logs
    return CleanerNumbers(
        rounds=numbers.rounds,
        cleaned_bytes=numbers.cleaned_bytes,
        written_bytes=numbers.written_bytes,
        max_dirty_percent=numbers.max_dirty_percent,
        max_compaction_delay_seconds=numbers.max_compaction_delay_ms / 1_000,
        max_buffer_percent=numbers.max_buffer_percent,
        last_round_seconds=numbers.last_round_ms / 1_000,
        seconds_since_last_look=-0.001 if since_ms < 0 else since_ms / 1_000,
        uncleanable_partitions=len(refused),
        uncleanable_bytes=sum(log.size_bytes for log in refused),
    )


def _directories(broker: Broker) -> list[DirectoryNumbers]:
    offline = Counter(hosted.log.directory.parent for hosted in _partitions(broker) if hosted.offline)
    return [
        DirectoryNumbers(
            path=str(directory.path),
            state=directory.state.value,
            total_bytes=directory.total_bytes,
            free_bytes=directory.free_bytes,
            logs=len(directory.logs),
            offline_partitions=offline[directory.path],
        )
        for directory in broker.logs.directories
    ]


def _partitions(broker: Broker) -> list[HostedPartition]:
    topics = list(broker.partitions.by_id.values())
    return [hosted for topic in topics for hosted in list(topic.partitions.values())]


def _numbers_of(hosted: HostedPartition, any_damage: bool) -> PartitionNumbers:
    return PartitionNumbers(
        topic=hosted.topic,
        partition=hosted.partition,
        is_leader=hosted.is_leader,
        is_offline=bool(hosted.offline),
        log_start_offset=hosted.log_start_offset,
        log_end_offset=hosted.log_end_offset,
        log_size_bytes=hosted.log.size_bytes,
        tiered_end=hosted.tiered_end,
        records_in=hosted.records_in,
        bytes_in=hosted.bytes_in,
        damaged_offsets=sum(end - start for start, end, *_ in hosted.log.damage) if any_damage else 0,
    )
