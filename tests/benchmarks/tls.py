"""`make bench-tls`: what producing and fetching under TLS costs here and on Apache Kafka.

    python -m tests.benchmarks.tls [--quick] [--pairs N] [--ours-alone] [--print]

Both run at the same time and have the same certificate; runs take turns, as in `make bench`. The client is Python's
`ssl`: it sends prepared frames and reads answers into one buffer. So the figures are those of the server's CPU time
alone, in which how fast a client is does not show.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.records.builder import build_batch
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.benchmarks.figures import Measure
from tests.benchmarks.report import Pair, listed, marked, table
from tests.benchmarks.run import (
    add_ours_alone,
    add_pairs,
    give,
    machine_facts,
    pair_of,
    parsed,
    parser_of,
    say,
)
from tests.benchmarks.servers import Appliance, BenchmarkedServer, Kafka, SideBySide, beside_kafka
from tests.support.certificates import Authority
from tests.support.kafka_peer import KafkaPeer
from tests.support.ports import free_port

BEGIN = "<!-- TLS figures: written by `make bench-tls`, from here -->"
END = "<!-- TLS figures: to here -->"
PAIRS, QUICK_PAIRS = 5, 1
HOST = "127.0.0.1"
RECORDS, RECORD_BYTES = 600, 100
DEPTH = 4
PRODUCE_VERSION, FETCH_VERSION = 9, 12
REQUESTS, WARM_UP_REQUESTS = 6_000, 12_000
FETCHED_BYTES, WARM_UP_FETCHED_BYTES = 2 << 30, 4 << 30
ANSWER_BYTES = 1 << 20
BUFFER_BYTES = 4 << 20
TIMEOUT_S = 120.0
_SIZE = struct.Struct(">i")

RATE = Measure(
    "bytes per server CPU second", "MB", lambda run: run["bytes"] / run["cpu_s"] / 1e6, higher_is_better=True, digits=0
)
CPU = Measure("server CPU per GB", "s", lambda run: run["cpu_s"] / (run["bytes"] / 1e9), digits=2)
SPEED = Measure(
    "throughput with this client", "MB/s", lambda run: run["bytes"] / run["s"] / 1e6, higher_is_better=True, digits=0
)
MEASURES = (RATE, CPU, SPEED)
PRODUCE, FETCH = "Produce, frames of 66 kB, acks=1, 4 in flight", "Fetch, 1 MiB per answer"


def security(authority: Authority, keystore: Path) -> dict[str, str]:
    return {
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
    }


class TlsKafka(Kafka):
    """Clients without TLS have its other listener."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        self._plain, self.tls_port, controller = free_port(), free_port(), free_port()
        listeners = f"PLAINTEXT://{HOST}:{self._plain},SSL://{HOST}:{self.tls_port},CONTROLLER://{HOST}:{controller}"
        protocols = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        told = {"listeners": listeners, "listener.security.protocol.map": protocols, **properties}
        self._peer = KafkaPeer(heap="1g", folder=folder / "kafka", properties=told, ports=(self._plain, controller))


