"""The options of `format("appliance")`, named as those of Spark's Kafka source. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from appliance.base.ids import TopicPartition
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
    )
}


class OptionError(ValueError):
    """An option that is missing, unknown or not readable; the message says which and what it takes."""


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
    object_store: str | None = None
    """URL; None = what the brokers say."""
    tier: str = "auto"
    include_tier: bool = False
    split_bytes: int = 64 * MIB
    verify_crc: bool = True
    request_timeout_ms: int = 30_000
    security: SecurityOptions = field(default_factory=SecurityOptions)

    def wants(self, topic: str) -> bool:
        """Whether a topic matches `subscribePattern`, as a whole."""
        return self.subscribe_pattern is not None and re.fullmatch(self.subscribe_pattern, topic) is not None


def parse_options(given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Read the options of a batch or of a stream; names in any case, as Spark passes them on.

    Raises:
        OptionError: see there.
    """
    options = {name.lower(): text for name, text in given.items()}
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
        _refuse(options, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"), "a stream has no end")
    else:
        _refuse(options, ("maxOffsetsPerTrigger",), "a batch has no triggers")
    return SourceOptions(
        bootstrap_servers=servers,
        subscribe=tuple(
            dict.fromkeys(name.strip() for name in options.get("subscribe", "").split(",") if name.strip())
        ),
        subscribe_pattern=pattern,
        assign=_assigned(options["assign"]) if options.get("assign") else (),
        starting_offsets=_starting(options, streaming),
        ending_offsets=_ending(options),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        include_headers=_flag(options, "includeHeaders", False),
        read_committed=isolation == "read_committed",
        min_partitions=_number(options, "minPartitions", 0),
        max_records_per_partition=_number(options, "maxRecordsPerPartition", 0),
        max_offsets_per_trigger=_number(options, "maxOffsetsPerTrigger", 0),
        object_store=options.get("objectstore"),
        tier=tier,
        include_tier=_flag(options, "includeTier", False),
        split_bytes=_number(options, "splitBytes", 64 * MIB),
        verify_crc=_flag(options, "verifyCrc", True),
        request_timeout_ms=_number(options, "requestTimeoutMs", 30_000),
        security=SecurityOptions.of(options),
    )


def wants_column(given: Mapping[str, str], flag: str) -> bool:
    """Whether `includeHeaders` or `includeTier` is set; all else is looked at when a reader or writer is made."""
    return _flag({name.lower(): text for name, text in given.items()}, flag, False)


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
        return _number(options, for_all, 0, least=0)
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


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text}")
    return text.lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
        raise OptionError(f"{name} is a whole number of {least} or more, not {text}")
    return int(text)
