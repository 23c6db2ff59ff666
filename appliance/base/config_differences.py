"""Where a default or a limit is not Apache Kafka 4.3's, and why. A test compares with Kafka's own definitions."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """Kafka's side of a difference; ours stands in the definitions."""

    kafka: str
    """Its default as text; `required` where it has none."""
    reason: str


DIFFERENT_DEFAULTS: dict[str, Difference] = {
    "remote.storage.enable": Difference(
        "false",
        "Tiering is what the appliance is for: aged segments of every topic move to the object store unless the topic "
        "says otherwise.",
    ),
    "remote.log.storage.system.enable": Difference("false", "As above, for the whole cluster."),
    "broker.heartbeat.interval.ms": Difference(
        "2000", "A lease of two seconds (`broker.lease.ms`) needs several heartbeats within it."
    ),
    "metric.reporters": Difference(
        "org.apache.kafka.common.metrics.JmxReporter", "There is no JVM whose beans could be read."
    ),
    "controller.listener.names": Difference("required", "`appliance up` starts and connects the controllers."),
    "node.id": Difference("required", "`appliance up` numbers the brokers from 1."),
    "num.recovery.threads.per.data.dir": Difference(
        "2", "A flush waits for the disk and needs no core: eight side by side end a broker four times as soon."
    ),
    "queued.max.request.bytes": Difference(
        "-1", "A broker's memory has a limit, whatever its clients send; one frame is always admitted."
    ),
    "process.roles": Difference("required", "`appliance up` decides what a process is."),
}
"""By key."""

DIFFERENT_LIMITS: dict[str, str] = {
    "authorizer.class.name": "the one that there is; Kafka also loads classes of Java",
    "broker.heartbeat.interval.ms": "an interval of nothing would be a loop",
    "group.consumer.assignors": "these are the ones there are; Kafka also loads classes of Java",
    "group.consumer.migration.policy": "the same words in any case of letters, told otherwise",
    "log.flush.interval.ms": "the limit of the topic config that it stands for",
    "log.retention.ms": "the limit of the topic config that it stands for",
    "log.roll.jitter.ms": "the limit of the topic config that it stands for",
    "log.roll.ms": "the limit of the topic config that it stands for",
    "controller.quorum.bootstrap.servers": "without effect here, so an empty list is as good as any",
    "controller.quorum.voters": "without effect here, so an empty list is as good as any",
    "node.id": "-1 is the default, `appliance up` gives the number",
}
"""Keys whose allowed values differ, and why."""
