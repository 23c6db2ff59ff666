"""A byte that flips in an old segment costs the records around it, and nothing else; `appliance status` names them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import parse_header
from appliance.wire.messages.create_topics import CreatableTopicResult
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce, values_of
from tests.support.running import python_environment, wait_for

WAIT_S = 60
RECORDS = 40
DAMAGED = 7
MAGIC_AT, BODY_AT = 16, 1_000


def status(cluster: RunningCluster) -> dict[str, Any]:
    command = [sys.executable, "-m", "appliance.cli", "status", "-b", cluster.bootstrap_servers, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=python_environment(), check=False)
    document = json.loads(done.stdout)
    assert done.returncode == (1 if document["problems"] else 0), done.stderr
    assert isinstance(document, dict)
    return document


def flip(folder: Path, within: int) -> None:
    """One byte of the batch at DAMAGED."""
    segment = folder / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    position = 0
    while (header := parse_header(content, position)).base_offset < DAMAGED:
        position += header.size_in_bytes
    content[position + within] ^= 0x10
    segment.write_bytes(content)


def check(connection: Connection, topic: CreatableTopicResult, lost_until: int) -> None:
    for offset in range(DAMAGED, lost_until):
        assert fetch(connection, topic, offset).error_code == ErrorCode.CORRUPT_MESSAGE
    before = fetch(connection, topic, 0)
    assert before.error_code == 0 and len(values_of(before.records)) == DAMAGED
    read, offset = 0, lost_until
    while offset < RECORDS:
        answer = fetch(connection, topic, offset)
        assert answer.error_code == 0, (offset, answer.error_code)
        got = len(values_of(answer.records))
        read, offset = read + got, offset + got
    assert read == RECORDS - lost_until
    assert [list_offset(connection, topic, place).offset for place in (-2, -1)] == [0, RECORDS]


@pytest.mark.parametrize("within", [MAGIC_AT, BODY_AT])
def test_damage_in_an_old_segment_of_a_running_broker_and_after_its_restart(tmp_path: Path, within: int) -> None:
    with running_cluster(tmp_path) as cluster:
        port = cluster.brokers[1].port
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            configs = {"remote.storage.enable": "false", "segment.bytes": "1048576", "retention.ms": "-1"}
            topic = new_topic(connection, configs=configs, name="orders")
            for number in range(RECORDS):
                value = b"%d" % number + bytes(50_000)
                assert produce(connection, topic, batch_of(value, timestamp_ms=1_000_000 + number)).error_code == 0
            folder = cluster.data_dir(1) / f"{topic.name}-0"
            assert len(list(folder.glob("*.log"))) > 1
            size = sum(path.stat().st_size for path in folder.glob("*.log"))
            assert status(cluster)["damage"] == []
            flip(folder, within)
            notice(connection, topic, within)
            (row,) = wait_for(lambda: status(cluster)["damage"], WAIT_S)
            assert row == {
                "topic": "orders",
                "partition": 0,
                "broker_id": 1,
                "start_offset": DAMAGED,
                "end_offset": DAMAGED + 1,
                "reason": row["reason"],
            }
            check(connection, topic, row["end_offset"])
            assert (
                f"orders-0: offsets {DAMAGED} to {DAMAGED} cannot be read on broker 1" in status(cluster)["problems"][0]
            )
            assert produce(connection, topic, batch_of(b"more")).base_offset == RECORDS
        cluster.brokers[1].stop()
        cluster.start_broker(1, port).wait_until_ready()
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            wait_for(lambda: list_offset(connection, topic, -1).error_code == 0, WAIT_S)
            notice(connection, topic, within)
            wait_for(lambda: status(cluster)["damage"] == [row], WAIT_S)
            assert len(values_of(fetch(connection, topic, RECORDS).records)) == 1
            assert sum(path.stat().st_size for path in folder.glob("*.log")) > size, "nothing was cut"


def notice(connection: Connection, topic: CreatableTopicResult, within: int) -> None:
    """Somebody reads there. On the way to a client no crc is looked at; where a time is looked up, it is."""
    if within == MAGIC_AT:
        assert fetch(connection, topic, DAMAGED).error_code == ErrorCode.CORRUPT_MESSAGE
    else:
        list_offset(connection, topic, 1_000_000 + DAMAGED)
