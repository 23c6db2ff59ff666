"""The HTTP gateway before a real broker, over real sockets."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import UserError
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.http_ingest.service import serve
from tests.support.broker import RunningCluster, running_cluster
from tests.support.services import records_in, running_service

NDJSON = "application/x-ndjson"
LIMITS = {"http.max.body.bytes": "2000000", "http.max.records": "30000", "http.max.record.bytes": "100000"}


@dataclass
class Gateway:
    url: str
    cluster: RunningCluster
    client: Client

    def post(
        self, path: str, body: bytes, content_type: str = "application/json", **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        connection.request("POST", path, body, {"Content-Type": content_type, **headers})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.headers.get_content_type() == NDJSON:
            return answer.status, [json.loads(line) for line in text.splitlines()], answer.headers
        return answer.status, json.loads(text), answer.headers

    def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        self.client.create_topics(
            [NewTopic(name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()})]
        )
        return f"/v1/topics/{name}/records"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with running_cluster(folder, brokers=2, properties={"auto.create.topics.enable": "false"}) as cluster:
        servers = cluster.bootstrap_servers
        with running_service(serve, "http", servers, folder, properties=LIMITS) as url, Client(servers) as client:
            yield Gateway(url, cluster, client)


def test_records_are_written_with_key_headers_and_timestamp(gateway: Gateway) -> None:
    path = gateway.topic("plain")
    status, answer, headers = gateway.post(
        path, b'{"key": "k", "value": {"a": [1, 2.50]}, "headers": {"h": "x", "n": null}, "timestamp": 1357034400000}'
    )
    assert (status, answer) == (
        200,
        {"failed": 0, "results": [{"partition": 0, "offset": 0, "timestamp": 1357034400000}]},
    )
    assert headers["X-Failed-Records"] == "0"
    (record,) = records_in(gateway.client, "plain")
    assert (record.key, record.value, record.timestamp) == (b"k", b'{"a": [1, 2.50]}', 1357034400000)
    assert record.headers == (("h", b"x"), ("n", None))


def test_results_come_in_the_order_of_the_records_and_name_their_offsets(gateway: Gateway) -> None:
    path = gateway.topic("ordered", partitions=4)
    lines = b"".join(b'{"key":"k%d","value":"v%d"}\n' % (number % 50, number) for number in range(20_000))
    status, results, _ = gateway.post(path, lines, NDJSON)
    assert status == 200 and len(results) == 20_000
    values = [record.value for record in records_in(gateway.client, "ordered")]
    ends = [0, 0, 0, 0]
    by_place = {}
    for number, result in enumerate(results):
        by_place[result["partition"], result["offset"]] = b"v%d" % number
        ends[result["partition"]] += 1
    assert [by_place[partition, offset] for partition in range(4) for offset in range(ends[partition])] == values


def test_a_bad_record_leaves_its_neighbours_alone_and_is_not_hidden(gateway: Gateway) -> None:
    path = gateway.topic("mixed")
    status, answer, headers = gateway.post(path, b'[{"value":1},{"valu":2},{"value":3,"partition":9},{"value":4}]')
    assert (status, answer["failed"], headers["X-Failed-Records"]) == (207, 2, "2")
    assert [result.get("offset") for result in answer["results"]] == [0, None, None, 1]
    assert "valu" in answer["results"][1]["message"] and answer["results"][1]["retryable"] is False
    status, results, _ = gateway.post(path, b'{"value":5}\n{"half\n{"value":6}\n', NDJSON)
    assert status == 207 and results[1]["error"] == "INVALID_JSON"
    assert [record.value for record in records_in(gateway.client, "mixed")] == [b"1", b"4", b"5", b"6"]


def test_compressed_raw_and_binary_bodies(gateway: Gateway) -> None:
    path = gateway.topic("forms")
    assert gateway.post(path, gzip.compress(b'{"value":"packed"}\n'), NDJSON, **{"Content-Encoding": "gzip"})[0] == 200
    assert gateway.post(path + "?raw=true", b"any line\nanother\n", NDJSON)[0] == 200
    assert gateway.post(path + "?key=k&timestamp=5", b"\x00\xff\n", "application/octet-stream")[0] == 200
    records = records_in(gateway.client, "forms")
    assert [record.value for record in records] == [b"packed", b"any line", b"another", b"\x00\xff\n"]
    assert (records[3].key, records[3].timestamp) == (b"k", 5)


def test_acks_are_honoured(gateway: Gateway) -> None:
    path = gateway.topic("acks")
    assert gateway.post(path + "?acks=1", b'{"value":1}')[1]["results"][0]["offset"] == 0
    assert gateway.post(path + "?acks=0", b'{"value":2}')[1]["results"][0]["offset"] == -1
    deadline_s = time.monotonic() + 10
    while len(records_in(gateway.client, "acks")) < 2:
        assert time.monotonic() < deadline_s, "the record with acks=0 never came"


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status", "error"),
    [
        ("/v1/topics/plain/records", b'{"value":', "application/json", 400, "INVALID_JSON"),
        ("/v1/topics/plain/records", b"[]", "application/json", 400, "NO_RECORDS"),
        ("/v1/topics/nowhere/records", b'{"value":1}', "application/json", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/v1/topics/a%20b/records", b'{"value":1}', "application/json", 400, "INVALID_TOPIC_EXCEPTION"),
        ("/v1/topics/plain/records?acks=2", b'{"value":1}', "application/json", 400, "INVALID_REQUIRED_ACKS"),
        ("/v1/topics/plain/records", b"<a/>", "text/xml", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("/v1/topics/plain/records", b'"%s"' % (b"x" * 2_000_001), "application/json", 413, "BODY_TOO_LARGE"),
        ("/v1/elsewhere", b"", "application/json", 404, "NOT_FOUND"),
    ],
)
def test_what_is_wrong_as_a_whole_is_a_clear_4xx(
    gateway: Gateway, path: str, body: bytes, content_type: str, status: int, error: str
) -> None:
    got, answer, _ = gateway.post(path, body, content_type)
    assert (got, answer["error"]) == (status, error)
    assert answer["message"]


def test_a_record_above_the_gateways_limit_fails_alone(gateway: Gateway) -> None:
    path = gateway.topic("large")
    status, answer, _ = gateway.post(path, b'[{"value":"%s"},{"value":"small"}]' % (b"x" * 100_001))
    assert (status, answer["results"][0]["error"], answer["results"][1]["offset"]) == (207, "MESSAGE_TOO_LARGE", 0)


def test_a_record_above_the_topics_limit_fails_alone_in_its_batch(gateway: Gateway) -> None:
    path = gateway.topic("limited", max_message_bytes="5000")
    status, answer, _ = gateway.post(
        path,
        json.dumps([{"value": "a" * 2000}, {"value": "b" * 6000}, *({"value": "c" * 900} for _ in range(20))]).encode(),
    )
    assert status == 207
    assert [result.get("error") for result in answer["results"]] == [None, "MESSAGE_TOO_LARGE", *([None] * 20)]
    assert len(records_in(gateway.client, "limited")) == 21


def test_a_stream_that_passes_a_limit_keeps_the_results_before_it(gateway: Gateway) -> None:
    path = gateway.topic("stream")
    status, results, _ = gateway.post(path, b'{"value":1}\n' * 30_001, NDJSON)
    assert status == 207
    assert len(results) == 30_001 and results[-1]["error"] == "TOO_MANY_RECORDS"
    assert len(records_in(gateway.client, "stream")) == 30_000


def test_records_are_written_while_the_body_still_arrives(gateway: Gateway) -> None:
    gateway.topic("live")
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        head = f"POST /v1/topics/live/records HTTP/1.1\r\nHost: x\r\nContent-Type: {NDJSON}\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n"
        line = b'{"value":"first"}\n'
        connection.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(line), line))
        deadline_s = time.monotonic() + 10
        while not records_in(gateway.client, "live"):
            assert time.monotonic() < deadline_s, "nothing was written before the body's end"
        connection.sendall(b"0\r\n\r\n")
        assert b" 200 " in connection.recv(65_536).split(b"\r\n")[0]


def test_many_clients_at_once_lose_nothing(gateway: Gateway) -> None:
    path = gateway.topic("many", partitions=3)
    statuses: list[int] = []

    def write(worker: int) -> None:
        for number in range(20):
            statuses.append(gateway.post(path, b'{"value":"%d-%d"}' % (worker, number))[0])

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert statuses == [200] * 160
    values = sorted(str(record.value) for record in records_in(gateway.client, "many"))
    assert values == sorted(str(b"%d-%d" % (worker, number)) for worker in range(8) for number in range(20))


def test_limits_and_health_are_told(gateway: Gateway) -> None:
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=10)
    connection.request("GET", "/v1/limits")
    limits = json.loads(connection.getresponse().read())
    assert (limits["max_body_bytes"], limits["max_records"]) == (2_000_000, 30_000)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"status": "healthy"})
    connection.close()


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}") as caught,
            running_service(serve, "http", "127.0.0.1:1", tmp_path, port=port),
        ):
            pass
        assert caught.value.exit_code == 3


def test_without_brokers_the_answer_is_503_with_retry_after(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{nobody.getsockname()[1]}"
        with running_service(serve, "http", servers, tmp_path) as url:
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
            connection.request("POST", "/v1/topics/a/records", b'{"value":1}', {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert json.loads(answer.read())["error"] == "BROKER_NOT_AVAILABLE"
            connection.close()
