"""Whatever comes over the wire, a broker answers it in its own form or ends that connection, and serves the others.

Three kinds of trouble for every API that is advertised: well-formed requests that mean nothing, well-formed ones with
bytes changed, and plain noise. Names of topics that exist are mixed in, so that requests get past the first check.
"""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.client.connection import Connection
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.schema import Struct, WireError
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, fetch, new_topic, produce, values_of
from tests.support.seeds import seeds
from tests.support.server import receive_frame
from tests.support.wire_messages import random_message

ANSWER_TIMEOUT_S = 10
MAX_WAIT_FIELDS = ("max_wait_ms", "timeout_ms", "rebalance_timeout_ms", "session_timeout_ms")
SKIPPED = {
    ApiKey.JOIN_GROUP,  # may rightly wait for minutes; groups have their own tests
    ApiKey.SYNC_GROUP,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    properties = {"num.partitions": "2", "group.coordinator.rebalance.protocols": "classic,consumer,streams"}
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=properties) as running:
        yield running


@pytest.fixture
def control(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=20_000) as connection:
        yield connection


def advertised(control: Connection) -> dict[int, range]:
    served = control.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3).api_keys
    return {
        api.api_key: range(max(api.min_version, APIS[api.api_key].min_version), api.max_version + 1) for api in served
    }


def with_known_names(message: Any, names: list[str], source: random.Random) -> None:
    """Put names of topics that exist, and small numbers, into some fields of a random request."""
    for field in type(message).__wire__.declared:
        value = getattr(message, field)
        if isinstance(value, Struct):
            with_known_names(value, names, source)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    with_known_names(each, names, source)
            if value and isinstance(value[0], str) and source.random() < 0.7:
                setattr(message, field, [source.choice(names) for _ in value])
            elif value and isinstance(value[0], int) and source.random() < 0.7:
                setattr(message, field, [source.randint(-1, 2) for _ in value])
        elif isinstance(value, str) and source.random() < 0.7:
            setattr(message, field, source.choice(names))
        elif field in MAX_WAIT_FIELDS:
            setattr(message, field, source.choice([0, 1, 50]))
        elif type(value) is int and source.random() < 0.7:
            setattr(message, field, source.choice([-2, -1, 0, 0, 1, 2]))
        elif field == "records" and source.random() < 0.8:
            setattr(message, field, batch_of(b"fuzz"))


def ask(cluster: RunningCluster, frame: bytes) -> bytes | None:
    """The answer to a frame, or None when the connection was ended instead."""
    with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=ANSWER_TIMEOUT_S) as sock:
        try:
            sock.sendall(frame)
            sock.shutdown(socket.SHUT_WR) if len(frame) < 4 else None
            return receive_frame(sock)
        except ConnectionError:
            return None


def lives(control: Connection) -> None:
    topic = new_topic(control)
    assert produce(control, topic, batch_of(b"still here")).error_code == 0
    assert values_of(fetch(control, topic, 0).records) == [b"still here"]


@pytest.mark.parametrize("seed", seeds(3))
def test_well_formed_requests_without_sense_are_answered(
    cluster: RunningCluster, control: Connection, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(seed)
    names = [new_topic(control, partitions=2).name for _ in range(2)] + ["missing", "", "no/slash", "1"]
    answered = 0
    with caplog.at_level(logging.ERROR, logger="appliance"):
        for key, versions in advertised(control).items():
            if key in SKIPPED:
                continue
            for version in versions:
                request = random_message(APIS[key].request, version, source)
                with_known_names(request, names, source)
                if key == ApiKey.PRODUCE and getattr(request, "acks", 1) == 0:
                    continue
                try:
                    frame = encode_request(request, version, 77, "fuzz")
                except WireError:
                    continue
                answer = ask(cluster, frame)
                assert answer is not None, f"seed {seed}: no answer to {request!r} version {version}"
                correlation_id, _ = decode_response(APIS[key].response, answer, version)
                assert correlation_id == 77
                answered += 1
    assert answered > 150
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [], f"seed {seed}"
    lives(control)


@pytest.mark.parametrize("seed", seeds(3))
def test_damaged_requests_and_noise_harm_nobody_else(
    cluster: RunningCluster, control: Connection, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(1_000 + seed)
    names = [new_topic(control).name]
    port = cluster.brokers[1].port
    open_sockets: list[socket.socket] = []
    with caplog.at_level(logging.ERROR, logger="appliance"):
        for key, versions in advertised(control).items():
            if key in SKIPPED:
                continue
            version = source.choice(versions)
            request = random_message(APIS[key].request, version, source)
            with_known_names(request, names, source)
            try:
                frame = bytearray(encode_request(request, version, 5, "fuzz"))
            except WireError:
                continue
            for _ in range(4):
                damaged = bytearray(frame)
                for _ in range(source.randint(1, 8)):
                    damaged[source.randrange(8, len(damaged))] = source.randrange(256)
                sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
                # Nobody waits for answers here: some of these rightly never get one.
                sock.sendall(damaged if source.random() < 0.8 else damaged[: source.randrange(len(damaged))])
                open_sockets.append(sock)
        for _ in range(50):
            sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
            sock.sendall(source.randbytes(source.choice([1, 3, 4, 11, 12, 100, 5_000])))
            sock.sendall(struct.pack(">i", source.choice([0, 8, 100])) + source.randbytes(100))
            open_sockets.append(sock)
        lives(control)
    for sock in open_sockets:
        sock.close()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [], f"seed {seed}"
    lives(control)
