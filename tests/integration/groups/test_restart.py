"""A broker that coordinates groups is started anew: its groups go on from its log."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.broker import running_cluster
from tests.support.group_clients import fill, new_topic, wait_until


def test_members_and_offsets_survive_a_restart_of_their_coordinator(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        topic = new_topic(servers, partitions=2, records=10)
        revoked: list[object] = []
        config = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.max.ms": 200,
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(config)
        consumer.subscribe([topic], on_revoke=lambda _, parts: revoked.append(parts))
        values: list[bytes] = []

        def poll() -> None:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                values.append(message.value())

        wait_until(lambda: len(values) == 10, poll)
        consumer.commit(asynchronous=False)
        port = cluster.brokers[1].port
        cluster.brokers[1].stop()
        cluster.start_broker(1, port).wait_until_ready()
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        fill(servers, topic, partitions=2, records=4)
        wait_until(lambda: len(values) == 14, poll)
        consumer.commit(asynchronous=False)
        found = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions("g", [TopicPartition(topic, 0), TopicPartition(topic, 1)])]
        )["g"].result()
        assert [part.offset for part in found.topic_partitions] == [7, 7]
        assert revoked == [], "the same generation went on"
        consumer.close()
