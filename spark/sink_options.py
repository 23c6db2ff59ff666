"""The options of writers, named as those of Spark's Kafka sink. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.records.compression import Codec
from spark.kafka_configs import WRITERS
from spark.option_values import OptionError, flag_of, number_of
from spark.secured import SecurityOptions, is_about_security

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"

_KNOWN = {
    name.lower(): name
    for name in (
        "kafka.bootstrap.servers",
        "kafka.client.id",
        "topic",
        "delivery",
        "sinkName",
        "keepTimestamps",
        "kafka.compression.type",
        "kafka.batch.size",
        "kafka.transaction.timeout.ms",
        "requestTimeoutMs",
    )
}
_OF_SPARK = ("path", "checkpointlocation")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer was asked for."""

    bootstrap_servers: str
    topic: str | None = None
    """In the place of the column `topic`."""
    delivery: str = AT_LEAST_ONCE
    sink_name: str | None = None
    """Under which exactly-once writers remember what is done; None = the id of the query."""
    keep_timestamps: bool = False
    codec: int = Codec.LZ4
    batch_bytes: int = 256 * 1024
    transaction_timeout_ms: int = 600_000
    request_timeout_ms: int = 30_000
    client_id: str = "appliance-spark-sink"
    security: SecurityOptions = field(default_factory=SecurityOptions)

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options; names in any case.

    Raises:
        OptionError: one is missing, unknown or not readable.
    """
    options = WRITERS.by_our_names({name.lower(): text.strip() for name, text in given.items()})
    for name in options:
        if name not in _KNOWN and name not in _OF_SPARK and not is_about_security(name):
            raise OptionError(f"option {name} is not known; there are {', '.join(sorted(_KNOWN.values()))}")
    if not options.get("kafka.bootstrap.servers"):
        raise OptionError("option kafka.bootstrap.servers is missing: host:port of one or more brokers")
    delivery = options.get("delivery", AT_LEAST_ONCE).lower()
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise OptionError(f"delivery is {AT_LEAST_ONCE} or {EXACTLY_ONCE}, not {delivery}")
    if delivery == EXACTLY_ONCE and not options.get("topic"):
        raise OptionError("delivery=exactly_once needs the option topic: what is done is remembered with that topic")
    codec = options.get("kafka.compression.type", "lz4").upper()
    if codec not in Codec.__members__:
        raise OptionError(f"kafka.compression.type is one of {', '.join(Codec.__members__).lower()}, not {codec}")
    return SinkOptions(
        bootstrap_servers=options["kafka.bootstrap.servers"],
        topic=options.get("topic") or None,
        delivery=delivery,
        sink_name=options.get("sinkname") or None,
        keep_timestamps=flag_of(options, "keepTimestamps", False),
        codec=Codec[codec],
        batch_bytes=number_of(options, "kafka.batch.size", 256 * 1024),
        transaction_timeout_ms=number_of(options, "kafka.transaction.timeout.ms", 600_000),
        request_timeout_ms=number_of(options, "requestTimeoutMs", 30_000),
        client_id=options.get("kafka.client.id", "appliance-spark-sink"),
        security=SecurityOptions.of(options),
    )


def passed_over(given: Mapping[str, str]) -> list[str]:
    """Options that are taken and do nothing here, in lower case."""
    return sorted(name.lower() for name in given if name.lower() in WRITERS.passed_over)
