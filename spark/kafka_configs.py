"""Configs of Kafka's own clients, given as `kafka.NAME` to Spark's Kafka source and sink. Pure.

Some mean something here, too. Those that tune clients which do not run here are passed over, and the log says so. The
rest are refused: what Spark refuses, and what is no such config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark.option_values import OptionError

PREFIX = "kafka."
_ANY_CLIENT = (
    "client.dns.lookup connections.max.idle.ms enable.metrics.push metadata.max.age.ms metric.reporters"
    " metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes"
    " reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms send.buffer.bytes"
    " socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms"
)
_CONSUMERS = (
    "allow.auto.create.topics auto.commit.interval.ms client.rack default.api.timeout.ms fetch.max.bytes"
    " fetch.max.wait.ms fetch.min.bytes group.id group.instance.id heartbeat.interval.ms max.partition.fetch.bytes"
    " max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms"
)
_PRODUCERS = (
    "acks buffer.memory compression.gzip.level compression.lz4.level compression.zstd.level delivery.timeout.ms"
    " enable.idempotence linger.ms max.block.ms max.in.flight.requests.per.connection max.request.size"
    " metadata.max.idle.ms retries"
)


@dataclass(frozen=True, slots=True)
class ClientConfigs:
    """What becomes of the configs of one kind of clients.

    Args:
        meant: configs that are another name for one of our options.
        passed_over: configs, and options of Spark's own, that nothing here asks for.
        refused: why.
    """

    meant: Mapping[str, str]
    passed_over: frozenset[str]
    refused: Mapping[str, str]

    def by_our_names(self, options: Mapping[str, str]) -> dict[str, str]:
        """Options, names in lower case, without those that are passed over; a name of ours goes before Kafka's.

        Raises:
            OptionError: one that cannot be had.
        """
        ours = {name: text for name, text in options.items() if name not in self.passed_over}
        for name, why in self.refused.items():
            if name in ours:
                raise OptionError(f"option {name} is not taken: {why}")
        for name, our_name in self.meant.items():
            if name in ours:
                ours.setdefault(our_name.lower(), ours.pop(name))
        return ours


def _named(text: str) -> frozenset[str]:
    return frozenset(PREFIX + name for name in text.split())


READERS = ClientConfigs(
    meant={
        "kafka.isolation.level": "isolationLevel",
        "kafka.request.timeout.ms": "requestTimeoutMs",
        "kafka.check.crcs": "verifyCrc",
    },
    passed_over=_named(_ANY_CLIENT) | _named(_CONSUMERS) | {"groupidprefix"},
    refused={
        "kafka.auto.offset.reset": "startingOffsets says where a read begins, the checkpoint where it goes on",
        "kafka.enable.auto.commit": "the checkpoint keeps the position of a stream",
        "kafka.interceptor.classes": "no class of Java's runs here",
        "kafka.key.deserializer": "keys are bytes; cast them in the query",
        "kafka.value.deserializer": "values are bytes; cast them in the query",
    },
)
WRITERS = ClientConfigs(
    meant={"kafka.request.timeout.ms": "requestTimeoutMs"},
    passed_over=_named(_ANY_CLIENT) | _named(_PRODUCERS),
    refused={
        "kafka.interceptor.classes": "no class of Java's runs here",
        "kafka.key.serializer": "keys are bytes or text as they are",
        "kafka.transactional.id": "delivery=exactly_once makes its own",
        "kafka.value.serializer": "values are bytes or text as they are",
    },
)