class TlsAppliance(Appliance):
    """Clients without TLS have its other listener."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        self.tls_port = free_port()
        listeners = f"PLAINTEXT://{HOST}:{free_port()},SSL://{HOST}:{self.tls_port}"
        super().__init__(folder, {"listeners": listeners, **properties})


class TlsClient:
    """One connection, and what goes over it."""

    def __init__(self, server: Any, ca: Path) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        plain = socket.create_connection((HOST, server.tls_port), timeout=TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname=HOST)
        self.cipher = self._socket.cipher()
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)

    def close(self) -> None:
        self._socket.close()

    def _answer(self) -> memoryview:
        """The next frame without its size; it counts until the next call."""
        self._take(4)
        (size,) = _SIZE.unpack_from(self._buffer)
        if size > BUFFER_BYTES:
            raise RuntimeError(f"an answer of {size} bytes")
        self._take(size)
        return self._view[:size]

    def _take(self, size: int) -> None:
        taken = 0
        while taken < size:
            count = self._socket.recv_into(self._view[taken:size])
            if not count:
                raise ConnectionError("the server has hung up")
            taken += count

    def produce(self, topic: str, requests: int) -> int:
        """Bytes of batches that were acknowledged."""
        now_ms = int(time.time() * 1_000)
        value = bytes(index % 251 for index in range(RECORD_BYTES))
        batch = build_batch([(now_ms, None, value, []) for _ in range(RECORDS)])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
        frame = encode_request(request, PRODUCE_VERSION, 0, "bench")
        sent = answered = 0
        while answered < requests:
            while sent < requests and sent - answered < DEPTH:
                self._socket.sendall(frame)
                sent += 1
            answer = decode_response(ProduceResponse, self._answer(), PRODUCE_VERSION)[1]
            (part,) = answer.responses[0].partition_responses
            if part.error_code != ErrorCode.NONE:
                raise RuntimeError(f"produce: {ErrorCode(part.error_code).name}")
            answered += 1
        return requests * len(batch)

    def fetch(self, topic: str, wanted_bytes: int, end_offset: int) -> int:
        """Bytes of batches, from the beginning of the topic again and again."""
        offset = fetched = 0
        while fetched < wanted_bytes:
            part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=ANSWER_BYTES)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=ANSWER_BYTES,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=[part])],
            )
            self._socket.sendall(encode_request(request, FETCH_VERSION, 0, "bench"))
            answer = decode_response(FetchResponse, self._answer(), FETCH_VERSION)[1]
            (found,) = answer.responses[0].partitions
            if found.error_code != ErrorCode.NONE or not found.records:
                raise RuntimeError(f"fetch at {offset}: {ErrorCode(found.error_code).name}")
            fetched += len(found.records)
            offset += len(found.records) // self._batch_bytes(found.records) * RECORDS
            if offset >= end_offset:
                offset = 0
        return fetched

    @staticmethod
    def _batch_bytes(records: Any) -> int:
        return 12 + int(_SIZE.unpack_from(records, 8)[0])


def measured(server: BenchmarkedServer, work: Callable[[], int]) -> dict[str, float]:
    cpu_s, began = server.cpu_seconds(), time.monotonic()
    count = work()
    return {"bytes": count, "s": time.monotonic() - began, "cpu_s": server.cpu_seconds() - cpu_s}


def section(facts: Sequence[tuple[str, str]], results: dict[str, list[Pair]], names: tuple[str, str]) -> str:
    """The marked part of the document."""
    lines = listed(facts)
    for title, pairs in results.items():
        lines += ["", table(title, MEASURES, pairs, names)]
    return marked(lines, BEGIN, END)


def main(arguments: Sequence[str]) -> int:
    parser = parser_of("bench-tls", __doc__)
    add_pairs(parser, "load", PAIRS, QUICK_PAIRS)
    add_ours_alone(parser)
    chosen = parsed(parser, arguments)
    pairs, share = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS), 10 if chosen.quick else 1
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="benchmark-keys-") as folder:
        authority = Authority(Path(folder))
        properties = security(authority, authority.issue("broker", CN="broker"))
        kinds = beside_kafka(properties, ours_alone=chosen.ours_alone, ours=TlsAppliance, kafka=TlsKafka)
        with SideBySide(*kinds) as servers:
            for server in servers:
                server.create_topic("fetched")
            clients = [TlsClient(server, authority.ca) for server in servers]
            for client in clients:
                client.produce("fetched", WARM_UP_REQUESTS // share)
                client.fetch("fetched", WARM_UP_FETCHED_BYTES // share, WARM_UP_REQUESTS // share * RECORDS)
            results: dict[str, list[Pair]] = {}

            def run_of(title: str, number: int, side: int) -> dict[str, float]:
                server, client = servers[side], clients[side]
                if title == PRODUCE:
                    topic = f"produced-{number}{side}"
                    server.create_topic(topic)
                    work = partial(client.produce, topic, REQUESTS // share)
                else:
                    end = WARM_UP_REQUESTS // share * RECORDS
                    work = partial(client.fetch, "fetched", FETCHED_BYTES // share, end)
                run = measured(server, work)
                told = ", ".join(f"{each.name} {each.of(run):,.{each.digits}f}" for each in MEASURES)
                say(f"  {title} {number + 1}/{pairs} {server.name}: {told}")
                return run

            for number in range(pairs):
                for title in (PRODUCE, FETCH):
                    results.setdefault(title, []).append(pair_of(number, partial(run_of, title, number)))
            cipher = clients[-1].cipher
            for client in clients:
                client.close()
    facts = [
        *machine_facts(pairs, began),
        ("Both", f"one broker, defaults; {cipher[1]}, {cipher[0]}" if cipher else "one broker, defaults"),
        (
            "Warmed with",
            f"{WARM_UP_REQUESTS // share:,} produce requests and {WARM_UP_FETCHED_BYTES // share >> 20} MiB",
        ),
    ]
    text = section(facts, results, (servers[0].name, servers[-1].name))
    give(text, BEGIN, END, prints=chosen.print or chosen.ours_alone or chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
