"""What is not in memory is read by helper threads: the loop opens no file and reads no page that it might wait for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.client.connection import Connection
from tests.support.broker import running_cluster
from tests.support.call_counter import CallCounter
from tests.support.requests import batch_of, fetch_request, new_topic, partitions_of, produce, values_of

VALUES = [bytes([number]) * 50_000 for number in range(60)]


def forget_pages(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_closed_segments_are_opened_and_their_indexes_loaded_off_the_loop(tmp_path: Path, isolation_level: int) -> None:
    counter = CallCounter("broker-1")
    with counter.watching(), running_cluster(tmp_path) as cluster:
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection:
            topic = new_topic(connection, configs={"segment.bytes": "1048576", "remote.storage.enable": "false"})
            for value in VALUES:
                assert produce(connection, topic, batch_of(value)).error_code == 0
        cluster.brokers[1].stop()
        folder = cluster.data_dir(1) / f"{topic.name}-0"
        assert len(list(folder.glob("*.log"))) > 2
        cluster.start_broker(1).wait_until_ready()
        forget_pages(folder)
        found: list[bytes | None] = []
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection, counter.counting():
            while len(found) < len(VALUES) - 5:
                request = fetch_request(
                    topic, {0: len(found)}, partition_max_bytes=300_000, isolation_level=isolation_level
                )
                data = partitions_of(connection.call(request, 12))[0]
                assert data.error_code == 0
                found += values_of(data.records)
    assert found == VALUES[: len(found)]
    assert counter.system_calls["preadv"], "it looked whether pages are cached"
    assert counter.system_calls["pread"] + counter.system_calls["open"] == 0, counter.system_calls
