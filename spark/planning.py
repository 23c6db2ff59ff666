"""The driver's part: asks leaders for ends first, the object store for manifests second, and plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.cluster import ClusterMetadata
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.client.results import BROKER_RESOURCE, ConfigEntry, ConfigResource
from appliance.client.retries import RetryPolicy
from spark.option_values import OptionError
from spark.options import EARLIEST, LATEST, AtTimestamp, OffsetSpec, SourceOptions
from spark.plan import (
    HOT,
    NOTHING_TIERED,
    PartitionBounds,
    Range,
    Split,
    TierPiece,
    TierRange,
    check_partitions,
    offsets_at,
    plan_splits,
    resolve_ranges,
    spread,
)
from spark.stores import tier_reader

OBJECT_STORE_CONFIG = "object.store.url"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The splits of one batch; `object_store` is empty when nothing is read from it."""

    splits: list[Split]
    object_store: str


def plan_batch(options: SourceOptions) -> BatchPlan:
    """Plan a batch read.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or another error of the brokers.
        DataLoss, TierGap, ValueError: see `spark.plan`.
        UserError: the object store cannot be opened.
    """
    with asking(options) as client:
        cluster = client.metadata(None if options.subscribe_pattern else topics_of(options))
        bounds = bounds_of(client, options, partitions_of(options, cluster))
        topic_ids = {tp.topic: cluster.topic_id(tp.topic) for tp in bounds}
        starting = offsets_of(client, options, options.starting_offsets, bounds)
        ending = offsets_of(client, options, options.ending_offsets, bounds)
        ranges = resolve_ranges(bounds, topic_ids, starting, ending, options.fail_on_data_loss)
        url = "" if options.tier == HOT else object_store_url(options, client, cluster)
    splits = [split for range_ in ranges for split in plan_range(range_, options, url)]
    return BatchPlan(spread(splits, options.min_partitions, options.max_records_per_partition), url)


def asking(options: SourceOptions) -> Client:
    """The driver's client, which looks for ends and starts as often as the options say."""
    return connected(options, RetryPolicy(options.offset_retries, options.offset_retry_interval_ms))


def connected(options: SourceOptions, retries: RetryPolicy | None = None) -> Client:
    """A client that knows nothing yet. Raises: UserError: keys or certificates cannot be used."""
    return Client(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_ms=options.request_timeout_ms,
        retries=retries,
        security=options.security.for_client(),
    )


def bounds_of(
    client: Client, options: SourceOptions, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionBounds]:
    """Where partitions begin and end now.

    The ends are asked before anything else, the manifest above all: what is tiered in between is then read from one of
    the two tiers, never from neither.
    """
    ends = client.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level(options))
    starts = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    return {tp: PartitionBounds(min(starts[tp].offset, ends[tp].offset), ends[tp].offset) for tp in partitions}


def offsets_of(
    client: Client, options: SourceOptions, spec: OffsetSpec, bounds: Mapping[TopicPartition, PartitionBounds]
) -> OffsetSpec:
    """A specification without times: brokers know them, of tiered records too.

    Raises:
        ValueError: there is no record as late in a partition, or times are not given for all of them.
    """
    if not isinstance(spec, AtTimestamp):
        return spec
    times = spec.times_ms if isinstance(spec.times_ms, dict) else dict.fromkeys(bounds, spec.times_ms)
    check_partitions(times, bounds)
    found = client.list_offsets(times, isolation_level(options))
    return offsets_at(spec, {tp: result.offset for tp, result in found.items()}, bounds)


def isolation_level(options: SourceOptions) -> int:
    """As the protocol has it."""
    return 1 if options.read_committed else 0


def topics_of(options: SourceOptions) -> list[str]:
    """The topics that are named."""
    return list(options.subscribe) or list(dict.fromkeys(tp.topic for tp in options.assign))


def partitions_of(options: SourceOptions, cluster: ClusterMetadata) -> list[TopicPartition]:
    """The partitions to read. Raises KafkaError: a named topic or partition is not there."""
    if options.subscribe_pattern is not None:
        names = [
            name for name, topic in sorted(cluster.topics.items()) if options.wants(name) and not topic.is_internal
        ]
    else:
        names = topics_of(options)
    there = []
    for name in names:
        topic = cluster.topics.get(name)
        if topic is None or topic.error != ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            raise KafkaError(code, f"topic {name}")
        there += [TopicPartition(name, number) for number in sorted(topic.partitions)]
    if not options.assign:
        return there
    missing = set(options.assign) - set(there)
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(sorted(map(str, missing))))
    return list(options.assign)


def object_store_url(options: SourceOptions, client: Client, cluster: ClusterMetadata) -> str:
    """Where the tier is: as the option says, else as the brokers say.

    Raises:
        OptionError: neither knows.
    """
    if options.object_store is not None:
        return options.object_store
    brokers = [ConfigResource(BROKER_RESOURCE, str(number)) for number in sorted(cluster.brokers)]
    configs = _first_answer(options, brokers)
    if configs is None:
        configs = client.describe_configs(brokers[:1])[brokers[0]]
    entry = configs.get(OBJECT_STORE_CONFIG)
    if entry is None or not entry.value:
        if options.tier == "auto":
            return ""
        raise OptionError("the brokers name no object store; option objectStore may")
    return entry.value


def _first_answer(options: SourceOptions, brokers: Sequence[ConfigResource]) -> dict[str, ConfigEntry] | None:
    """Configs of whichever broker answers at once: one that has just died is still among those that are known."""
    with connected(options, RetryPolicy(retry_limit=0)) as client:
        for broker in brokers:
            try:
                return client.describe_configs([broker])[broker]
            except (ConnectionLost, CallTimedOut):
                continue
    return None


def plan_range(range_: Range, options: SourceOptions, url: str) -> list[Split]:
    """The splits of one partition; without an object store everything is hot."""
    tier_range = NOTHING_TIERED
    if url:
        reader = tier_reader(url)
        manifest = reader.manifest(range_.topic_id, range_.tp.partition)
        if manifest is not None and manifest.start_offset <= range_.start:
            segments = reader.segments(manifest, range_.start, range_.end)
            pieces = tuple(TierPiece(segment.start, segment.end, segment.data_bytes) for segment in segments)
            tier_range = TierRange(manifest.start_offset, manifest.end_offset, pieces)
    return plan_splits(range_, tier_range, options.tier, options.split_bytes)
