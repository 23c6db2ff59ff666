"""Three ways in: a stock Kafka client, HTTP, and a connector by its config."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from appliance.base.errors import UserError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from tools.demo.running import Addresses
from tools.demo.tables import Row, as_json, hour_ms, rows_of

FLIGHTS, WEATHER, PLANES, AIRLINES = "flights", "weather", "planes", "airlines"
LAST_MONTH_BY_KAFKA = 9
"""Flights up to September come through a Kafka client, the later ones over HTTP."""
LINES_PER_REQUEST = 5_000
CONNECTOR_TIMEOUT_S = 120
MIB = 1024 * 1024

Progress = Callable[[int], None]

# The timestamps are of 2013: by time, retention would remove everything at once. Small segments, so that some roll
# while one watches; a little stays on the brokers' disks.
_HISTORY = {"retention.ms": "-1", "segment.bytes": str(2 * MIB), "local.retention.bytes": str(2 * MIB)}


def create_topics(client: Client) -> None:
    """The demo's topics."""
    client.create_topics(
        [
            NewTopic(FLIGHTS, num_partitions=6, configs=_HISTORY),
            NewTopic(WEATHER, num_partitions=3, configs=_HISTORY),
            NewTopic(PLANES, num_partitions=1, configs={"retention.ms": "-1"}),
            NewTopic(AIRLINES, num_partitions=1, configs={"retention.ms": "-1"}),
        ]
    )


def flights_by_kafka(bootstrap_servers: str, progress: Progress) -> None:
    """January to September through librdkafka: idempotent, compressed."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "partitioner": "murmur2_random",
        }
    )
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error.str())
        else:
            progress(1)

    for row in rows_of(FLIGHTS):
        if int(str(row["month"])) > LAST_MONTH_BY_KAFKA:
            continue
        while True:
            try:
                producer.produce(FLIGHTS, as_json(row), _key(row), timestamp=hour_ms(row), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    if failed:
        raise UserError(f"{len(failed)} flights were not taken; the first: {failed[0]}", 1)


def _key(row: Row) -> str | None:
    return None if row["tailnum"] is None else str(row["tailnum"])


def flights_by_http(url: str, progress: Progress) -> None:
    """October to December as NDJSON."""
    rows = (row for row in rows_of(FLIGHTS) if int(str(row["month"])) > LAST_MONTH_BY_KAFKA)
    _post_lines(url, FLIGHTS, (_line(row, _key(row)) for row in rows), progress)


def weather_by_http(url: str, progress: Progress) -> None:
    """Keyed by airport."""
    _post_lines(url, WEATHER, (_line(row, str(row["origin"])) for row in rows_of(WEATHER)), progress)


def _line(row: Row, key: str | None) -> str:
    return f'{{"key":{json.dumps(key)},"timestamp":{hour_ms(row)},"value":{as_json(row)}}}\n'


def _post_lines(url: str, topic: str, lines: Iterator[str], progress: Progress) -> None:
    address = urllib.parse.urlsplit(url)
    while chunk := list(islice(lines, LINES_PER_REQUEST)):
        body = "".join(chunk).encode()
        with contextlib.closing(
            http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
        ) as connection:
            connection.request("POST", f"/v1/topics/{topic}/records", body, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            text = answer.read()
        if answer.status != 200:
            raise UserError(f"HTTP ingest answered {answer.status}: {text[:300].decode(errors='replace')}", 1)
        progress(len(chunk))


def tables_by_connector(addresses: Addresses, folder: Path, progress: Progress) -> None:
    """Planes and airlines: files of JSON lines and two connector configs, as Kafka Connect takes them."""
    with Client(addresses.bootstrap_servers) as client:
        for topic in (PLANES, AIRLINES):
            path = folder / f"{topic}.jsonl"
            lines = [as_json(row) + "\n" for row in rows_of(topic)]
            path.write_text("".join(lines), encoding="utf-8")
            config = {
                "connector.class": "FileStreamSource",
                "file": str(path),
                "topic": topic,
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            }
            _post_connector(addresses.connect, f"{topic}-file", config)
            _wait_for(client, topic, len(lines), progress)


def _post_connector(url: str, name: str, config: dict[str, str]) -> None:
    body = json.dumps({"name": name, "config": config}).encode()
    request = urllib.request.Request(f"{url}/connectors", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60):
            pass
    except urllib.error.HTTPError as error:
        raise UserError(f"the connector {name} was refused: {error.read().decode(errors='replace')}", 1) from None


def _wait_for(client: Client, topic: str, count: int, progress: Progress) -> None:
    deadline_s = time.monotonic() + CONNECTOR_TIMEOUT_S
    seen = 0
    while seen < count:
        if time.monotonic() > deadline_s:
            raise UserError(f"the connector brought {seen} of {count} records to {topic}", 1)
        time.sleep(0.1)
        end = end_offset(client, topic)
        progress(end - seen)
        seen = end


def end_offset(client: Client, topic: str) -> int:
    """The records of a topic without holes: the sum of its end offsets."""
    partitions = client.metadata([topic]).topics[topic].partitions
    ends = client.list_offsets({TopicPartition(topic, number): -1 for number in partitions})
    return sum(result.offset for result in ends.values())
