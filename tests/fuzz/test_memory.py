"""Whatever comes over the wire, and however often, a broker's memory does not grow with it.

The broker is a process, so that what its resident pages tell is its own. A round is a storm of requests that say
nothing new (those which rightly leave something behind are left out), of damaged ones, of noise, and of connections
that announce large frames and never send them. What the first rounds take is caches and the allocator's; further
rounds of the same size must not take as much again.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.processes import BrokerSettings
from appliance.client.connection import Connection
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import encode_request
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.schema import WireError
from tests.support.broker import start_controller
from tests.support.broker_process import PartProcess
from tests.support.requests import batch_of, fetch, new_topic, produce, values_of
from tests.support.seeds import seeds
from tests.support.wire_messages import random_message

LOOKING = (
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.HEARTBEAT,
    ApiKey.SYNC_GROUP,
    ApiKey.LEAVE_GROUP,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DELETE_GROUPS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
LEAVE_SOMETHING = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.JOIN_GROUP,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
)
"""The others: what they ask for is written down, and may rightly stay."""
CONNECTIONS = 40
FRAMES_OF_EACH = 6
WARM_UP_ROUNDS, ROUNDS = 4, 6
GROWTH_MAX_BYTES = 24 << 20
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "log.dir.min.free.bytes": "1",
    "queued.max.request.bytes": str(16 << 20),
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartProcess]:
    folder: Path = tmp_path_factory.mktemp("memory")
    controller = start_controller(folder, PROPERTIES)
    settings = BrokerSettings(
        broker_id=1,
        host="127.0.0.1",
        port=0,
        advertised_host="127.0.0.1",
        data_dir=folder / "broker-1",
        controllers=[controller.address],
        object_store=(folder / "object-store").as_uri(),
        node="node-1",
        properties=PROPERTIES,
    )
    running = PartProcess(settings, folder / "broker.log")
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()
        controller.stop()


def resident_bytes(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * 4096


def frames(source: random.Random, served: dict[int, range]) -> Iterator[bytes]:
    for key in LOOKING:
        for _ in range(FRAMES_OF_EACH):
            version = source.choice(served[key])
            message = random_message(APIS[key].request, version, source)
            for field in ("max_wait_ms", "timeout_ms"):
                if hasattr(message, field):
                    setattr(message, field, 0)
            try:
                frame = bytearray(encode_request(message, version, 5, source.choice(["fuzz", "", None])))
            except WireError:
                continue
            if source.random() < 0.5:
                for _ in range(source.randint(1, 6)):
                    frame[source.randrange(8, len(frame))] = source.randrange(256)
            yield bytes(frame)


def storm(port: int, source: random.Random, served: dict[int, range]) -> None:
    """One round: everything is sent, nothing is read, all connections end."""
    open_sockets = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(CONNECTIONS)]
    for frame in frames(source, served):
        place = source.randrange(len(open_sockets))
        try:
            open_sockets[place].sendall(frame)
        except OSError:
            # A frame before it was damaged, and ended the connection.
            open_sockets[place].close()
            open_sockets[place] = socket.create_connection(("127.0.0.1", port), timeout=10)
    for place, sock in enumerate(open_sockets):
        size = source.choice([100, 1 << 20, 100 << 20, (1 << 31) - 1])
        try:
            sock.sendall(struct.pack(">i", size) + source.randbytes(min(size, 20_000 * (place % 4))))
        except OSError:
            pass
    for sock in open_sockets:
        sock.close()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident pages are told by /proc")
@pytest.mark.parametrize("seed", seeds(2))
def test_storms_of_requests_leave_nothing_behind(broker: PartProcess, seed: int) -> None:
    source = random.Random(seed)
    with Connection("127.0.0.1", broker.port, timeout_ms=30_000) as control:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        served = {
            api.api_key: range(max(api.min_version, APIS[api.api_key].min_version), api.max_version + 1)
            for api in control.call(request, 3).api_keys
        }
        assert set(served) == {*LOOKING, *LEAVE_SOMETHING}
        topic = new_topic(control, name=f"memory-{seed}")

        def still_serves() -> None:
            assert produce(control, topic, batch_of(b"here")).error_code == 0

        for _ in range(WARM_UP_ROUNDS):
            storm(broker.port, source, served)
            still_serves()
        before = resident_bytes(broker.process.pid)
        for _ in range(ROUNDS):
            storm(broker.port, source, served)
            still_serves()
        grown = resident_bytes(broker.process.pid) - before
        assert values_of(fetch(control, topic, 0).records)[0] == b"here"
    assert grown < GROWTH_MAX_BYTES, f"seed {seed}: {grown >> 20} MiB more after {ROUNDS} rounds"
