"""A service (HTTP gateway, connector worker) on a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.base.ids import TopicPartition
from appliance.base.processes import ProcessHandle, Service, ServiceSettings
from appliance.client.client import Client
from appliance.records.batch import split_batches
from appliance.records.reader import Record, read_records

READY_TIMEOUT_S = 20
STOP_TIMEOUT_S = 30


@contextmanager
def running_service(
    serve: Service,
    name: str,
    bootstrap_servers: str,
    folder: Path,
    object_store: str = "",
    properties: Mapping[str, str] | None = None,
    port: int = 0,
) -> Iterator[str]:
    """The URL of a running service; ended in order afterwards, and what it failed with is raised."""
    changed, told = threading.Event(), list[Any]()

    def on_ready(address: str) -> None:
        told.append(address)
        changed.set()

    handle = ProcessHandle(on_ready)
    settings = ServiceSettings(
        name=name,
        bootstrap_servers=bootstrap_servers,
        cluster_id="cluster",
        object_store=object_store,
        data_dir=folder / name,
        host="127.0.0.1",
        port=port,
        runtime="local",
        properties=dict(properties or {}),
    )

    def run() -> None:
        try:
            serve(settings, handle)
        except BaseException as error:
            told.append(error)
        finally:
            changed.set()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    assert changed.wait(READY_TIMEOUT_S), f"{name} is not ready after {READY_TIMEOUT_S} s"
    if isinstance(told[0], BaseException):
        raise told[0]
    try:
        yield told[0]
    finally:
        handle.stopping.set()
        thread.join(STOP_TIMEOUT_S)
        assert not thread.is_alive(), f"{name} did not end within {STOP_TIMEOUT_S} s"
        if isinstance(told[-1], BaseException):
            raise told[-1]


def records_in(client: Client, topic: str) -> list[Record]:
    """Every record of a topic, partition by partition, in offset order."""
    records: list[Record] = []
    for number in sorted(client.metadata([topic]).topics[topic].partitions):
        tp = TopicPartition(topic, number)
        cursor = client.list_offsets({tp: -2})[tp].offset
        end = client.list_offsets({tp: -1})[tp].offset
        while cursor < end:
            for batch in split_batches(client.fetch(tp, cursor).records):
                found = [record for record in read_records(batch) if record.offset >= cursor]
                records += found
                cursor = found[-1].offset + 1
    return records
