"""The options of `format("appliance")`, named as those of Spark's Kafka source. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from appliance.base.ids import TopicPartition
from spark.kafka_configs import READERS
from spark.option_values import OptionError, duration_ms_of, flag_of, number_of
from spark.secured import SecurityOptions, is_about_security

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first offset whose record is of this time or later: one time for all partitions, or one for each."""

    times_ms: int | dict[TopicPartition, int]
    latest_if_none: bool
    """Where no record is as late: the end, or an error."""


OffsetSpec = int | dict[TopicPartition, int] | AtTimestamp
"""EARLIEST or LATEST for all partitions, an offset (or one of the two) for each, or times."""

TIERS = ("auto", "hot", "tiered")
MIB = 1024 * 1024

_KNOWN = {
    name.lower(): name
    for name in (
        "kafka.bootstrap.servers",
        "kafka.client.id",
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "failOnDataLoss",
        "includeHeaders",
        "columns",
        "isolationLevel",
        "minPartitions",
        "maxRecordsPerPartition",
        "objectStore",
        "tier",
        "includeTier",
        "splitBytes",
        "verifyCrc",
        "requestTimeoutMs",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
}
_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader was asked for."""

    bootstrap_servers: str
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    assign: tuple[TopicPartition, ...] = ()
    starting_offsets: OffsetSpec = EARLIEST
    ending_offsets: OffsetSpec = LATEST
    fail_on_data_loss: bool = True
    include_headers: bool = False
    read_committed: bool = False
    min_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets_per_trigger: int = 0
    """Of a stream; 0 = no limit."""
    min_offsets_per_trigger: int = 0
    max_trigger_delay_ms: int = 15 * 60_000
    object_store: str | None = None
    """URL; None = what the brokers say."""
    tier: str = "auto"
    include_tier: bool = False
    split_bytes: int = 64 * MIB
    verify_crc: bool = True
    request_timeout_ms: int = 30_000
    poll_timeout_ms: int = 10_000
    """So long a task waits for records that its plan counts on."""
    offset_retries: int = 10
    offset_retry_interval_ms: int = 50
    """Of the driver's questions to brokers; doubled each time."""
    client_id: str = "appliance-spark"
    security: SecurityOptions = field(default_factory=SecurityOptions)

    def wants(self, topic: str) -> bool:
        """Whether a topic matches `subscribePattern`, as a whole."""
        return self.subscribe_pattern is not None and re.fullmatch(self.subscribe_pattern, topic) is not None


def parse_options(given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Read the options of a batch or of a stream; names in any case, as Spark passes them on.

    Raises:
        OptionError: see there.
    """
    options = READERS.by_our_names({name.lower(): text for name, text in given.items()})
    for name in options:
        if name not in _KNOWN and name != "path" and not is_about_security(name):
            raise OptionError(f"option {name} is not known; there are {', '.join(sorted(_KNOWN.values()))}")
    servers = options.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise OptionError("option kafka.bootstrap.servers is missing: host:port of one or more brokers")
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if options.get(name.lower(), "").strip()]
    if len(ways) != 1:
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign is needed, not {len(ways)}")
    pattern = options.get("subscribepattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern is no regular expression: {error}") from None
    isolation = options.get("isolationlevel", "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"isolationLevel is read_uncommitted or read_committed, not {isolation}")
    tier = options.get("tier", "auto").lower()
    if tier not in TIERS:
        raise OptionError(f"tier is one of {', '.join(TIERS)}, not {tier}")
    if streaming:
        _refuse(options, _ENDS, "a stream has no end")
    most = number_of(options, "maxOffsetsPerTrigger", 0)
    least = number_of(options, "minOffsetsPerTrigger", 0, least=0)
    if most and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    return SourceOptions(
        bootstrap_servers=servers,
        subscribe=tuple(
            dict.fromkeys(name.strip() for name in options.get("subscribe", "").split(",") if name.strip())
        ),
        subscribe_pattern=pattern,
        assign=_assigned(options["assign"]) if options.get("assign") else (),
        starting_offsets=_starting(options, streaming),
        ending_offsets=_ending(options),
        fail_on_data_loss=flag_of(options, "failOnDataLoss", True),
        include_headers=flag_of(options, "includeHeaders", False),
        read_committed=isolation == "read_committed",
        min_partitions=number_of(options, "minPartitions", 0),
        max_records_per_partition=number_of(options, "maxRecordsPerPartition", 0),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=duration_ms_of(options, "maxTriggerDelay", 15 * 60_000),
        object_store=options.get("objectstore"),
        tier=tier,
        include_tier=flag_of(options, "includeTier", False),
        split_bytes=number_of(options, "splitBytes", 64 * MIB),
        verify_crc=flag_of(options, "verifyCrc", True),
        request_timeout_ms=number_of(options, "requestTimeoutMs", 30_000),
        poll_timeout_ms=number_of(options, "kafkaConsumer.pollTimeoutMs", 10_000),
        offset_retries=number_of(options, "fetchOffset.numRetries", 10, least=0),
        offset_retry_interval_ms=number_of(options, "fetchOffset.retryIntervalMs", 50, least=0),
        client_id=options.get("kafka.client.id", "appliance-spark"),
        security=SecurityOptions.of(options),
    )


def passed_over(given: Mapping[str, str], *, streaming: bool = False) -> list[str]:
    """Options that are taken and do nothing here, in lower case."""
    idle = READERS.passed_over if streaming else READERS.passed_over.union(map(str.lower, _OF_STREAMS))
    return sorted(name.lower() for name in given if name.lower() in idle)


def wants_column(given: Mapping[str, str], flag: str) -> bool:
    """Whether `includeHeaders` or `includeTier` is set; all else is looked at when a reader or writer is made."""
    return flag_of({name.lower(): text for name, text in given.items()}, flag, False)


def _refuse(options: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name.lower() in options:
            raise OptionError(f"{name} is not for this: {why}")


def _starting(options: Mapping[str, str], streaming: bool) -> OffsetSpec:
    """A time for all goes before times for each, and these before offsets, as with Spark's Kafka source."""
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy}")
    times = _times(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if times is not None:
        return AtTimestamp(times, strategy == "latest")
    if streaming:
        return _offsets("startingOffsets", options.get("startingoffsets", "latest"), None)
    return _offsets("startingOffsets", options.get("startingoffsets", "earliest"), LATEST)


def _ending(options: Mapping[str, str]) -> OffsetSpec:
    times = _times(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if times is not None:
        return AtTimestamp(times, True)
    return _offsets("endingOffsets", options.get("endingoffsets", "latest"), EARLIEST)


def _times(options: Mapping[str, str], for_all: str, for_each: str) -> int | dict[TopicPartition, int] | None:
    if for_all.lower() in options:
        return number_of(options, for_all, 0, least=0)
    text = options.get(for_each.lower())
    if text is None:
        return None
    times = _by_partition(for_each, text, '{"topic": {"0": 1700000000000}}')
    for tp, time_ms in times.items():
        if time_ms < 0:
            raise OptionError(f"{for_each} gives {tp} the time {time_ms}")
    return times


def _by_partition(name: str, text: str, shape: str, words: str = "") -> dict[TopicPartition, int]:
    try:
        table = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise OptionError(f"{name} is {words}JSON like {shape}: {error}") from None
    return {TopicPartition(topic, number): value for topic, row in table.items() for number, value in row.items()}


def _offsets(name: str, text: str, forbidden: int | None) -> OffsetSpec:
    """`earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}`; a batch cannot start at the end or end at the start."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        spec = EARLIEST if word == "earliest" else LATEST
        if spec == forbidden:
            raise OptionError(f"{name} cannot be {word} in a batch")
        return spec
    spec_of = _by_partition(name, text, '{"topic": {"0": 23, "1": -2}}', "earliest, latest or ")
    for tp, offset in spec_of.items():
        if offset < EARLIEST or offset == forbidden:
            raise OptionError(f"{name} gives {tp} the offset {offset}")
    return spec_of


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        table = msgspec.json.decode(text, type=dict[str, list[int]])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise OptionError(f'assign is JSON like {{"topic": [0, 1]}}: {error}') from None
    return tuple(dict.fromkeys(TopicPartition(topic, number) for topic, row in table.items() for number in row))
