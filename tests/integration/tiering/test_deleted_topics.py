"""What a deleted topic has left in the object store goes, after the delay for readers and also after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.ids import uuid_to_text
from appliance.client.connection import Connection
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.names import topic_folder
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.delete_topics import DeleteTopicsRequest
from appliance.wire.messages.internal_metadata import ControllerStatusRequest, ControllerStatusResponse
from tests.support.broker import RunningCluster, running_cluster, start_controller
from tests.support.replicated import until
from tests.support.requests import batch_of, list_offset, new_topic, produce

SEGMENTS = {"segment.bytes": "1048576", "retention.ms": "-1", "local.retention.bytes": "1"}
QUICK = {"tiering.task.interval.ms": "50", "log.retention.check.interval.ms": "100"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path, properties=QUICK) as running:
        yield running


def tiered_topic(client: Connection) -> CreatableTopicResult:
    topic = new_topic(client, configs=SEGMENTS)
    for _ in range(3):
        produce(client, topic, batch_of(b"x" * 900_000))
    until(lambda: list_offset(client, topic, -4).offset > 0, "a segment to leave the disk")
    return topic


def controller_status(cluster: RunningCluster) -> ControllerStatusResponse:
    host, _, port = cluster.controller.address.rpartition(":")
    with Connection(host, int(port)) as connection:
        return connection.call(ControllerStatusRequest(), 0)


def test_its_objects_go_after_the_delay_and_a_new_controller_goes_on(cluster: RunningCluster, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "object-store")
    with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=20_000) as client:
        topic, kept = tiered_topic(client), tiered_topic(client)
        client.call(DeleteTopicsRequest(topic_names=[topic.name or ""]), 5)
    left = [row.name for row in store.list(topic_folder(topic.topic_id))]
    assert len(left) >= 2, "running readers still have the objects"
    status = controller_status(cluster)
    assert (status.deleted_topics, status.deleted_objects) == (1, 0)
    assert " in 3" in status.deleting, "an hour, by default"
    port = cluster.controller.port
    cluster.controller.stop()
    without_delay = {**cluster.properties, "tiering.delete.delay.ms": "0"}
    cluster.controller = start_controller(tmp_path, without_delay, port=port)
    until(lambda: not list(store.list(topic_folder(topic.topic_id))), "the objects of the deleted topic to go")
    status = controller_status(cluster)
    assert (status.deleted_topics, status.deleted_objects) == (1, len(left))
    assert "in 86" in status.deleting, "it looks again a day later: a late upload may still come"
    assert list(store.list(topic_folder(kept.topic_id))), "another topic keeps its objects"
    assert uuid_to_text(kept.topic_id) != uuid_to_text(topic.topic_id)
