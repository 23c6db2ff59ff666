"""Groups with kafka-python's consumer and admin client."""

from __future__ import annotations

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from tests.support.broker import RunningCluster
from tests.support.group_clients import new_topic, wait_until


def consumer_of(cluster: RunningCluster, group_id: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
    )


def test_two_members_share_a_topic_and_take_over_from_each_other(cluster: RunningCluster) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=4, records=40)
    first = consumer_of(cluster, "kp-share", topic)
    seen: list[tuple[int, int]] = []

    def poll() -> None:
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=250).values():
                seen.extend((record.partition, record.offset) for record in records)

    consumers = [first]
    wait_until(lambda: len(seen) == 40, poll)
    first.commit()
    assert first.committed(TopicPartition(topic, 1)) == 10
    consumers.append(consumer_of(cluster, "kp-share", topic))
    wait_until(lambda: sorted(len(each.assignment()) for each in consumers) == [2, 2], poll)
    consumers.remove(first)
    first.close()
    wait_until(lambda: len(consumers[0].assignment()) == 4, poll)
    consumers[0].close()
    assert len(seen) == len(set(seen)) == 40, "what was committed is not read again"


def test_an_administrator_sees_a_group_and_its_offsets(cluster: RunningCluster) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=2, records=2)
    consumer = consumer_of(cluster, "kp-admin", topic)
    wait_until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(timeout_ms=250))
    consumer.commit()
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        assert "kp-admin" in str(admin.list_groups())
        assert "Stable" in str(admin.describe_groups(["kp-admin"]))
        consumer.close()
        assert "Empty" in str(admin.describe_groups(["kp-admin"]))
        admin.delete_groups(["kp-admin"])
        assert "kp-admin" not in str(admin.list_groups())
    finally:
        admin.close()
