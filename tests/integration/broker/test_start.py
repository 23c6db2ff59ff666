"""What keeps a broker from starting is one clear line and an exit code; what ends it leaves the directory in order."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.base.processes import ProcessHandle
from appliance.broker_actors.broker import Broker
from appliance.broker_actors.broker_process import run_broker
from appliance.client.connection import Connection
from appliance.records.batch import parse_header
from appliance.records.builder import build_batch
from tests.support.broker import RunningCluster, running_cluster
from tests.support.replicated import until
from tests.support.requests import batch_of, list_offset, new_topic, produce

NOT_USABLE = 3


def refused(cluster: RunningCluster, **changes: object) -> UserError:
    settings = dataclasses.replace(cluster.broker_settings(9), **changes)  # type: ignore[arg-type]
    with pytest.raises(UserError) as caught:
        run_broker(settings, ProcessHandle())
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_taken_port_is_named(cluster: RunningCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(cluster, port=port)
    assert error.exit_code == NOT_USABLE
    assert f"127.0.0.1:{port}" in str(error)
    # Nothing of the try is left: the same directory can be used with another port.
    cluster.start_broker(9).wait_until_ready()
    cluster.brokers.pop(9).stop()


def test_a_host_that_is_not_ours_is_named(cluster: RunningCluster) -> None:
    error = refused(cluster, host="192.0.2.1")
    assert error.exit_code == NOT_USABLE
    assert "192.0.2.1" in str(error)


def test_a_folder_that_is_a_file_is_named(cluster: RunningCluster, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a folder")
    error = refused(cluster, data_dir=path)
    assert error.exit_code == NOT_USABLE
    assert str(path) in str(error)


def test_a_folder_that_cannot_be_made_is_named(cluster: RunningCluster) -> None:
    # Not even root makes folders there.
    error = refused(cluster, data_dir=Path("/proc/self/broker-9"))
    assert error.exit_code == NOT_USABLE
    assert "/proc/self/broker-9" in str(error)


def test_a_folder_in_use_is_named(cluster: RunningCluster) -> None:
    error = refused(cluster, data_dir=cluster.data_dir(1), broker_id=1)
    assert error.exit_code == NOT_USABLE
    assert "another process" in str(error)


def test_a_folder_of_another_broker_or_cluster_is_refused(cluster: RunningCluster, tmp_path: Path) -> None:
    with running_cluster(tmp_path) as other:
        folder = other.data_dir(1)
    error = refused(cluster, data_dir=folder, broker_id=1)
    assert error.exit_code == NOT_USABLE
    assert "belongs to cluster" in str(error)


def test_an_unknown_key_names_the_nearest(cluster: RunningCluster) -> None:
    error = refused(cluster, properties={"num.partition": "3"})
    assert "num.partitions" in str(error)


def test_after_an_orderly_end_the_next_start_goes_on_where_it_ended(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        port = cluster.brokers[1].port
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            topic = new_topic(connection)
            for number in range(3):
                assert produce(connection, topic, batch_of(b"x")).base_offset == number
        cluster.brokers[1].stop()
        assert (cluster.data_dir(1) / ".kafka_cleanshutdown").exists()
        cluster.start_broker(1, port).wait_until_ready()
        assert not (cluster.data_dir(1) / ".kafka_cleanshutdown").exists()
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            for _ in range(200):
                if list_offset(connection, topic, -1).offset == 3:
                    break
            assert produce(connection, topic, batch_of(b"x")).base_offset == 3


def test_what_the_last_turn_of_the_loop_has_staged_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Broker._end

    def stage_and_end(broker: Broker) -> None:
        # As from a leader whose answer is read in the turn in which the loop is told to stop.
        for hosted in broker.partitions:
            if hosted.log.topic_partition.topic == topic.name:
                batch = memoryview(bytearray(build_batch([(1, None, b"last", ())], base_offset=1)))
                hosted.append_replicated(batch, parse_header(batch), 1)
        end(broker)

    monkeypatch.setattr(Broker, "_end", stage_and_end)
    with running_cluster(tmp_path) as cluster:
        port = cluster.brokers[1].port
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            topic = new_topic(connection)
            assert produce(connection, topic, batch_of(b"x")).base_offset == 0
        cluster.brokers[1].stop()
        monkeypatch.undo()
        assert (cluster.data_dir(1) / ".kafka_cleanshutdown").exists()
        cluster.start_broker(1, port).wait_until_ready()
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            until(lambda: list_offset(connection, topic, -1).offset == 2, "both records")
